//! The keys of an issuer: a JSON Web Key Set (RFC 7517).
//!
//! Invariant: a key verifies only what its type, its `alg` and its `use` allow, whatever a token says; a symmetric key
//! comes from a file only.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mooring_settings::SigningAlgorithm;
use ring::hmac;
use ring::signature::{
    self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The members of private and symmetric keys (RFC 7518, 6).
const PRIVATE_MEMBERS: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];
/// Most keys of a set.
const KEYS_MAX: usize = 100;

/// Where a key set was read: who can read it there could also sign with its symmetric keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOrigin {
    /// A file of the gateway.
    File,
    /// An address that others can read as well.
    Network,
}

/// Why a document is no usable key set.
#[derive(Debug, thiserror::Error)]
pub enum KeySetError {
    /// It is not the JSON of a key set.
    #[error("it is no JSON Web Key Set")]
    NotAKeySet,
    /// It has more keys than are read.
    #[error("it has more than {KEYS_MAX} keys")]
    TooMany,
    /// None of its keys can verify a token.
    #[error("it has no key that can verify a token")]
    NoUsableKey,
}

/// The SHA-256 thumbprint of a key (RFC 7638), in base64url.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Thumbprint(Box<str>);

impl Thumbprint {
    /// One that a token names.
    pub(crate) fn named(text: &str) -> Self {
        Self(text.into())
    }

    /// Its text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Of the public key with these members.
    fn of(key: &Value) -> Option<Self> {
        let member = |name| key.get(name)?.as_str();
        let kty = member("kty")?;
        // In the order of their names (RFC 7638, 3.2; RFC 8037, 2).
        let names: &[&str] = match kty {
            "RSA" => &["e", "kty", "n"],
            "EC" => &["crv", "kty", "x", "y"],
            "OKP" => &["crv", "kty", "x"],
            _ => return None,
        };
        let members: Option<Vec<String>> = names
            .iter()
            .map(|name| Some(format!("{:?}:{}", name, Value::from(member(name)?))))
            .collect();
        let text = format!("{{{}}}", members?.join(","));
        Some(Self(URL_SAFE_NO_PAD.encode(Sha256::digest(text)).into()))
    }
}

/// One key.
#[derive(PartialEq, Eq)]
pub(crate) struct Key {
    id: Option<Box<str>>,
    /// The only algorithm that it is for, if it says so.
    algorithm: Option<SigningAlgorithm>,
    material: Material,
}

#[derive(PartialEq, Eq)]
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
    Secret(Vec<u8>),
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Key").finish_non_exhaustive()
    }
}

/// The members of a JSON Web Key that matter here (RFC 7517, 4; RFC 7518, 6; RFC 8037, 2).
#[derive(Deserialize)]
struct WrittenKey {
    kty: String,
    kid: Option<Box<str>>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
    k: Option<String>,
}

/// The keys of a set that can verify, at least one. Others are ignored, as RFC 7517, section 5, requires.
///
/// # Errors
/// See [`KeySetError`].
pub(crate) fn parse_keys(document: &[u8], origin: KeyOrigin) -> Result<Vec<Key>, KeySetError> {
    #[derive(Deserialize)]
    struct WrittenSet {
        keys: Vec<Value>,
    }
    let set: WrittenSet = serde_json::from_slice(document).map_err(|_| KeySetError::NotAKeySet)?;
    if set.keys.len() > KEYS_MAX {
        return Err(KeySetError::TooMany);
    }
    let keys = set.keys.into_iter().filter_map(|key| {
        let key = serde_json::from_value(key).ok().and_then(Key::of)?;
        (origin == KeyOrigin::File || !key.is_symmetric()).then_some(key)
    });
    let keys: Vec<Key> = keys.collect();
    match keys.is_empty() {
        true => Err(KeySetError::NoUsableKey),
        false => Ok(keys),
    }
}

impl Key {
    fn of(written: WrittenKey) -> Option<Self> {
        if written.usage.is_some_and(|usage| usage != "sig") {
            return None;
        }
        let may_verify = |operations: Vec<String>| operations.iter().any(|one| one == "verify");
        if !written.key_ops.is_none_or(may_verify) {
            return None;
        }
        // One for an algorithm that is not known here verifies nothing here.
        let algorithm = match written.alg {
            None => None,
            Some(name) => Some(name.parse().ok()?),
        };
        let bytes = |member: Option<String>| URL_SAFE_NO_PAD.decode(member?).ok();
        let coordinate = |member, length| bytes(member).filter(|found| found.len() == length);
        let point = |length| {
            let (x, y) = (
                coordinate(written.x.clone(), length)?,
                coordinate(written.y.clone(), length)?,
            );
            // Uncompressed (SEC 1, 2.3.3).
            Some([&[4], &*x, &*y].concat())
        };
        let material = match (&*written.kty, written.crv.as_deref()) {
            ("RSA", _) => {
                let integer = |member| {
                    let bytes = bytes(member)?;
                    Some(bytes.into_iter().skip_while(|byte| *byte == 0).collect())
                };
                Material::Rsa {
                    n: integer(written.n)?,
                    e: integer(written.e)?,
                }
            }
            ("EC", Some("P-256")) => Material::P256(point(32)?),
            ("EC", Some("P-384")) => Material::P384(point(48)?),
            ("OKP", Some("Ed25519")) => Material::Ed25519(coordinate(written.x, 32)?),
            ("oct", _) => Material::Secret(bytes(written.k)?),
            _ => return None,
        };
        Some(Self {
            id: written.kid,
            algorithm,
            material,
        })
    }

    /// A public key and its thumbprint. None for a key with private members, which must never be sent.
    pub(crate) fn public(written: Value) -> Option<(Self, Thumbprint)> {
        let is_private = |name: &&str| written.get(name).is_some();
        if PRIVATE_MEMBERS.iter().any(is_private) {
            return None;
        }
        let thumbprint = Thumbprint::of(&written)?;
        let key = serde_json::from_value(written).ok().and_then(Self::of)?;
        Some((key, thumbprint))
    }

    /// Whether who can verify with it can also sign.
    pub(crate) const fn is_symmetric(&self) -> bool {
        matches!(self.material, Material::Secret(_))
    }

    /// Its name.
    pub(crate) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Whether it may be the key that a token names, if it names one.
    pub(crate) fn may_be(&self, id: Option<&str>) -> bool {
        id.is_none() || self.id.is_none() || self.id() == id
    }

    /// Whether this algorithm is one of those that it can verify.
    pub(crate) fn is_for(&self, algorithm: SigningAlgorithm) -> bool {
        use SigningAlgorithm as A;
        let is_of_its_type = match &self.material {
            Material::Rsa { .. } => matches!(
                algorithm,
                A::Rs256 | A::Rs384 | A::Rs512 | A::Ps256 | A::Ps384 | A::Ps512
            ),
            Material::P256(_) => algorithm == A::Es256,
            Material::P384(_) => algorithm == A::Es384,
            Material::Ed25519(_) => algorithm == A::EdDsa,
            Material::Secret(_) => matches!(algorithm, A::Hs256 | A::Hs384 | A::Hs512),
        };
        is_of_its_type && self.algorithm.is_none_or(|only| only == algorithm)
    }

    /// Whether this key signed the message with this algorithm. Never if the algorithm does not fit the key.
    pub(crate) fn verifies(
        &self,
        algorithm: SigningAlgorithm,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        use SigningAlgorithm as A;
        if !self.is_for(algorithm) {
            return false;
        }
        let by_rsa = |n: &[u8], e: &[u8], parameters: &RsaParameters| {
            RsaPublicKeyComponents { n, e }
                .verify(parameters, message, signature)
                .is_ok()
        };
        let by = |algorithm: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm, key)
                .verify(message, signature)
                .is_ok()
        };
        // RFC 7518, 3.2: a secret is at least as long as the hash.
        let by_secret = |algorithm: hmac::Algorithm, secret: &[u8]| {
            secret.len() >= algorithm.digest_algorithm().output_len()
                && hmac::verify(&hmac::Key::new(algorithm, secret), message, signature).is_ok()
        };
        match (&self.material, algorithm) {
            (Material::Rsa { n, e }, A::Rs256) => {
                by_rsa(n, e, &signature::RSA_PKCS1_2048_8192_SHA256)
            }
            (Material::Rsa { n, e }, A::Rs384) => {
                by_rsa(n, e, &signature::RSA_PKCS1_2048_8192_SHA384)
            }
            (Material::Rsa { n, e }, A::Rs512) => {
                by_rsa(n, e, &signature::RSA_PKCS1_2048_8192_SHA512)
            }
            (Material::Rsa { n, e }, A::Ps256) => {
                by_rsa(n, e, &signature::RSA_PSS_2048_8192_SHA256)
            }
            (Material::Rsa { n, e }, A::Ps384) => {
                by_rsa(n, e, &signature::RSA_PSS_2048_8192_SHA384)
            }
            (Material::Rsa { n, e }, A::Ps512) => {
                by_rsa(n, e, &signature::RSA_PSS_2048_8192_SHA512)
            }
            (Material::P256(point), A::Es256) => by(&signature::ECDSA_P256_SHA256_FIXED, point),
            (Material::P384(point), A::Es384) => by(&signature::ECDSA_P384_SHA384_FIXED, point),
            (Material::Ed25519(key), A::EdDsa) => by(&signature::ED25519, key),
            (Material::Secret(secret), A::Hs256) => by_secret(hmac::HMAC_SHA256, secret),
            (Material::Secret(secret), A::Hs384) => by_secret(hmac::HMAC_SHA384, secret),
            (Material::Secret(secret), A::Hs512) => by_secret(hmac::HMAC_SHA512, secret),
            _ => false,
        }
    }
}
