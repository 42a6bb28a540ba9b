//! The header by which a credential is sent.

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};

/// A header with a credential. Its value is marked as sensitive by what makes it.
#[derive(Clone, Debug)]
pub(crate) struct CredentialHeader {
    pub(crate) name: HeaderName,
    pub(crate) value: HeaderValue,
    /// Of a user's secret.
    pub(crate) version: Option<u128>,
}

impl CredentialHeader {
    /// A token's.
    pub(crate) fn authorization(value: HeaderValue) -> Self {
        Self {
            name: AUTHORIZATION,
            value,
            version: None,
        }
    }
}
