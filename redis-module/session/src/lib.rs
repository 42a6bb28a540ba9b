//! The rules of a Mooring session: pure transitions over one record.
//!
//! Nothing here reads a clock, a socket, a file or a random number: time, liveness and load are arguments, and every
//! rule takes the record under a key (or its absence), a request and a [`Context`], and either refuses and changes
//! nothing, or answers and says what changed ([`RecordChange`]). The Redis module runs these rules over its keyspace,
//! the gateway's embedded store over SQLite, its fallback over memory, and the tests over virtual time. There is no
//! second implementation.
//!
//! Where to find what:
//! * [`names`], [`limits`], [`time`]: what may be said, and how long.
//! * [`record`], [`codec`]: what a session is, and how it stands in a hash.
//! * [`rules`]: one file per transition.
//! * [`index`]: what the records of a database say together.
//! * [`workers`], [`placement`]: who is alive, and where a new binding goes.
//! * [`turns`], [`news`]: whose call is next, and what waiting workers are told. [`place`]: what both are kept by.
//! * [`clock`]: whether the wall clock can be believed.
//! * [`view`], [`refusal`]: what callers are told. [`explain`]: the same for people.

pub mod clock;
pub mod codec;
pub mod context;
pub mod explain;
pub mod index;
pub mod limits;
pub mod names;
pub mod news;
pub mod place;
pub mod placement;
mod progress;
pub mod record;
pub mod refusal;
pub mod request_digest;
mod rotation;
pub mod rules;
mod spots;
pub mod time;
pub mod tuning;
pub mod turns;
pub mod view;
pub mod workers;

pub use context::{Context, Decision, Liveness, NoIndex, Node, PrincipalSessions, RecordChange};
pub use place::SessionPlace;
pub use progress::StepProgress;
pub use refusal::Refusal;
pub use request_digest::RequestDigest;
pub use tuning::Tuning;
