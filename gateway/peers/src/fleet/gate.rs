//! The gate: seals what this worker asks of others, and lets in what others ask of it.
//!
//! Invariant: what is let in was signed by a worker of this fleet, for this worker, within the window of time, and was not
//! let in before. The tag comes first: nothing but the version is read from an envelope before it is known to be authentic.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use bytes::{BufMut, Bytes, BytesMut};
use mooring_session::names::WorkerId;

use super::address::{AddressKeys, UnverifiedAddress};
use super::envelope::{BodyMark, ENVELOPE_BYTES_MAX, Envelope, Forward, SealError, VERSION};
use super::frames::Exchange;
use super::keys::KeyRing;
use super::mac::{MacKey, MacRing, Purpose, TAG_BYTES};
use super::replay::{SeenNonces, Unfresh};
use super::wire::Malformed;

/// One worker's side of the fleet.
pub struct Gate {
    me: WorkerId,
    request_keys: MacRing,
    reply_keys: MacRing,
    address_keys: AddressKeys,
    seen: Mutex<SeenNonces>,
}

/// A signed envelope, and what its reply has to be signed with.
#[derive(Debug)]
pub struct Sealed {
    /// What goes in front of the message: the envelope's length as four bytes, the envelope, its tag.
    pub front: Bytes,
    /// What ties the reply to it.
    pub exchange: Exchange,
}

/// What was let in.
#[derive(Debug)]
pub struct Admitted {
    /// The worker that asks.
    pub from: WorkerId,
    /// Which run of this worker it means.
    pub addressed: Addressed,
    /// What it asks. The body is still to come.
    pub forward: Forward,
    /// What the body has to be.
    pub body: BodyMark,
    /// What ties the reply to it.
    pub exchange: Exchange,
}

/// Which run of a worker is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressed {
    /// This one.
    Here,
    /// Another one of the same name. Whatever it held is gone with it.
    OtherRun,
}

/// Why an envelope is not let in. For the log: whoever sent it is told nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Too short, too long, or authentic and yet unreadable.
    #[error("the envelope is malformed")]
    Malformed,
    /// Another version of the layout: the other worker is of another release.
    #[error("the envelope has version {0}, this worker knows {VERSION}")]
    Version(u8),
    /// No key of the ring made its tag.
    #[error("no key of this worker made the envelope's tag")]
    NotAuthentic,
    /// It is for a worker of another name.
    #[error("the envelope is for another worker")]
    OtherReceiver,
    /// Its time is past the window. The clocks of the two workers may differ by more than that.
    #[error("the envelope is too old, or the clocks differ")]
    TooOld,
    /// Its time is ahead of the window.
    #[error("the envelope is from the future: the clocks differ")]
    TooNew,
    /// It was let in before.
    #[error("the envelope was used before")]
    Replayed,
    /// More envelopes came within the window than are remembered.
    #[error("too many envelopes within the window")]
    TooMany,
}

impl Refused {
    /// The word in logs and labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Version(_) => "version",
            Self::NotAuthentic => "not_authentic",
            Self::OtherReceiver => "other_receiver",
            Self::TooOld => "too_old",
            Self::TooNew => "too_new",
            Self::Replayed => "replayed",
            Self::TooMany => "too_many",
        }
    }
}

impl Gate {
    /// The gate of this worker, with the keys of its fleet.
    #[must_use]
    pub fn new(me: WorkerId, ring: &KeyRing) -> Self {
        Self {
            me,
            request_keys: ring.keys_for(Purpose::PeerRequest),
            reply_keys: ring.keys_for(Purpose::PeerReply),
            address_keys: AddressKeys::new(ring),
            seen: Mutex::default(),
        }
    }

    /// This worker.
    #[must_use]
    pub const fn me(&self) -> &WorkerId {
        &self.me
    }

    /// The address of this worker, `host:port`, in the form in which it is announced.
    #[must_use]
    pub fn sign_address(&self, address: &str) -> String {
        self.address_keys.sign(&self.me, address)
    }

    /// The address that `worker` announced, `host:port`.
    ///
    /// # Errors
    /// No key of this gate's ring signed it for this run of that worker.
    pub fn verify_address<'a>(
        &self,
        worker: &WorkerId,
        announced: &'a str,
    ) -> Result<&'a str, UnverifiedAddress> {
        self.address_keys.verify(worker, announced)
    }

    /// Signs what this worker asks of `to`, at this time in milliseconds since 1970.
    ///
    /// # Errors
    /// What is asked is too large, short of its body.
    pub fn seal(&self, to: &WorkerId, forward: &Forward, now_ms: u64) -> Result<Sealed, SealError> {
        let envelope = Envelope {
            from: self.me.clone(),
            to: to.clone(),
            sent_at_ms: now_ms,
            nonce: rand::random(),
            body: BodyMark::of(&forward.body),
            forward: Forward {
                body: Bytes::new(),
                ..forward.clone()
            },
        };
        let signed = envelope.encode()?;
        let tag = tag_of(self.request_keys.first(), signed.written());
        let length = signed.len() + TAG_BYTES;
        let mut front = BytesMut::with_capacity(4 + length);
        front.put_u32(u32::try_from(length).map_err(|_| SealError::TooLarge)?);
        front.put_slice(signed.written());
        front.put_slice(&tag);
        Ok(Sealed {
            front: front.freeze(),
            exchange: Exchange::new(self.reply_keys.first(), &tag),
        })
    }

    /// Checks an envelope with its tag, without the length before it, at this time in milliseconds since 1970. What passes
    /// once does not pass again.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn admit(&self, envelope: &[u8], now_ms: u64) -> Result<Admitted, Refused> {
        let version = *envelope.first().ok_or(Refused::Malformed)?;
        if version != VERSION {
            return Err(Refused::Version(version));
        }
        if envelope.len() > ENVELOPE_BYTES_MAX {
            return Err(Refused::Malformed);
        }
        let (signed, tag) = envelope
            .split_last_chunk::<TAG_BYTES>()
            .ok_or(Refused::Malformed)?;
        let keys = self.request_keys.iter().zip(self.reply_keys.iter());
        // The reply is signed with the key that the request came with: whoever asks is sure to have that one.
        let (_, reply_key) = keys
            .into_iter()
            .find(|(key, _)| key.start().part(signed).matches(tag))
            .ok_or(Refused::NotAuthentic)?;
        let envelope = Envelope::decode(signed).map_err(|Malformed| Refused::Malformed)?;
        let addressed = self.addressed(&envelope.to)?;
        self.accept_once(&envelope, now_ms)?;
        Ok(Admitted {
            from: envelope.from,
            addressed,
            forward: envelope.forward,
            body: envelope.body,
            exchange: Exchange::new(reply_key, tag),
        })
    }

    fn addressed(&self, to: &WorkerId) -> Result<Addressed, Refused> {
        if *to == self.me {
            Ok(Addressed::Here)
        } else if to.name() == self.me.name() {
            Ok(Addressed::OtherRun)
        } else {
            Err(Refused::OtherReceiver)
        }
    }

    fn accept_once(&self, envelope: &Envelope, now_ms: u64) -> Result<(), Refused> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.accept(envelope.sent_at_ms, envelope.nonce, now_ms)
            .map_err(|unfresh| match unfresh {
                Unfresh::TooOld => Refused::TooOld,
                Unfresh::TooNew => Refused::TooNew,
                Unfresh::Seen => Refused::Replayed,
                Unfresh::Full => Refused::TooMany,
            })
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Gate({})", self.me)
    }
}

fn tag_of(key: &MacKey, signed: &[u8]) -> [u8; TAG_BYTES] {
    key.start().part(signed).tag()
}

#[cfg(test)]
mod tests;
