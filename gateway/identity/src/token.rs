//! The content of a verified token: a JSON Web Token (RFC 7519) as an access token (RFC 9068).
//!
//! Invariant: no claim is looked at before the signature is verified, and no part of a token is in an error.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mooring_settings::{SigningAlgorithm, TokenSettings};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::identity::Identity;
use crate::key::{Key, Thumbprint};
use crate::value::{self, InvalidItems};

/// The SHA-256 of a token.
pub(crate) type TokenDigest = [u8; 32];

/// Longest token, in bytes.
pub(crate) const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// Most teams, roles or scopes of a token.
const ITEMS_MAX: usize = 256;
/// Most keys that are tried for one token, which fit its algorithm and its key id. A set has more than a few only where
/// tokens name their key.
const KEYS_TRIED_MAX: usize = 8;
/// Types of tokens that can be access tokens; one without a type can be one, too.
const TYPES: [&str; 3] = ["jwt", "at+jwt", "application/at+jwt"];

/// Why a token is refused.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr, strum::VariantNames,
)]
#[strum(serialize_all = "snake_case", prefix = "token_")]
pub enum TokenError {
    /// It is longer than any that is read.
    #[error("the token is longer than {TOKEN_BYTES_MAX} bytes")]
    TooLong,
    /// It is not a signed JWT.
    #[error("the token is not a signed JWT")]
    Malformed,
    /// Its algorithm is not allowed.
    #[error("the token's algorithm is not allowed")]
    AlgorithmRefused,
    /// It has an extension that has to be understood.
    #[error("the token has a critical extension")]
    CriticalExtension,
    /// It says that it is for another purpose.
    #[error("the token is not an access token")]
    WrongType,
    /// No key of the issuer has its name.
    #[error("the token is signed with an unknown key")]
    UnknownKey,
    /// The signature is not that of the key.
    #[error("the token's signature is wrong")]
    WrongSignature,
    /// It is from another issuer.
    #[error("the token is from another issuer")]
    WrongIssuer,
    /// It is for another service.
    #[error("the token is for another audience")]
    WrongAudience,
    /// It does not say until when it is valid.
    #[error("the token has no valid expiry time")]
    NoExpiry,
    /// It is not valid any more.
    #[error("the token has expired")]
    Expired,
    /// It is not valid yet.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// It is bound to a key, which a bearer does not show, or in a way that is not known.
    #[error("the token is bound to a key, which the request does not prove")]
    KeyBound,
    /// It is not bound to a key, and has to be.
    #[error("the token is not bound to a key by cnf.jkt")]
    NotBound,
    /// It names no user, or none that can be one.
    #[error("the token names no valid user")]
    InvalidUser,
    /// Its teams, roles or scopes are no texts, or too many.
    #[error("the token's teams, roles or scopes are not valid")]
    InvalidClaims,
}

/// A verified token.
#[derive(Debug)]
pub(crate) struct VerifiedToken {
    /// Whose it is.
    pub(crate) identity: Arc<Identity>,
    /// When it stops being accepted, with the leeway, in seconds since 1970.
    pub(crate) accepted_until: u64,
    /// The key that its sender has to have (RFC 9449, 6.1); none for a bearer token.
    pub(crate) key: Option<Thumbprint>,
    /// The sign-in that an ID token is from (OpenID Connect Core 1.0, 2).
    pub(crate) nonce: Option<Box<str>>,
}

/// A signed JWT in its compact form (RFC 7515, 7.1), decoded and not verified.
pub(crate) struct SignedParts<'a> {
    /// The signed part.
    pub(crate) signed: &'a str,
    pub(crate) header: Vec<u8>,
    pub(crate) claims: Vec<u8>,
    pub(crate) signature: Vec<u8>,
}

impl<'a> SignedParts<'a> {
    pub(crate) fn split(token: &'a str) -> Option<Self> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        if claims.contains('.') {
            return None;
        }
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        Some(Self {
            signed,
            header: decode(header)?,
            claims: decode(claims)?,
            signature: decode(signature)?,
        })
    }
}

/// The header (RFC 7515, 4.1). Keys and addresses of keys in it are ignored.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<Value>,
}

/// Verifies a token at this time, in seconds since 1970.
///
/// # Errors
/// See [`TokenError`].
pub(crate) fn verify(
    token: &str,
    keys: &[Key],
    settings: &TokenSettings,
    now: u64,
) -> Result<VerifiedToken, TokenError> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(TokenError::TooLong);
    }
    let parts = SignedParts::split(token).ok_or(TokenError::Malformed)?;
    let header: Header =
        serde_json::from_slice(&parts.header).map_err(|_| TokenError::Malformed)?;
    let algorithm = header.check(&settings.algorithms)?;

    let id = header.kid.as_deref();
    let candidates = keys
        .iter()
        .filter(|key| key.may_be(id) && key.is_for(algorithm));
    let mut candidates = candidates.take(KEYS_TRIED_MAX);
    if !candidates.any(|key| key.verifies(algorithm, parts.signed.as_bytes(), &parts.signature)) {
        // Without a key of that name, or without a name, one that is not known yet may have signed it.
        let is_known = id.is_some() && keys.iter().any(|key| key.id() == id);
        return Err(match is_known {
            true => TokenError::WrongSignature,
            false => TokenError::UnknownKey,
        });
    }
    let claims: Map<String, Value> =
        serde_json::from_slice(&parts.claims).map_err(|_| TokenError::Malformed)?;
    check_claims(&claims, settings, now)
}

impl Header {
    fn check(&self, allowed: &[SigningAlgorithm]) -> Result<SigningAlgorithm, TokenError> {
        let algorithm = self.alg.parse().map_err(|_| TokenError::AlgorithmRefused)?;
        if !allowed.contains(&algorithm) {
            return Err(TokenError::AlgorithmRefused);
        }
        if self.crit.is_some() {
            return Err(TokenError::CriticalExtension);
        }
        let is_access_token =
            |typ: &String| TYPES.iter().any(|known| typ.eq_ignore_ascii_case(known));
        match self.typ.as_ref().is_none_or(is_access_token) {
            true => Ok(algorithm),
            false => Err(TokenError::WrongType),
        }
    }
}

fn check_claims(
    claims: &Map<String, Value>,
    settings: &TokenSettings,
    now: u64,
) -> Result<VerifiedToken, TokenError> {
    if claims.get("iss").and_then(Value::as_str) != Some(&*settings.issuer) {
        return Err(TokenError::WrongIssuer);
    }
    let is_for_us = |audience: &Value| {
        let audience = audience.as_str();
        audience.is_some_and(|audience| settings.audiences.iter().any(|own| own == audience))
    };
    let is_for_us = match claims.get("aud") {
        Some(Value::Array(audiences)) => audiences.iter().any(is_for_us),
        Some(audience) => is_for_us(audience),
        None => false,
    };
    if !is_for_us {
        return Err(TokenError::WrongAudience);
    }
    let leeway = settings.leeway.as_secs();
    let expires_at = claims
        .get("exp")
        .and_then(seconds)
        .ok_or(TokenError::NoExpiry)?;
    let accepted_until = expires_at.saturating_add(leeway);
    if accepted_until <= now {
        return Err(TokenError::Expired);
    }
    if let Some(valid_from) = claims.get("nbf") {
        let valid_from = seconds(valid_from).ok_or(TokenError::NotYetValid)?;
        if valid_from > now.saturating_add(leeway) {
            return Err(TokenError::NotYetValid);
        }
    }
    let key = claims.get("cnf").map(bound_key).transpose()?;
    let user = claim(claims, &settings.user_claim).and_then(Value::as_str);
    let identity = Identity {
        principal: user
            .and_then(value::principal)
            .ok_or(TokenError::InvalidUser)?,
        teams: items(claim(claims, &settings.teams_claim), &[])?.into(),
        roles: items(claim(claims, &settings.roles_claim), &[])?,
        scopes: scopes(claims)?,
        token: None,
    };
    Ok(VerifiedToken {
        identity: Arc::new(identity),
        accepted_until,
        key,
        nonce: claims.get("nonce").and_then(Value::as_str).map(Box::from),
    })
}

/// The key of a `cnf` claim (RFC 7800) that names it by its thumbprint, and in no other way.
fn bound_key(confirmation: &Value) -> Result<Thumbprint, TokenError> {
    let members = confirmation
        .as_object()
        .filter(|members| members.len() == 1);
    let thumbprint = members.and_then(|members| members.get("jkt")?.as_str());
    thumbprint
        .map(Thumbprint::named)
        .ok_or(TokenError::KeyBound)
}

/// A time in seconds since 1970, which may have a fraction (RFC 7519, 2).
fn seconds(value: &Value) -> Option<u64> {
    let fraction = || Duration::try_from_secs_f64(value.as_f64()?).ok();
    value.as_u64().or_else(|| Some(fraction()?.as_secs()))
}

/// The claim of this name; if there is none, the one to which dots lead.
fn claim<'a>(claims: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let nested = || {
        let (first, rest) = path.split_once('.')?;
        rest.split('.')
            .try_fold(claims.get(first)?, |value, name| value.get(name))
    };
    claims.get(path).or_else(nested)
}

/// `scope`, separated by spaces (RFC 8693, 4.2), and `scp`, which some issuers have instead.
fn scopes(claims: &Map<String, Value>) -> Result<Vec<String>, TokenError> {
    let mut scopes = items(claims.get("scope"), &[' '])?;
    for scope in items(claims.get("scp"), &[' '])? {
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    Ok(scopes)
}

/// The items of a claim that is a list of texts, or one text; an absent claim has none.
fn items(claim: Option<&Value>, separators: &[char]) -> Result<Vec<String>, TokenError> {
    let collected = match claim {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(text)) => value::distinct_items(text.split(separators), ITEMS_MAX),
        Some(Value::Array(list)) => {
            let texts: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
            value::distinct_items(texts.ok_or(TokenError::InvalidClaims)?, ITEMS_MAX)
        }
        Some(_) => return Err(TokenError::InvalidClaims),
    };
    collected.map_err(|InvalidItems { .. }| TokenError::InvalidClaims)
}

/// The time in seconds since 1970, as tokens and proofs have it.
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
