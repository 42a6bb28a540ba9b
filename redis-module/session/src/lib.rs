//! The rules of a Mooring session: pure transitions over one record.
//!
//! Nothing here reads a clock, a socket, a file or a random number: time, liveness and load are arguments, and every
//! rule takes the record under a key (or its absence), a request and a [`Context`]. It either refuses and changes
//! nothing, or returns a reply and what changed ([`RecordChange`]). The Redis module runs these rules over its
//! keyspace, the gateway's embedded store over SQLite, its fallback over memory, and the tests over virtual time. There
//! is no second implementation.
//!
//! Where to find what:
//! * [`names`], [`limits`], [`time`]: the types of arguments, and their limits.
//! * [`record`], [`codec`]: what a session is, and how it is stored in a hash.
//! * [`rules`]: one file per transition.
//! * [`index`]: the index over the records of a database.
//! * [`session_digest`]: what logs and operators call a session by.
//! * [`workers`], [`placement`]: who is alive, and where a new binding goes.
//! * [`turns`], [`events`]: whose call is next, and the events for waiting workers. [`place`]: the key of both.
//! * [`key_slot`]: which slot of a cluster a key is in.
//! * [`clock`]: whether the wall clock can be trusted.
//! * [`view`], [`refusal`]: replies and errors. [`explain`]: the state of a session in sentences.

pub mod clock;
pub mod codec;
pub mod context;
pub mod events;
pub mod explain;
pub mod index;
pub mod key_slot;
pub mod limits;
pub mod names;
pub mod place;
pub mod placement;
mod progress;
pub mod record;
pub mod refusal;
pub mod request_digest;
mod rotation;
pub mod rules;
pub mod session_digest;
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
pub use session_digest::{DigestPrefix, SessionDigest};
pub use tuning::Tuning;
