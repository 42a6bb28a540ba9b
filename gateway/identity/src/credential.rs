//! What a credential that a person pastes proves, and for how long: the page exchanges it for a cookie of its own.

use std::sync::Arc;

use crate::identity::Identity;

/// A credential that was verified.
#[derive(Clone, Debug)]
pub struct VerifiedCredential {
    /// Whose it is.
    pub identity: Arc<Identity>,
    /// When it stops being accepted, in seconds since 1970.
    pub accepted_until: u64,
    /// The id of the API key, by which it is found again; none of an access token.
    pub api_key: Option<Box<str>>,
}
