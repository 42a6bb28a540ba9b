//! The rules of a Mooring session: pure transitions over one record.
//!
//! Nothing here reads a clock, a socket, a file or a random number: time, liveness and load are arguments, and every
//! rule takes the record under a key (or its absence), a request and a [`Context`], and either refuses and changes
//! nothing, or answers and says what it [`Written`]. The Redis module runs these rules over its keyspace, the
//! gateway's embedded store over SQLite, its fallback over memory, and the tests over virtual time. There is no
//! second implementation.
//!
//! Where to find what:
//! * [`names`], [`limits`], [`time`]: what may be said, and how long.
//! * [`record`], [`codec`]: what a session is, and how it stands in a hash.
//! * [`rules`]: one file per transition.
//! * [`workers`], [`placement`]: who is alive, and where a new binding goes.
//! * [`view`], [`refusal`]: what callers are told.

pub mod codec;
pub mod context;
pub mod limits;
pub mod names;
pub mod placement;
pub mod record;
pub mod refusal;
pub mod rules;
pub mod time;
pub mod view;
pub mod workers;

pub use context::{Context, Decided, Held, Liveness, NoIndex, Node, Tuning, Written};
pub use refusal::Refusal;
