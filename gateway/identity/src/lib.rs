//! Identifies the caller of a request: a complete, valid identity or a typed refusal.
//!
//! Invariant: no value of a header appears in a message.

mod api_key;
mod authentication;
mod authenticator;
mod bearer;
mod certificate;
mod credential;
mod dpop;
mod error;
mod fetch;
mod identity;
mod key;
mod key_source;
mod metrics;
mod openid;
#[cfg(test)]
mod tests;
mod token;
mod trusted_header;
mod value;

pub use self::api_key::{ApiKeyFile, ApiKeyFileError, NewApiKey, StoredApiKey};
pub use self::authentication::Authentication;
pub use self::authenticator::{Authenticator, proof_algorithms};
pub use self::certificate::{CertificateError, Peer};
pub use self::credential::VerifiedCredential;
pub use self::dpop::{BoundToken, ProofError, UsedProof};
pub use self::error::{ApiKeyError, IdentityError, IdentityHeader};
pub use self::fetch::FetchError;
pub use self::identity::Identity;
pub use self::key::KeySetError;
pub use self::key_source::{KeysError, KeysState};
pub use self::metrics::describe_metrics;
pub use self::openid::{OpenIdClient, OpenIdError, SignInFlow};
pub use self::token::{TokenError, now};
