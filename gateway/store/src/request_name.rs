//! The names under which gateways publish client requests to each other.
//!
//! Invariant: the name of a request cannot be computed without the session's id.

use std::time::Duration;

use mooring_secrets::digest;
use mooring_session::names::ServerName;

use super::key::SessionKey;

/// How long a request that was not published again is kept.
pub const REQUEST_KEPT: Duration = Duration::from_secs(60);
/// Domain separation of these digests from all others over the same secrets.
const DOMAIN: &str = "mooring request name";

/// The name of a client's request: a digest that only who knows the session can compute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestName(String);

impl RequestName {
    /// The name of a request by the id that its client wrote.
    #[must_use]
    pub fn new(key: &SessionKey, server: &ServerName, request_id_json: &str) -> Self {
        // The separator occurs in no part: keys and names are visible ASCII, and JSON text escapes it.
        let parts = [DOMAIN, key.secret(), server.as_str(), request_id_json];
        Self(digest::hex(parts.join("\0").as_bytes()))
    }

    /// The digest.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
