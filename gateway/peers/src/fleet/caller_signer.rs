//! Signed tokens that tell an upstream server whom a request is for (RFC 7519), and the keys to verify them (RFC 7517).
//!
//! The keys are derived from the fleet's, so every gateway signs with the same one, and servers keep trusting tokens
//! while the fleet's keys are rotated. Invariant: a token is for one server and one caller, and ends within minutes.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use http::HeaderValue;
use mooring_session::names::ServerName;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde::Serialize;

use super::keys::KeyRing;
use super::mac::Purpose;
use mooring_secrets::digest;
use mooring_upstream::{Caller, CallerCredentials};
use mooring_usage::BoundedCache;

/// The issuer of every token.
const ISSUER: &str = "mooring";
/// How long a token is valid.
const VALID: Duration = Duration::from_secs(300);
/// How long a token is reused, so that it is still valid for a while when it arrives.
const SENT_AGAIN: Duration = Duration::from_secs(200);
/// Maximum cached tokens.
const TOKENS_MAX: usize = 10_000;

/// A derived key is no key for signatures. Cannot happen: every 32 bytes are one.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a key for the tokens of callers from a fleet key")]
pub struct CallerKeyError;

/// Signs tokens with the fleet's current key.
pub struct CallerSigner {
    key: Ed25519KeyPair,
    /// The encoded header of every token.
    header: String,
    keys_json: String,
    tokens: Mutex<BoundedCache<Box<str>, SignedToken>>,
}

#[derive(Clone)]
struct SignedToken {
    authorization: HeaderValue,
    made_at: SystemTime,
}

/// The claims of a token.
#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    aud: &'a str,
    sub: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    teams: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    sid: Option<&'a str>,
    iat: u64,
    exp: u64,
}

impl CallerSigner {
    /// Signs with the first key of the ring.
    ///
    /// # Errors
    /// Never in practice.
    pub fn new(ring: &KeyRing) -> Result<Self, CallerKeyError> {
        let keys: Result<Vec<_>, _> = ring
            .derive(Purpose::CallerToken)
            .map(|seed| Ed25519KeyPair::from_seed_unchecked(&seed))
            .collect();
        let keys = keys.map_err(|_| CallerKeyError)?;
        let public: Vec<_> = keys.iter().map(public_key).collect();
        let key = keys.into_iter().next().ok_or(CallerKeyError)?;
        let header = serde_json::json!({"alg": "EdDSA", "typ": "JWT", "kid": key_id(&key)});
        Ok(Self {
            header: BASE64.encode(header.to_string()),
            keys_json: serde_json::json!({ "keys": public }).to_string(),
            key,
            tokens: Mutex::new(BoundedCache::new(TOKENS_MAX)),
        })
    }

    /// The public keys of the ring, as a JSON Web Key Set.
    #[must_use]
    pub fn keys_json(&self) -> &str {
        &self.keys_json
    }

    fn sign(
        &self,
        server: &ServerName,
        caller: &Caller<'_>,
        now: SystemTime,
    ) -> Option<HeaderValue> {
        let issued = now.duration_since(UNIX_EPOCH).ok()?.as_secs();
        let claims = serde_json::to_vec(&Claims {
            iss: ISSUER,
            aud: server.as_str(),
            sub: caller.principal.as_str(),
            teams: caller.teams,
            sid: caller.session_digest,
            iat: issued,
            exp: issued + VALID.as_secs(),
        });
        let signed = format!("{}.{}", self.header, BASE64.encode(claims.ok()?));
        let signature = BASE64.encode(self.key.sign(signed.as_bytes()));
        let mut value = HeaderValue::from_str(&format!("Bearer {signed}.{signature}")).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl CallerCredentials for CallerSigner {
    fn authorization(&self, server: &ServerName, caller: &Caller<'_>) -> Option<HeaderValue> {
        // No name has a control character in it.
        let (principal, teams) = (caller.principal.as_str(), caller.teams.join("\0"));
        let digest = caller.session_digest.unwrap_or_default();
        let name = format!("{}\0{digest}\0{principal}\0{teams}", server.as_str());
        let now = SystemTime::now();
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = tokens.get(name.as_str());
        let is_fresh = |token: &&SignedToken| {
            // If the clock was set back, a new token is made.
            now.duration_since(token.made_at)
                .is_ok_and(|age| age < SENT_AGAIN)
        };
        if let Some(token) = kept.filter(is_fresh) {
            return Some(token.authorization.clone());
        }
        let authorization = self.sign(server, caller, now)?;
        let token = SignedToken {
            authorization: authorization.clone(),
            made_at: now,
        };
        tokens.insert(name.into(), token);
        Some(authorization)
    }
}

impl fmt::Debug for CallerSigner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CallerSigner")
    }
}

/// The public half of a key (RFC 8037).
fn public_key(key: &Ed25519KeyPair) -> serde_json::Value {
    serde_json::json!({
        "kty": "OKP",
        "crv": "Ed25519",
        "alg": "EdDSA",
        "use": "sig",
        "kid": key_id(key),
        "x": BASE64.encode(key.public_key()),
    })
}

fn key_id(key: &Ed25519KeyPair) -> String {
    let mut id = digest::hex(key.public_key().as_ref());
    id.truncate(16);
    id
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "tests fail by panicking"
    )]

    use mooring_session::names::Principal;
    use ring::signature::{ED25519, UnparsedPublicKey};
    use serde_json::Value;

    use super::*;

    fn claims(value: &HeaderValue, keys: &str) -> Value {
        let token = value.to_str().unwrap().strip_prefix("Bearer ").unwrap();
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let (header, claims) = signed.split_once('.').unwrap();
        let header: Value = serde_json::from_slice(&BASE64.decode(header).unwrap()).unwrap();
        let keys: Value = serde_json::from_str(keys).unwrap();
        let keys = keys["keys"].as_array().unwrap();
        let key = keys.iter().find(|key| key["kid"] == header["kid"]).unwrap();
        let x = BASE64.decode(key["x"].as_str().unwrap()).unwrap();
        UnparsedPublicKey::new(&ED25519, x)
            .verify(signed.as_bytes(), &BASE64.decode(signature).unwrap())
            .unwrap();
        serde_json::from_slice(&BASE64.decode(claims).unwrap()).unwrap()
    }

    #[test]
    fn a_token_names_its_caller_for_one_server_and_verifies_while_keys_are_rotated() {
        let (old, new) = ([1_u8; 32], [2_u8; 32]);
        let before = CallerSigner::new(&KeyRing::of(&[&old])).unwrap();
        let after = CallerSigner::new(&KeyRing::of(&[&new, &old])).unwrap();
        let ada = Principal::parse(b"ada").unwrap();
        let teams = ["red".to_owned()];
        let caller = Caller {
            teams: &teams,
            session_digest: Some("abc"),
            ..Caller::of(&ada)
        };
        let server = |name: &[u8]| ServerName::parse(name).unwrap();
        let first = before.authorization(&server(b"tools"), &caller).unwrap();
        let read = claims(&first, after.keys_json());
        for (name, expected) in [
            ("iss", "mooring"),
            ("aud", "tools"),
            ("sub", "ada"),
            ("sid", "abc"),
        ] {
            assert_eq!(read[name], expected, "{name}");
        }
        assert_eq!(read["teams"][0], "red");
        assert_eq!(
            read["exp"].as_u64().unwrap() - read["iat"].as_u64().unwrap(),
            300
        );
        assert!(first.is_sensitive());

        assert_eq!(
            before.authorization(&server(b"tools"), &caller).unwrap(),
            first,
            "sent again"
        );
        let others = [
            before.authorization(&server(b"other"), &caller),
            before.authorization(&server(b"tools"), &Caller::of(&ada)),
            after.authorization(&server(b"tools"), &caller),
        ];
        assert!(others.iter().all(|other| other.as_ref().unwrap() != first));
    }
}
