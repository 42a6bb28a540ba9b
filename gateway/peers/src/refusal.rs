//! Why a connection or a request is not served at the private listener.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustls::AlertDescription;

use super::metrics;

/// Every reason, as labels have it.
pub(crate) const REFUSAL_REASONS: [&str; 6] = [
    "not_authentic",
    "other_receiver",
    "malformed",
    "truncated",
    "too_large",
    "timed_out",
];

/// Why something is not served. For the log and the metrics: whoever sent it learns no more than TLS says.
#[derive(Debug, thiserror::Error)]
pub(super) enum PeerRefusal {
    /// The peer has no certificate that a key of this gateway vouches for, or says so of this gateway's.
    #[error("the fleet's keys do not match: {0}")]
    NotAuthentic(rustls::Error),
    /// The peer wants to reach another boot, which announced this address before, or for which somebody else did.
    #[error("the peer expected another gateway, or another boot of this one, at this address")]
    OtherReceiver,
    /// It is not TLS 1.3.
    #[error("the TLS handshake failed: {0}")]
    Handshake(rustls::Error),
    /// The head of the request is not as gateways make it.
    #[error("the request is malformed")]
    Malformed,
    /// The request ended before it was whole.
    #[error("the request ended early")]
    Truncated,
    /// The message is too large for this gateway.
    #[error("the message exceeds this gateway's size limit")]
    TooLarge,
    /// It took too long.
    #[error("the request did not arrive within {} s", .0.as_secs())]
    TimedOut(Duration),
}

impl PeerRefusal {
    /// Why a handshake failed; none where the connection broke, which refuses nothing.
    pub(super) fn of_handshake(error: &io::Error) -> Option<Self> {
        let error = error.get_ref()?.downcast_ref::<rustls::Error>()?.clone();
        Some(match error {
            rustls::Error::InvalidCertificate(_)
            | rustls::Error::NoCertificatesPresented
            | rustls::Error::AlertReceived(AlertDescription::UnknownCA) => {
                Self::NotAuthentic(error)
            }
            // What rustls sends where a certificate is the fleet's and has another name.
            rustls::Error::AlertReceived(AlertDescription::BadCertificate) => Self::OtherReceiver,
            error => Self::Handshake(error),
        })
    }

    /// The value of the label: one of [`REFUSAL_REASONS`].
    const fn reason(&self) -> &'static str {
        match self {
            Self::NotAuthentic(_) => "not_authentic",
            Self::OtherReceiver => "other_receiver",
            Self::Handshake(_) | Self::Malformed => "malformed",
            Self::Truncated => "truncated",
            Self::TooLarge => "too_large",
            Self::TimedOut(_) => "timed_out",
        }
    }

    /// Counts and logs it.
    pub(super) fn record(&self, address: SocketAddr) {
        let reason = self.reason();
        metrics::peer_refused(reason);
        match self {
            // A peer that has not heard yet that this gateway was started again.
            Self::OtherReceiver => {
                tracing::debug!(%address, reason, error = %self, "peer request refused");
            }
            _ => tracing::warn!(%address, reason, error = %self, "peer request refused"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_listed() {
        let error = || rustls::Error::NoCertificatesPresented;
        let all = [
            PeerRefusal::NotAuthentic(error()),
            PeerRefusal::OtherReceiver,
            PeerRefusal::Handshake(error()),
            PeerRefusal::Malformed,
            PeerRefusal::Truncated,
            PeerRefusal::TooLarge,
            PeerRefusal::TimedOut(Duration::ZERO),
        ];
        let mut reasons = all.map(|refusal| refusal.reason()).to_vec();
        reasons.dedup();
        assert_eq!(reasons, REFUSAL_REASONS);
    }
}
