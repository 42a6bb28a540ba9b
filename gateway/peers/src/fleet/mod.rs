//! What proves that something is of this fleet: a ring of shared keys, the certificates that are made from it, and the
//! tags that are made with it.
//!
//! Invariant: every purpose has a key of its own, derived from the fleet's, and what one proves proves nothing for
//! another. `peer` does the I/O.

mod keys;
mod mac;
mod seal;
mod tls;

pub use keys::{KeyRing, KeyRingError, LineProblem};
pub use seal::SealKey;
pub(crate) use tls::tls_name;
pub use tls::{FleetTls, FleetTlsError};
