//! The part of `[auth]` about tokens: who issues them, for whom, with which keys, and what their claims mean.
//!
//! Invariant: keys are fetched over TLS or from this machine, and a symmetric algorithm is allowed only with a key file.

use std::path::PathBuf;
use std::time::Duration;

use strum::VariantArray as _;
use url::{Host, Url};

use super::paths::{ABSOLUTE_FILE, PATH_BYTES_MAX, absolute_file};
use super::reader::{Reader, Reason, list, text};
use super::rows::settings;
use super::setting::List;

settings! {
    /// Which tokens are accepted, and what their claims mean.
    pub struct TokenSettings {
        /// Who must have issued a token: its `iss`, character for character. Required where `auth.mode` is `jwt`. Where
        /// neither `auth.jwks_file` nor `auth.jwks_url` is set, its metadata (OpenID Connect Discovery, or RFC 8414) say
        /// where its keys are. A user is identified by name only, without the issuer: after a change of issuer, a user
        /// with the same name gets the sessions of the earlier user until they expire.
        pub issuer: String = Text("auth.issuer", URL_BYTES_MAX, URL_SHAPE, None)
            => |reader, row| reader.text(row, parse_issuer).unwrap_or_default(),
        /// The audiences of this gateway: a token's `aud` must contain one of them (RFC 8707). Required if `auth.mode`
        /// is `jwt`.
        pub audiences: Vec<String> = List("auth.audiences", 256, 512, "audiences, such as https://gateway.example/mcp")
            => list(|text| Ok(text.to_owned())),
        /// The file with the issuer's keys, a JSON Web Key Set. It is reloaded every 10 seconds. A file with symmetric
        /// keys may be readable by its owner only.
        pub jwks_file: Option<PathBuf> = Text("auth.jwks_file", PATH_BYTES_MAX, ABSOLUTE_FILE, None)
            .unset("the keys are fetched") => text(absolute_file),
        /// Where the issuer's keys are fetched: when the gateway starts, every 5 minutes, and when a token names an
        /// unknown key, at most once in 10 seconds.
        pub jwks_url: Option<Url> = Text("auth.jwks_url", URL_BYTES_MAX, URL_SHAPE, None)
            .unset("the issuer's metadata name the address") => text(parse_fetched_url),
        /// How long keys stay in use while they cannot be reloaded. After that, requests with tokens get 503 until keys
        /// are loaded, so that a key that the issuer has revoked does not stay valid forever.
        pub keys_max_age: Duration = Integer("auth.jwks_max_age_seconds", "seconds", 86_400, 600..=2_592_000),
        /// The signature algorithms that are accepted. HS256, HS384 and HS512 need `auth.jwks_file`.
        pub algorithms: Vec<SigningAlgorithm> = List("auth.algorithms", 12, 8,
            "RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA, HS256, HS384 or HS512")
            .unset("all but HS256, HS384 and HS512")
            => |reader, row| parse_algorithms(reader, row, jwks_file.is_some()),
        /// How far the issuer's clock may be off.
        pub leeway: Duration = Integer("auth.leeway_seconds", "seconds", 60, 0..=600),
        /// Whether every token must be bound to a key whose possession the sender proves with each request (DPoP, RFC
        /// 9449). If false, only tokens that are bound to a key need this proof.
        pub dpop_required: bool = Switch("auth.dpop_required", false),
        /// The claim that names the user. The name of a claim, or the path to a nested one, with dots.
        pub user_claim: String = Text("auth.user_claim", CLAIM_BYTES_MAX, CLAIM_SHAPE, Some("sub"))
            => |reader, row| reader.text(row, parse_claim).unwrap_or_default(),
        /// The claim with the user's teams: a list of texts, or one text.
        pub teams_claim: String = Text("auth.teams_claim", CLAIM_BYTES_MAX, CLAIM_SHAPE, Some("groups"))
            => |reader, row| reader.text(row, parse_claim).unwrap_or_default(),
        /// The claim with the user's roles: a list of texts, or one text.
        pub roles_claim: String = Text("auth.roles_claim", CLAIM_BYTES_MAX, CLAIM_SHAPE, Some("roles"))
            => |reader, row| reader.text(row, parse_claim).unwrap_or_default(),
    }
}

pub(super) const URL_BYTES_MAX: usize = 2048;
pub(super) const URL_SHAPE: &str = "an https:// URL, or an http:// URL of a loopback address";
const CLAIM_BYTES_MAX: usize = 256;
const CLAIM_SHAPE: &str =
    "the name of a claim, such as sub, realm_access.roles or https://example.com/roles";

/// A signature algorithm of RFC 7518 or RFC 8037.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "UPPERCASE")]
pub enum SigningAlgorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// The same with SHA-384.
    Rs384,
    /// The same with SHA-512.
    Rs512,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// The same with SHA-384.
    Ps384,
    /// The same with SHA-512.
    Ps512,
    /// ECDSA with P-256 and SHA-256.
    Es256,
    /// ECDSA with P-384 and SHA-384.
    Es384,
    /// Ed25519.
    #[strum(serialize = "EdDSA")]
    EdDsa,
    /// HMAC with SHA-256.
    Hs256,
    /// HMAC with SHA-384.
    Hs384,
    /// HMAC with SHA-512.
    Hs512,
}

impl SigningAlgorithm {
    /// Whether the key that verifies can also sign.
    #[must_use]
    pub const fn is_symmetric(self) -> bool {
        matches!(self, Self::Hs256 | Self::Hs384 | Self::Hs512)
    }

    /// All but those.
    pub(super) fn asymmetric() -> Vec<Self> {
        let all = Self::VARIANTS.iter().copied();
        all.filter(|algorithm| !algorithm.is_symmetric()).collect()
    }
}

impl TokenSettings {
    /// Refuses what cannot work in `auth.mode = "jwt"`.
    pub(super) fn refuse_incomplete(&self, reader: &mut Reader<'_>) {
        if self.issuer.is_empty() && !reader.was_refused(&Self::issuer) {
            let reason = "auth.mode is \"jwt\", and without an issuer no token could be believed";
            reader.refuse(&Self::issuer, "", reason, URL_SHAPE);
        }
        let row = &Self::audiences;
        if self.audiences.is_empty() && !reader.was_refused(row) {
            let reason =
                "auth.mode is \"jwt\", and a token for anybody else must not be accepted here";
            reader.refuse(
                row,
                "[]",
                reason,
                format!("at least one, in {}", row.allowed()),
            );
        }
        if self.jwks_file.is_some() && self.jwks_url.is_some() {
            let reason = "auth.jwks_file is set, too";
            reader.refuse(&Self::jwks_url, "", reason, "one of the two");
        }
    }
}

/// Whether a document at this URL can be trusted: it is fetched over TLS, or from this machine.
#[must_use]
pub fn is_fetched_safely(url: &Url) -> bool {
    let is_loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    match url.scheme() {
        "https" => url.host().is_some(),
        "http" => is_loopback,
        _ => false,
    }
}

pub(super) fn parse_fetched_url(text: &str) -> Result<Url, Reason> {
    let url = Url::parse(text).map_err(|error| format!("it is no URL: {error}"))?;
    match is_fetched_safely(&url) {
        true if !url.username().is_empty() || url.password().is_some() => {
            Err("it has a user or a password".to_owned())
        }
        true => Ok(url),
        false => Err("on the way from there, what is read could be replaced".to_owned()),
    }
}

/// The text as it is: a token's `iss` is compared with every character of it.
pub(super) fn parse_issuer(text: &str) -> Result<String, Reason> {
    let url = parse_fetched_url(text)?;
    match url.query().is_some() || url.fragment().is_some() {
        true => Err("an issuer has neither query nor fragment (RFC 8414)".to_owned()),
        false => Ok(text.to_owned()),
    }
}

fn parse_algorithms(
    reader: &mut Reader<'_>,
    row: &'static List,
    has_file: bool,
) -> Vec<SigningAlgorithm> {
    let written = reader.list(row, |text| {
        let algorithm: SigningAlgorithm = text.parse().map_err(|_| Reason::new())?;
        match algorithm.is_symmetric() && !has_file {
            true => Err(format!(
                "{text} needs auth.jwks_file: who can fetch such a key can sign with it"
            )),
            false => Ok(algorithm),
        }
    });
    match written {
        None => SigningAlgorithm::asymmetric(),
        Some(list) => {
            if list.is_empty() && !reader.was_refused(row) {
                reader.refuse(row, "[]", "no token could be verified", row.allowed());
            }
            list
        }
    }
}

fn parse_claim(text: &str) -> Result<String, Reason> {
    match text.chars().any(char::is_control) {
        true => Err("it has control characters".to_owned()),
        false => Ok(text.to_owned()),
    }
}
