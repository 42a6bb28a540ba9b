//! The access token with which a caller was authenticated.
//!
//! Invariant: its text is in no log and no error, and leaves the gateway for an authorization server alone.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A verified access token, as its client sent it.
pub struct AccessToken {
    text: Box<str>,
    digest: [u8; 32],
    expires_at: u64,
}

impl AccessToken {
    /// A token with its SHA-256, which ends at this time, in seconds since 1970.
    #[must_use]
    pub fn new(text: &str, digest: [u8; 32], expires_at: u64) -> Self {
        Self {
            text: text.into(),
            digest,
            expires_at,
        }
    }

    /// The token itself.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its SHA-256.
    #[must_use]
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// How long it is still valid; none if it has expired.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        let expires_at = UNIX_EPOCH.checked_add(Duration::from_secs(self.expires_at));
        // A time that the clock cannot express counts as never.
        let remaining =
            expires_at.map_or(Ok(Duration::MAX), |at| at.duration_since(SystemTime::now()));
        remaining.ok().filter(|remaining| !remaining.is_zero())
    }
}

impl PartialEq for AccessToken {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for AccessToken {}

impl fmt::Debug for AccessToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("AccessToken")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_ends_and_is_not_shown() {
        assert_eq!(AccessToken::new("abc", [1; 32], 1).remaining(), None);
        let token = AccessToken::new("abc", [1; 32], u64::MAX);
        assert!(token.remaining() > Some(Duration::from_secs(60)));
        assert_eq!(format!("{token:?}"), "AccessToken");
    }
}
