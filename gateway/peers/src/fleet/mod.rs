//! What proves that a message is of this fleet: a ring of shared keys, and what is signed with it.
//!
//! Invariant: nothing that came over a wire is acted on before its tag is checked, with a key that serves that one
//! purpose alone. Everything here is a function of bytes and of the time that is handed in; `peer` does the I/O.
//!
//! The tags prove who speaks and where it is reached; they hide nothing. Session keys, principals and messages cross the
//! private network between workers readable, as they do between a load balancer and its backends: that network has to be
//! trusted with them.

mod address;
mod envelope;
mod frames;
mod gate;
mod keys;
mod mac;
mod replay;
mod seal;
mod wire;

pub use address::UnverifiedAddress;
pub(crate) use envelope::ENVELOPE_BYTES_MAX;
pub use envelope::{BodyMark, Forward, Operation, SealError};
pub use frames::{
    Exchange, Frame, FrameDecoder, FrameEncoder, FrameError, HeadTooLarge, ReplyHead, Verdict,
};
pub use gate::{Addressed, Admitted, Gate, Refused, Sealed};
pub use keys::{KeyRing, KeyRingError, LineProblem};
pub use replay::{NONCES_MAX, WINDOW_MS};
pub use seal::SealKey;
