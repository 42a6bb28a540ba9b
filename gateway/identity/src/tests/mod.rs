//! Which tokens are accepted: each check with a token that fails it alone, and which keys verified it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod openid;
mod requests;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mooring_settings::{SigningAlgorithm, TokenSettings};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _,
};
use serde_json::{Value, json};
use strum::VariantArray as _;

use crate::key::{Key, KeyOrigin, parse_keys};
use crate::token::{TokenError, VerifiedToken, verify};

const ISSUER: &str = "https://issuer.example";
const AUDIENCE: &str = "https://gateway.example";
/// The time of every test, in seconds since 1970.
const NOW: u64 = 1_800_000_000;

/// Every algorithm, one issuer and one audience.
fn settings() -> TokenSettings {
    TokenSettings {
        issuer: ISSUER.to_owned(),
        audiences: vec!["other".to_owned(), AUDIENCE.to_owned()],
        jwks_file: None,
        jwks_url: None,
        keys_max_age: Duration::from_secs(3600),
        algorithms: SigningAlgorithm::VARIANTS.to_vec(),
        leeway: Duration::from_secs(60),
        dpop_required: false,
        user_claim: "sub".to_owned(),
        teams_claim: "groups".to_owned(),
        roles_claim: "realm_access.roles".to_owned(),
    }
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The claims of a valid token.
fn claims() -> Value {
    json!({"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": NOW + 300})
}

/// The same with this one claim.
fn with(name: &str, value: impl Into<Value>) -> Value {
    let mut claims = claims();
    claims[name] = value.into();
    claims
}

/// A pair that signs with Ed25519, and its public key named `key`.
struct Signer {
    pair: Ed25519KeyPair,
    public: Value,
}

impl Signer {
    fn new(id: &str) -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
        let x = encode(pair.public_key());
        let public = json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "x": x});
        Self { pair, public }
    }

    fn token(&self, claims: &Value) -> String {
        self.sign(&json!({"alg": "EdDSA", "kid": self.public["kid"]}), claims)
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        signed(header, claims, |message| {
            self.pair.sign(message).as_ref().to_vec()
        })
    }

    fn keys(&self) -> Vec<Key> {
        keys(&[&self.public])
    }
}

fn signed(header: &Value, claims: &Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let message = format!(
        "{}.{}",
        encode(header.to_string()),
        encode(claims.to_string())
    );
    let signature = sign(message.as_bytes());
    format!("{message}.{}", encode(signature))
}

fn keys(keys: &[&Value]) -> Vec<Key> {
    let document = json!({"keys": keys}).to_string();
    parse_keys(document.as_bytes(), KeyOrigin::File).unwrap()
}

fn user_of(verified: Result<VerifiedToken, TokenError>) -> Result<String, TokenError> {
    verified.map(|token| token.identity.principal.as_str().to_owned())
}

/// The outcome of a token with these claims.
fn outcome(claims: &Value) -> Result<String, TokenError> {
    let signer = Signer::new("key");
    user_of(verify(
        &signer.token(claims),
        &signer.keys(),
        &settings(),
        NOW,
    ))
}

#[test]
fn claims_are_checked() {
    let ada = || Ok("ada".to_owned());
    assert_eq!(outcome(&claims()), ada());
    assert_eq!(
        outcome(&with("iss", "https://issuer.example/")),
        Err(TokenError::WrongIssuer)
    );
    assert_eq!(
        outcome(&with("iss", Value::Null)),
        Err(TokenError::WrongIssuer)
    );
    assert_eq!(outcome(&with("aud", json!(["a", AUDIENCE]))), ada());
    assert_eq!(
        outcome(&with("aud", json!(["a", "https://gateway.example/"]))),
        Err(TokenError::WrongAudience)
    );
    assert_eq!(
        outcome(&with("aud", json!([]))),
        Err(TokenError::WrongAudience)
    );
    assert_eq!(
        outcome(&with("aud", Value::Null)),
        Err(TokenError::WrongAudience)
    );
    assert_eq!(outcome(&with("exp", NOW - 59)), ada());
    assert_eq!(outcome(&with("exp", NOW - 60)), Err(TokenError::Expired));
    assert_eq!(outcome(&with("exp", 1.5)), Err(TokenError::Expired));
    assert_eq!(outcome(&with("exp", "never")), Err(TokenError::NoExpiry));
    assert_eq!(outcome(&with("exp", -1)), Err(TokenError::NoExpiry));
    assert_eq!(outcome(&with("nbf", NOW + 60)), ada());
    assert_eq!(
        outcome(&with("nbf", NOW + 61)),
        Err(TokenError::NotYetValid)
    );
    assert_eq!(outcome(&with("nbf", "now")), Err(TokenError::NotYetValid));
    for other in [
        json!("x"),
        json!({}),
        json!({"jkt": 7}),
        json!({"x5t#S256": "x"}),
        json!({"jkt": "x", "x5t#S256": "y"}),
    ] {
        assert_eq!(outcome(&with("cnf", other)), Err(TokenError::KeyBound));
    }
    for user in [
        json!(""),
        json!("*"),
        json!(" ada"),
        json!("a\nb"),
        json!(7),
        json!("x".repeat(321)),
    ] {
        assert_eq!(
            outcome(&with("sub", user.clone())),
            Err(TokenError::InvalidUser),
            "{user}"
        );
    }
    for teams in [
        json!(7),
        json!([7]),
        json!({"a": "b"}),
        json!(["x".repeat(129)]),
    ] {
        assert_eq!(
            outcome(&with("groups", teams.clone())),
            Err(TokenError::InvalidClaims),
            "{teams}"
        );
    }
}

#[test]
fn claims_are_mapped() {
    let signer = Signer::new("key");
    let mut claims = claims();
    claims["groups"] = json!(["dev", "ops", "dev"]);
    claims["realm_access"] = json!({"roles": ["admin"]});
    claims["scope"] = json!("read  write");
    claims["scp"] = json!(["write", "call"]);
    let verified = verify(&signer.token(&claims), &signer.keys(), &settings(), NOW).unwrap();
    assert_eq!(verified.accepted_until, NOW + 360, "with the leeway");
    let identity = verified.identity;
    assert_eq!(*identity.teams, ["dev", "ops"]);
    assert_eq!(identity.roles, ["admin"]);
    assert_eq!(identity.scopes, ["read", "write", "call"]);
    // A claim whose own name has dots.
    claims["realm_access.roles"] = json!("whole");
    let verified = verify(&signer.token(&claims), &signer.keys(), &settings(), NOW).unwrap();
    assert_eq!(verified.identity.roles, ["whole"]);
}

#[test]
fn headers_are_checked() {
    let signer = Signer::new("key");
    let check = |header: Value| {
        user_of(verify(
            &signer.sign(&header, &claims()),
            &signer.keys(),
            &settings(),
            NOW,
        ))
    };
    let ada = || Ok("ada".to_owned());
    assert_eq!(
        check(json!({"alg": "EdDSA", "kid": "key", "typ": "at+JWT"})),
        ada()
    );
    assert_eq!(check(json!({"alg": "EdDSA"})), ada(), "the only key");
    assert_eq!(
        check(json!({"alg": "EdDSA", "kid": "other"})),
        Err(TokenError::UnknownKey)
    );
    assert_eq!(
        check(json!({"alg": "EdDSA", "typ": "dpop+jwt"})),
        Err(TokenError::WrongType)
    );
    assert_eq!(
        check(json!({"alg": "EdDSA", "crit": ["b64"], "b64": false})),
        Err(TokenError::CriticalExtension)
    );
    for algorithm in ["none", "None", "eddsa", "ES512", ""] {
        assert_eq!(
            check(json!({"alg": algorithm})),
            Err(TokenError::AlgorithmRefused),
            "{algorithm}"
        );
    }
    assert_eq!(check(json!({"kid": "key"})), Err(TokenError::Malformed));
    let mut without = settings();
    without
        .algorithms
        .retain(|algorithm| *algorithm != SigningAlgorithm::EdDsa);
    let token = signer.token(&claims());
    assert_eq!(
        user_of(verify(&token, &signer.keys(), &without, NOW)),
        Err(TokenError::AlgorithmRefused)
    );
}

#[test]
fn forms_are_checked() {
    let signer = Signer::new("key");
    let check = |token: &str| user_of(verify(token, &signer.keys(), &settings(), NOW));
    let token = signer.token(&claims());
    let (signed, _) = token.rsplit_once('.').unwrap();
    assert_eq!(check(signed), Err(TokenError::Malformed));
    assert_eq!(
        check(&format!("{signed}.")),
        Err(TokenError::WrongSignature)
    );
    assert_eq!(check(&format!("{token}=")), Err(TokenError::Malformed));
    assert_eq!(
        check(&format!("{token}.{token}")),
        Err(TokenError::Malformed)
    );
    assert_eq!(check(""), Err(TokenError::Malformed));
    assert_eq!(
        check(&format!("{token}{}", "x".repeat(8192))),
        Err(TokenError::TooLong)
    );
    let other = Signer::new("key").token(&claims());
    assert_eq!(check(&other), Err(TokenError::WrongSignature));
    let (_, signature) = other.rsplit_once('.').unwrap();
    assert_eq!(
        check(&format!("{signed}.{signature}")),
        Err(TokenError::WrongSignature)
    );
    let unsigned = signed_as_none();
    assert_eq!(check(&unsigned), Err(TokenError::AlgorithmRefused));
}

fn signed_as_none() -> String {
    signed(&json!({"alg": "none"}), &claims(), |_| Vec::new())
}

#[test]
fn rsa_keys_verify_only_their_algorithms() {
    let vectors: Value = serde_json::from_str(include_str!("rsa.json")).unwrap();
    let check = |key: &Value, algorithm: &str| {
        let token = vectors["tokens"][algorithm].as_str().unwrap();
        user_of(verify(token, &keys(&[key]), &settings(), NOW))
    };
    let key = &vectors["key"];
    let mut only = key.clone();
    only["alg"] = "PS256".into();
    let mut encrypts = key.clone();
    encrypts["use"] = "enc".into();
    let mut signs = key.clone();
    signs["key_ops"] = json!(["sign"]);
    for algorithm in ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"] {
        assert_eq!(check(key, algorithm), Ok("ada".to_owned()), "{algorithm}");
        assert_eq!(
            check(&only, algorithm).is_ok(),
            algorithm == "PS256",
            "{algorithm}"
        );
    }
    for unusable in [encrypts, signs] {
        let document = json!({"keys": [unusable]}).to_string();
        assert!(parse_keys(document.as_bytes(), KeyOrigin::File).is_err());
    }
}

/// A public key must never be taken for the secret of an HMAC.
#[test]
fn a_public_key_is_no_secret() {
    let vectors: Value = serde_json::from_str(include_str!("rsa.json")).unwrap();
    let key = &vectors["key"];
    let modulus = URL_SAFE_NO_PAD.decode(key["n"].as_str().unwrap()).unwrap();
    let whole = key.to_string().into_bytes();
    for secret in [modulus, whole] {
        for header in [
            json!({"alg": "HS256", "kid": "rsa"}),
            json!({"alg": "HS256"}),
        ] {
            let secret = hmac::Key::new(hmac::HMAC_SHA256, &secret);
            let token = signed(&header, &claims(), |message| {
                hmac::sign(&secret, message).as_ref().to_vec()
            });
            assert!(verify(&token, &keys(&[key]), &settings(), NOW).is_err());
        }
    }
}

#[test]
fn elliptic_curves() {
    #[track_caller]
    fn check(name: &str, curve: &str, algorithm: &'static EcdsaSigningAlgorithm) {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap();
        let point = &pair.public_key().as_ref()[1..];
        let (x, y) = point.split_at(point.len() / 2);
        let key = json!({"kty": "EC", "crv": curve, "x": encode(x), "y": encode(y)});
        let token = |name: &str| {
            signed(&json!({"alg": name}), &claims(), |message| {
                pair.sign(&random, message).unwrap().as_ref().to_vec()
            })
        };
        assert_eq!(
            user_of(verify(&token(name), &keys(&[&key]), &settings(), NOW)),
            Ok("ada".to_owned())
        );
        for other in ["ES256", "ES384", "EdDSA", "RS256"] {
            let is_own = other == name;
            assert_eq!(
                verify(&token(other), &keys(&[&key]), &settings(), NOW).is_ok(),
                is_own,
                "{other}"
            );
        }
        let short = json!({"kty": "EC", "crv": curve, "x": encode(&x[1..]), "y": encode(y)});
        let document = json!({"keys": [short]}).to_string();
        assert!(parse_keys(document.as_bytes(), KeyOrigin::File).is_err());
    }
    check("ES256", "P-256", &ECDSA_P256_SHA256_FIXED_SIGNING);
    check("ES384", "P-384", &ECDSA_P384_SHA384_FIXED_SIGNING);
}

#[test]
fn secrets_come_from_files_and_are_long_enough() {
    for (name, algorithm, length) in [
        ("HS256", hmac::HMAC_SHA256, 32),
        ("HS384", hmac::HMAC_SHA384, 48),
        ("HS512", hmac::HMAC_SHA512, 64),
    ] {
        let check = |length: usize, origin| {
            let secret = vec![7; length];
            let document = json!({"keys": [{"kty": "oct", "k": encode(&secret)}]}).to_string();
            let keys = parse_keys(document.as_bytes(), origin).unwrap_or_default();
            let secret = hmac::Key::new(algorithm, &secret);
            let token = signed(&json!({"alg": name}), &claims(), |message| {
                hmac::sign(&secret, message).as_ref().to_vec()
            });
            verify(&token, &keys, &settings(), NOW).is_ok()
        };
        assert!(check(length, KeyOrigin::File), "{name}");
        assert!(!check(length - 1, KeyOrigin::File), "{name}");
        assert!(!check(length, KeyOrigin::Network), "{name}");
    }
}

#[test]
fn key_sets() {
    let usable = Signer::new("a").public;
    let unknown = json!({"kty": "new", "kid": "b"});
    let unusable = json!({"kty": "RSA", "kid": "c", "n": "!", "e": "AQAB"});
    let other_purpose = json!({"kty": "RSA", "alg": "RSA-OAEP", "n": "AQAB", "e": "AQAB"});
    assert_eq!(
        keys(&[&unknown, &usable, &unusable, &other_purpose]).len(),
        1
    );
    let parse = |text: &str| parse_keys(text.as_bytes(), KeyOrigin::Network).map(|keys| keys.len());
    for text in ["", "[]", "{}", r#"{"keys": {}}"#, r#"{"keys": []}"#] {
        assert!(parse(text).is_err(), "{text}");
    }
    let many = json!({"keys": vec![&usable; 101]}).to_string();
    assert!(parse(&many).is_err());
}

/// A stranger's token costs a bounded number of verifications.
#[test]
fn few_keys_are_tried_for_a_token_that_names_none() {
    let signers: Vec<Signer> = (0..20)
        .map(|number| Signer::new(&number.to_string()))
        .collect();
    let publics: Vec<&Value> = signers.iter().map(|signer| &signer.public).collect();
    let keys = keys(&publics);
    let check = |header: Value, signer: &Signer| {
        user_of(verify(
            &signer.sign(&header, &claims()),
            &keys,
            &settings(),
            NOW,
        ))
    };
    let nameless = || json!({"alg": "EdDSA"});
    assert!(check(nameless(), &signers[7]).is_ok());
    assert_eq!(check(nameless(), &signers[8]), Err(TokenError::UnknownKey));
    assert!(check(json!({"alg": "EdDSA", "kid": "19"}), &signers[19]).is_ok());
}

/// Each text is fixed, so that none can have a part of a token.
#[test]
fn refusals_do_not_repeat_the_token() {
    let signer = Signer::new("secret-key");
    let token = signer.token(&with("iss", "secret-issuer"));
    let error = verify(&token, &signer.keys(), &settings(), NOW).unwrap_err();
    assert_eq!(error.to_string(), "the token is from another issuer");
}

/// The examples of RFC 7638, 3.1, RFC 8037, A.3, and RFC 9449, 4.1 and 6.1.
#[test]
fn thumbprints_are_those_of_the_standards() {
    let n = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMs\
             tn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn\
             1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw";
    let x = "l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs";
    let y = "9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA";
    for (key, thumbprint) in [
        (
            json!({"kty": "RSA", "n": n, "e": "AQAB", "alg": "RS256", "kid": "2011-04-29"}),
            "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs",
        ),
        (
            json!({"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}),
            "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k",
        ),
        (
            json!({"kty": "EC", "x": x, "y": y, "crv": "P-256"}),
            "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I",
        ),
    ] {
        let mut with_private = key.clone();
        with_private["d"] = json!("AQ");
        assert!(Key::public(with_private).is_none());
        assert_eq!(Key::public(key).unwrap().1.as_str(), thumbprint);
    }
    assert!(Key::public(json!({"kty": "oct", "k": "AQ"})).is_none());
}
