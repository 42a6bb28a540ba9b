//! Why the private listener refuses a connection or request.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustls::AlertDescription;

use super::metrics;

/// Why something was refused. For the log and metrics only: the sender learns no more than TLS reveals. Its label is one
/// of [`metrics::REFUSAL_REASONS`].
#[derive(Debug, thiserror::Error, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum PeerRefusal {
    /// The peer's certificate is not signed by a key of this gateway, or the peer rejects this gateway's.
    #[error("the fleet's keys do not match: {0}")]
    NotAuthentic(rustls::Error),
    /// The peer expected another gateway or boot, which announced this address.
    #[error("the peer expected another gateway, or another boot of this one, at this address")]
    OtherReceiver,
    /// The TLS handshake failed for another reason.
    #[error("the TLS handshake failed: {0}")]
    #[strum(serialize = "malformed")]
    Handshake(rustls::Error),
    /// The head of the request is malformed.
    #[error("the request is malformed")]
    Malformed,
    /// The request is incomplete.
    #[error("the request ended early")]
    Truncated,
    /// The message exceeds the size limit.
    #[error("the message exceeds this gateway's size limit")]
    TooLarge,
    /// The request did not arrive in time.
    #[error("the request did not arrive within {} s", .0.as_secs())]
    TimedOut(Duration),
}

impl PeerRefusal {
    /// Why a handshake failed; none if the connection broke, which is no refusal.
    pub(super) fn of_handshake(error: &io::Error) -> Option<Self> {
        let error = error.get_ref()?.downcast_ref::<rustls::Error>()?.clone();
        Some(match error {
            rustls::Error::InvalidCertificate(_)
            | rustls::Error::NoCertificatesPresented
            | rustls::Error::AlertReceived(AlertDescription::UnknownCA) => {
                Self::NotAuthentic(error)
            }
            // Sent by rustls if the certificate is the fleet's but has another name.
            rustls::Error::AlertReceived(AlertDescription::BadCertificate) => Self::OtherReceiver,
            error => Self::Handshake(error),
        })
    }

    /// Counts and logs the refusal.
    pub(super) fn record(&self, address: SocketAddr) {
        let reason = self.into();
        metrics::peer_refused(reason);
        match self {
            // The peer does not know yet that this gateway was restarted.
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
        let mut reasons = all.map(<&str>::from).to_vec();
        reasons.dedup();
        assert_eq!(reasons, metrics::REFUSAL_REASONS);
    }
}
