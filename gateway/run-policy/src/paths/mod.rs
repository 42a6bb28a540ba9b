//! Paths as agents write them, the names they consist of, and which of them a policy lets a run see and change.
//!
//! Invariant: pure. Nothing here looks at a file.

mod access;
mod name;
mod path;

pub use access::TreeAccess;
pub use name::checked;
pub use name::{NameFault, escaped};
pub use path::{DEPTH_MAX, PATH_BYTES_MAX};
pub use path::{Mount, PathError, VirtualPath};
