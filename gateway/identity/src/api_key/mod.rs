//! API keys: random secrets that a file has digests of, each with its user and until when it is valid.
//!
//! Invariant: a key's secret exists only where it was printed at its creation, and in requests.

mod authenticator;
mod file;
#[cfg(test)]
mod tests;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom, SystemRandom};
use sha2::{Digest as _, Sha256};

pub(crate) use self::authenticator::{ApiKeyAuthenticator, key_of};
pub use self::file::{ApiKeyFile, ApiKeyFileError, StoredApiKey};

/// The prefix of every key, so that secret scanners find it.
const PREFIX: &str = "mk_";
/// Random bytes of a key's id, which is no secret.
const ID_BYTES: usize = 6;
/// Random bytes of its secret. 2^256 values cannot be tried, so a fast digest is as safe as a slow one.
const SECRET_BYTES: usize = 32;
/// Longest key in a request; one that was made here is shorter.
const KEY_BYTES_MAX: usize = 128;

/// A key that is to be made.
#[derive(Debug, Clone)]
pub struct NewApiKey {
    /// Whose it is.
    pub user: String,
    /// The user's teams.
    pub teams: Vec<String>,
    /// The user's roles.
    pub roles: Vec<String>,
    /// The scopes that rules may ask for.
    pub scopes: Vec<String>,
    /// What the key is for, as its creator wrote it.
    pub note: Option<String>,
    /// How long it is valid.
    pub lifetime: Duration,
}

/// The parts of a key in a request.
struct WrittenKey<'a> {
    id: &'a str,
    digest: [u8; 32],
}

impl<'a> WrittenKey<'a> {
    fn read(text: &'a str) -> Option<Self> {
        if text.len() > KEY_BYTES_MAX {
            return None;
        }
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        Some(Self {
            id,
            digest: Sha256::digest(secret).into(),
        })
    }
}

/// A new key: its id, its secret, and both as the text of a request.
fn random_key() -> Option<(String, String, String)> {
    let (mut id, mut secret) = ([0; ID_BYTES], [0; SECRET_BYTES]);
    let random = SystemRandom::new();
    random
        .fill(&mut id)
        .and_then(|()| random.fill(&mut secret))
        .ok()?;
    let id = id.map(|byte| format!("{byte:02x}")).concat();
    let secret = URL_SAFE_NO_PAD.encode(secret);
    let text = format!("{PREFIX}{id}_{secret}");
    Some((id, secret, text))
}
