//! Proof that a caller has the key that its token is bound to: DPoP (RFC 9449).
//!
//! Invariant: a proof is for one key, token, method and URL, and is accepted until a minute and the leeway after it was
//! made: two minutes by default. That it is used once is left to who calls this, because other gateways may have seen it:
//! [`UsedProof`] says what to remember.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderName, Method};
use mooring_secrets::digest;
use mooring_settings::SigningAlgorithm;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::Value;
use strum::VariantArray as _;
use url::Url;

use crate::identity::Identity;
use crate::key::{Key, Thumbprint};
use crate::token::{SignedParts, TokenDigest};

/// The header with the proof.
const HEADER: HeaderName = HeaderName::from_static("dpop");
/// Longest proof, in bytes. One with an RSA key of 8,192 bits has about 4,000.
const PROOF_BYTES_MAX: usize = 8 * 1024;
/// Longest `jti`, in bytes.
const ID_BYTES_MAX: usize = 256;
/// How old a proof may be, in seconds, besides what the clocks may differ.
const AGE_MAX_SECONDS: u64 = 60;
/// The type of a proof.
const TYPE: &str = "dpop+jwt";

/// Why a proof is refused.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr, strum::VariantNames,
)]
#[strum(serialize_all = "snake_case", prefix = "proof_")]
pub enum ProofError {
    /// There is none.
    #[error("the request has no DPoP header")]
    Missing,
    /// There are several.
    #[error("the request has more than one DPoP header")]
    Several,
    /// It is longer than any that is read.
    #[error("the proof is longer than {PROOF_BYTES_MAX} bytes")]
    TooLong,
    /// It is no signed JWT of type `dpop+jwt` with the claims of a proof.
    #[error("the proof is not a signed JWT of type dpop+jwt with jti, htm, htu, iat and ath")]
    Malformed,
    /// Its algorithm is symmetric, `none`, or unknown.
    #[error("the proof's algorithm is not allowed")]
    AlgorithmRefused,
    /// It has an extension that has to be understood.
    #[error("the proof has a critical extension")]
    CriticalExtension,
    /// It has no public key for its algorithm, or a private one.
    #[error("the proof has no public key for its algorithm")]
    InvalidKey,
    /// The signature is not that of its key.
    #[error("the proof's signature is wrong")]
    WrongSignature,
    /// Its key is not the one that the token is bound to.
    #[error("the proof is signed with another key than the token's")]
    WrongKey,
    /// It is for another token.
    #[error("the proof is for another token")]
    WrongToken,
    /// It is for another method.
    #[error("the proof is for another method")]
    WrongMethod,
    /// It is for another URL.
    #[error("the proof is for another URL")]
    WrongUrl,
    /// It was made too long ago, or in the future.
    #[error("the proof was not made just now")]
    WrongTime,
    /// It was used before.
    #[error("the proof was used before")]
    Replayed,
}

/// The signature algorithms that proofs may have: those whose verifiers cannot sign.
pub(crate) fn algorithms() -> impl Iterator<Item = &'static str> {
    let all = SigningAlgorithm::VARIANTS.iter().copied();
    all.filter(|algorithm| !algorithm.is_symmetric())
        .map(Into::into)
}

/// A verified token whose sender still has to prove that it has the token's key.
#[derive(Debug)]
pub struct BoundToken {
    pub(crate) identity: Arc<Identity>,
    pub(crate) key: Thumbprint,
    pub(crate) token: TokenDigest,
    /// How far clocks may be apart.
    pub(crate) leeway: Duration,
}

/// A proof that was accepted, and must not be accepted again.
#[derive(Debug, PartialEq, Eq)]
pub struct UsedProof {
    /// Names the proof among all others.
    pub name: String,
    /// How long it has to be remembered: afterwards it is refused for its age.
    pub remembered: Duration,
}

/// The header of a proof (RFC 9449, 4.2).
#[derive(Deserialize)]
struct ProofHeader {
    typ: String,
    alg: String,
    jwk: Value,
    crit: Option<Value>,
}

/// The claims of a proof.
#[derive(Deserialize)]
struct ProofClaims {
    jti: String,
    htm: String,
    htu: String,
    iat: f64,
    ath: String,
}

impl BoundToken {
    /// Checks the proof in the headers of a request with this method at this URL, at this time in seconds since 1970 (RFC
    /// 9449, 4.3).
    ///
    /// # Errors
    /// See [`ProofError`].
    pub fn prove(
        self,
        headers: &HeaderMap,
        method: &Method,
        url: &str,
        now: u64,
    ) -> Result<(Arc<Identity>, UsedProof), ProofError> {
        let mut values = headers.get_all(HEADER).iter();
        let value = values.next().ok_or(ProofError::Missing)?;
        if values.next().is_some() {
            return Err(ProofError::Several);
        }
        let proof = value.to_str().map_err(|_| ProofError::Malformed)?;
        let (key, claims) = verify(proof)?;
        if key != self.key {
            return Err(ProofError::WrongKey);
        }
        if claims.ath != URL_SAFE_NO_PAD.encode(self.token) {
            return Err(ProofError::WrongToken);
        }
        if claims.htm != method.as_str() {
            return Err(ProofError::WrongMethod);
        }
        if !is_same_target(&claims.htu, url) {
            return Err(ProofError::WrongUrl);
        }
        let leeway = self.leeway.as_secs();
        let made_at = Duration::try_from_secs_f64(claims.iat).map_err(|_| ProofError::WrongTime)?;
        let made_at = made_at.as_secs();
        let oldest = now.saturating_sub(AGE_MAX_SECONDS + leeway);
        if made_at < oldest || made_at > now.saturating_add(leeway) {
            return Err(ProofError::WrongTime);
        }
        let name = format!("{} {}", key.as_str(), claims.jti);
        let proof = UsedProof {
            name: digest::hex(name.as_bytes()),
            remembered: Duration::from_secs(AGE_MAX_SECONDS + 2 * leeway + 1),
        };
        Ok((self.identity, proof))
    }
}

/// The key of a proof that is signed with it, and its claims.
fn verify(proof: &str) -> Result<(Thumbprint, ProofClaims), ProofError> {
    if proof.len() > PROOF_BYTES_MAX {
        return Err(ProofError::TooLong);
    }
    let parts = SignedParts::split(proof).ok_or(ProofError::Malformed)?;
    let header: ProofHeader =
        serde_json::from_slice(&parts.header).map_err(|_| ProofError::Malformed)?;
    if !header.typ.eq_ignore_ascii_case(TYPE) {
        return Err(ProofError::Malformed);
    }
    if header.crit.is_some() {
        return Err(ProofError::CriticalExtension);
    }
    let algorithm: SigningAlgorithm =
        (header.alg.parse()).map_err(|_| ProofError::AlgorithmRefused)?;
    if algorithm.is_symmetric() {
        return Err(ProofError::AlgorithmRefused);
    }
    let (key, thumbprint) = Key::public(header.jwk).ok_or(ProofError::InvalidKey)?;
    if !key.is_for(algorithm) {
        return Err(ProofError::InvalidKey);
    }
    if !key.verifies(algorithm, parts.signed.as_bytes(), &parts.signature) {
        return Err(ProofError::WrongSignature);
    }
    let claims: ProofClaims =
        serde_json::from_slice(&parts.claims).map_err(|_| ProofError::Malformed)?;
    match claims.jti.len() {
        1..=ID_BYTES_MAX => Ok((thumbprint, claims)),
        _ => Err(ProofError::Malformed),
    }
}

/// Whether both name the same resource, without query and fragment, once they are normalized (RFC 3986, 6.2.2 and
/// 6.2.3). Percent-escapes within a segment of the path equal the characters that they encode: the router decodes them.
fn is_same_target(htu: &str, url: &str) -> bool {
    let target = |text| {
        let mut url = Url::parse(text).ok()?;
        let segments: Vec<Vec<u8>> = (url.path_segments()?)
            .map(|segment| percent_decode_str(segment).collect())
            .collect();
        url.set_query(None);
        url.set_fragment(None);
        url.set_path("");
        Some((url, segments))
    };
    target(htu).is_some_and(|htu| Some(htu) == target(url))
}

#[cfg(test)]
mod tests {
    use super::is_same_target;

    #[test]
    fn one_place_can_be_written_in_many_ways() {
        const URL: &str = "https://gateway.example/servers/a~b/mcp";
        for htu in [
            URL,
            "HTTPS://Gateway.Example:443/servers/a~b/mcp",
            "https://gateway.example/servers/a%7Eb/mcp?query#fragment",
            "https://gateway.example/servers/%61%7eb/mcp",
            "https://gateway.example/x/../servers/a~b/mcp",
        ] {
            assert!(is_same_target(htu, URL), "{htu}");
        }
        for htu in [
            "http://gateway.example/servers/a~b/mcp",
            "https://gateway.example:8443/servers/a~b/mcp",
            "https://gateway.example.evil.example/servers/a~b/mcp",
            "https://user@gateway.example/servers/a~b/mcp",
            "https://gateway.example/servers/a~b/mcp/",
            "https://gateway.example/servers%2Fa~b/mcp",
            "https://gateway.example/servers/a%257Eb/mcp",
            "https://gateway.example/servers/A~b/mcp",
            "/servers/a~b/mcp",
            "mailto:gateway.example",
            "",
        ] {
            assert!(!is_same_target(htu, URL), "{htu}");
        }
        let same = "https://[0:0::1]/mcp";
        assert!(is_same_target(same, "https://[::1]:443/mcp"));
    }
}
