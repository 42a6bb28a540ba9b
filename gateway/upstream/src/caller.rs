//! The caller for whom a request to an upstream server is made, and how the server learns it.

use std::fmt;
use std::sync::Arc;

use http::HeaderValue;
use mooring_secrets::access_token::AccessToken;
use mooring_session::names::{Principal, ServerName};
use mooring_usage::MemoryShare;

/// The caller for whom a request is made.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The owner of the session, or the gateway itself.
    pub principal: &'a Principal,
    /// The teams of the caller; empty for requests that the gateway makes by itself.
    pub teams: &'a [String],
    /// The digest of the session's id; none for a request of no session.
    pub session_digest: Option<&'a str>,
    /// The token with which the caller was authenticated; none where no server gets one in exchange for it.
    pub token: Option<&'a Arc<AccessToken>>,
    /// The memory share that buffered replies are charged to; none for requests that the gateway makes by itself.
    pub memory: Option<&'a Arc<MemoryShare>>,
}

impl<'a> Caller<'a> {
    /// A caller of whom only the principal is known.
    #[must_use]
    pub const fn of(principal: &'a Principal) -> Self {
        Self {
            principal,
            teams: &[],
            session_digest: None,
            token: None,
            memory: None,
        }
    }
}

/// Makes the credential by which a server learns whom a request is for.
pub trait CallerCredentials: fmt::Debug + Send + Sync {
    /// The value of the request's Authorization header; none if it cannot be made.
    fn authorization(&self, server: &ServerName, caller: &Caller<'_>) -> Option<HeaderValue>;
}
