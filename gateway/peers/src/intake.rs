//! Reading what another worker asks: first the envelope, then the message that it marks.
//!
//! Invariant: of what nobody has signed no more is held than an envelope takes.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;

use crate::fleet::{Admitted, ENVELOPE_BYTES_MAX, Gate, Refused};

/// Longest time that a request may take to arrive whole.
const INTAKE_LIMIT: Duration = Duration::from_secs(30);

/// Every reason for which a request is not served, as labels have it.
pub(crate) const REASONS: [&str; 13] = [
    "malformed",
    "version",
    "not_authentic",
    "other_receiver",
    "too_old",
    "too_new",
    "replayed",
    "too_many",
    "truncated",
    "surplus",
    "too_large",
    "other_body",
    "timed_out",
];

/// Why a request is not served. For the log: whoever sent it is told nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum IntakeError {
    /// The envelope is not let in.
    #[error(transparent)]
    Envelope(#[from] Refused),
    /// The request ended before it was whole.
    #[error("the request ended before it was whole")]
    Truncated,
    /// More follows than the envelope marks.
    #[error("more follows than the envelope marks")]
    Surplus,
    /// The message is too large for this worker.
    #[error("the message has {bytes} bytes, more than this worker takes")]
    TooLarge { bytes: u64 },
    /// The message is not the one that the envelope marks.
    #[error("the message is not the one that the envelope marks")]
    OtherBody,
    /// It took too long to arrive.
    #[error("the request did not arrive within {} s", INTAKE_LIMIT.as_secs())]
    TimedOut,
}

impl IntakeError {
    /// The value of the label: one of [`REASONS`].
    pub(super) const fn reason(&self) -> &'static str {
        match self {
            Self::Envelope(refused) => refused.as_str(),
            Self::Truncated => "truncated",
            Self::Surplus => "surplus",
            Self::TooLarge { .. } => "too_large",
            Self::OtherBody => "other_body",
            Self::TimedOut => "timed_out",
        }
    }
}

/// Reads a request whole, with a message of at most `body_bytes_max` bytes.
pub(super) async fn take<B>(
    body: B,
    gate: &Gate,
    body_bytes_max: u64,
) -> Result<Admitted, IntakeError>
where
    B: Body<Data = Bytes> + Unpin,
{
    let taking = async {
        let mut arriving = Arriving {
            body,
            held: Bytes::new(),
        };
        let length = arriving.exactly(4).await?;
        let length = length
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        if length > ENVELOPE_BYTES_MAX {
            return Err(Refused::Malformed.into());
        }
        let envelope = arriving.exactly(length).await?;
        let mut admitted = gate.admit(&envelope, super::unix_now_ms())?;
        let bytes = admitted.body.bytes;
        let within = (bytes <= body_bytes_max).then(|| usize::try_from(bytes).ok());
        let length = within.flatten().ok_or(IntakeError::TooLarge { bytes })?;
        let message = arriving.exactly(length).await?;
        arriving.end().await?;
        if !admitted.body.is_of(&message) {
            return Err(IntakeError::OtherBody);
        }
        admitted.forward.body = message;
        Ok(admitted)
    };
    tokio::time::timeout(INTAKE_LIMIT, taking)
        .await
        .unwrap_or(Err(IntakeError::TimedOut))
}

/// A body of which pieces of a known length are taken.
struct Arriving<B> {
    body: B,
    held: Bytes,
}

impl<B: Body<Data = Bytes> + Unpin> Arriving<B> {
    async fn exactly(&mut self, count: usize) -> Result<Bytes, IntakeError> {
        if self.held.len() >= count {
            return Ok(self.held.split_to(count));
        }
        let mut whole = BytesMut::with_capacity(count);
        whole.extend_from_slice(&std::mem::take(&mut self.held));
        while whole.len() < count {
            self.held = self.more().await?.ok_or(IntakeError::Truncated)?;
            let wanted = self.held.len().min(count - whole.len());
            whole.extend_from_slice(&self.held.split_to(wanted));
        }
        Ok(whole.freeze())
    }

    async fn end(&mut self) -> Result<(), IntakeError> {
        while self.held.is_empty() {
            match self.more().await? {
                Some(bytes) => self.held = bytes,
                None => return Ok(()),
            }
        }
        Err(IntakeError::Surplus)
    }

    async fn more(&mut self) -> Result<Option<Bytes>, IntakeError> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|_| IntakeError::Truncated)?;
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_listed() {
        let of_envelopes = [
            Refused::Malformed,
            Refused::Version(0),
            Refused::NotAuthentic,
            Refused::OtherReceiver,
            Refused::TooOld,
            Refused::TooNew,
            Refused::Replayed,
            Refused::TooMany,
        ];
        let others = [
            IntakeError::Truncated,
            IntakeError::Surplus,
            IntakeError::TooLarge { bytes: 0 },
            IntakeError::OtherBody,
            IntakeError::TimedOut,
        ];
        let all = of_envelopes.map(IntakeError::Envelope).into_iter();
        let reasons: Vec<_> = all.chain(others).map(|error| error.reason()).collect();
        assert_eq!(reasons, REASONS);
    }
}
