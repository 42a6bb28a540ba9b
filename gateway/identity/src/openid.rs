//! Signing in people with an account at an OpenID provider: the authorization code flow (OpenID Connect Core 1.0, 3.1) with
//! PKCE (RFC 7636).
//!
//! Invariants: a code is exchanged only together with the verifier that its sign-in began with, and an ID token is accepted
//! only with that sign-in's nonce; neither a code, a token nor the secret is in an error or a log.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::HeaderValue;
use mooring_secrets::file::{self as secret_file, FileError};
use mooring_settings::{SignInProvider, is_fetched_safely};
use mooring_upstream::ClientError;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::{Url, form_urlencoded};

use crate::authenticator::fetcher;
use crate::bearer::TokenAuthenticator;
use crate::error::IdentityError;
use crate::fetch::{FetchError, Fetcher};
use crate::identity::Identity;
use crate::key_source::{KeySource, metadata_urls};

/// How long the provider's metadata are used before they are fetched again.
const METADATA_MAX_AGE: Duration = Duration::from_secs(5 * 60);
/// Largest file of a secret.
const SECRET_BYTES_MAX: u64 = 4096;
/// Random bytes of a state, a nonce and a verifier.
const RANDOM_BYTES: usize = 32;

/// Why a sign-in failed.
#[derive(Debug, thiserror::Error)]
pub enum OpenIdError {
    /// There is no randomness.
    #[error("the system has no random numbers")]
    Random,
    /// The provider's metadata could not be fetched.
    #[error("the provider's metadata cannot be fetched")]
    Metadata(#[source] FetchError),
    /// The metadata are another issuer's, or lack an address that is safe to use.
    #[error("the provider's metadata are not those of ui.oidc_issuer, or lack its addresses")]
    MetadataInvalid,
    /// The client secret cannot be read.
    #[error("the client secret cannot be read")]
    Secret(#[source] FileError),
    /// The client secret cannot be sent.
    #[error("the client secret is not text")]
    SecretForm,
    /// The provider did not exchange the code.
    #[error("the provider did not exchange the code")]
    Exchange(#[source] FetchError),
    /// The provider's answer has no ID token.
    #[error("the provider's answer has no ID token")]
    NoIdToken,
    /// The ID token is refused.
    #[error("the ID token is refused")]
    IdToken(#[source] IdentityError),
    /// The ID token belongs to another sign-in.
    #[error("the ID token belongs to another sign-in")]
    Nonce,
}

/// What a sign-in that was begun has to be completed with. Whoever began it keeps it, and nobody else may see it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignInFlow {
    /// Comes back with the code.
    pub state: String,
    nonce: String,
    verifier: String,
}

impl fmt::Debug for SignInFlow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SignInFlow")
    }
}

/// What the provider says about itself, as it is written (OpenID Connect Discovery 1.0, 3).
#[derive(Deserialize)]
struct WrittenMetadata {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

/// The same, checked.
#[derive(Clone, Debug)]
struct ProviderMetadata {
    authorization_endpoint: Url,
    token_endpoint: Url,
    /// Whether the client's secret goes into the Authorization header, and not into the form.
    takes_basic: bool,
}

impl ProviderMetadata {
    /// None if they are another issuer's, or an address in them is not safe to use.
    fn read(document: &[u8], issuer: &str) -> Option<Self> {
        let written: WrittenMetadata = serde_json::from_slice(document).ok()?;
        let url = |text: &str| Url::parse(text).ok().filter(is_fetched_safely);
        // The default is `client_secret_basic`.
        let takes_basic = written
            .token_endpoint_auth_methods_supported
            .is_none_or(|methods| methods.iter().any(|method| method == "client_secret_basic"));
        let metadata = Self {
            authorization_endpoint: url(&written.authorization_endpoint)?,
            token_endpoint: url(&written.token_endpoint)?,
            takes_basic,
        };
        (written.issuer == issuer).then_some(metadata)
    }
}

/// The provider, as a client of it.
#[derive(Debug)]
pub struct OpenIdClient {
    settings: SignInProvider,
    fetcher: Fetcher,
    id_tokens: TokenAuthenticator,
    /// Fetched by one sign-in at a time.
    metadata: Mutex<Option<(Instant, ProviderMetadata)>>,
}

impl OpenIdClient {
    /// A client of this provider; nothing is fetched yet.
    ///
    /// # Errors
    /// The provider is reached over TLS, and there are no root certificates.
    pub fn new(settings: SignInProvider) -> Result<Self, ClientError> {
        let fetcher = fetcher(&settings.id_tokens)?;
        let keys = Arc::new(KeySource::new(&settings.id_tokens, fetcher.clone()));
        Ok(Self {
            id_tokens: TokenAuthenticator {
                settings: settings.id_tokens.clone(),
                keys,
                keeps_tokens: false,
            },
            settings,
            fetcher,
            metadata: Mutex::default(),
        })
    }

    /// The issuer.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.settings.id_tokens.issuer
    }

    /// Begins a sign-in: where the browser is to go, and what the sign-in is to be completed with.
    ///
    /// # Errors
    /// See [`OpenIdError`].
    pub async fn begin(&self, redirect_uri: &str) -> Result<(Url, SignInFlow), OpenIdError> {
        let mut url = self.metadata().await?.authorization_endpoint;
        let flow = SignInFlow {
            state: random_text()?,
            nonce: random_text()?,
            verifier: random_text()?,
        };
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&flow.verifier));
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.settings.client_id)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("scope", &self.settings.scopes.join(" "))
            .append_pair("state", &flow.state)
            .append_pair("nonce", &flow.nonce)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        Ok((url, flow))
    }

    /// Completes a sign-in with the code that the provider gave the browser: who has signed in.
    ///
    /// # Errors
    /// See [`OpenIdError`].
    pub async fn complete(
        &self,
        flow: &SignInFlow,
        code: &str,
        redirect_uri: &str,
    ) -> Result<Arc<Identity>, OpenIdError> {
        let metadata = self.metadata().await?;
        let (form, authorization) = self
            .token_request(&metadata, flow, code, redirect_uri)
            .await?;
        let posted = self
            .fetcher
            .post_form(&metadata.token_endpoint, form, authorization);
        let answer = posted.await.map_err(OpenIdError::Exchange)?;
        #[derive(Deserialize)]
        struct Answer {
            id_token: String,
        }
        let answer: Answer = serde_json::from_slice(&answer).map_err(|_| OpenIdError::NoIdToken)?;
        // A sign-in is rare, so that keys need not be kept current: they are read before it.
        self.id_tokens.keys.read_for_unknown().await;
        let verified = self.id_tokens.verify_bearer(&answer.id_token).await;
        let verified = verified.map_err(OpenIdError::IdToken)?;
        match verified.nonce.as_deref() == Some(&*flow.nonce) {
            true => Ok(Arc::clone(&verified.identity)),
            false => Err(OpenIdError::Nonce),
        }
    }

    /// The form for the token endpoint, and the client's credentials.
    async fn token_request(
        &self,
        metadata: &ProviderMetadata,
        flow: &SignInFlow,
        code: &str,
        redirect_uri: &str,
    ) -> Result<(String, Option<HeaderValue>), OpenIdError> {
        let secret = self.secret().await?;
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("code_verifier", &flow.verifier);
        let id = &self.settings.client_id;
        let Some(secret) = secret else {
            form.append_pair("client_id", id);
            return Ok((form.finish(), None));
        };
        if !metadata.takes_basic {
            form.append_pair("client_id", id)
                .append_pair("client_secret", &secret);
            return Ok((form.finish(), None));
        }
        // Encoded as a form first (RFC 6749, section 2.3.1).
        let encoded =
            |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let pair = STANDARD.encode(format!("{}:{}", encoded(id), encoded(&secret)));
        let value = HeaderValue::try_from(format!("Basic {pair}"));
        let mut value = value.map_err(|_| OpenIdError::SecretForm)?;
        value.set_sensitive(true);
        Ok((form.finish(), Some(value)))
    }

    async fn secret(&self) -> Result<Option<String>, OpenIdError> {
        let Some(path) = self.settings.client_secret_file.clone() else {
            return Ok(None);
        };
        let reading =
            tokio::task::spawn_blocking(move || secret_file::read(&path, SECRET_BYTES_MAX));
        let secret = reading.await.map_err(|_| OpenIdError::SecretForm)?;
        let secret = secret.map_err(OpenIdError::Secret)?;
        let secret = str::from_utf8(&secret).map_err(|_| OpenIdError::SecretForm)?;
        Ok(Some(secret.trim().to_owned()))
    }

    async fn metadata(&self) -> Result<ProviderMetadata, OpenIdError> {
        let mut known = self.metadata.lock().await;
        if let Some((read_at, metadata)) = &*known
            && read_at.elapsed() < METADATA_MAX_AGE
        {
            return Ok(metadata.clone());
        }
        let issuer = self.issuer();
        let url = metadata_urls(issuer).into_iter().next();
        let url = url.ok_or(OpenIdError::MetadataInvalid)?;
        let document = self
            .fetcher
            .get(&url)
            .await
            .map_err(OpenIdError::Metadata)?;
        let metadata = ProviderMetadata::read(&document, issuer);
        let metadata = metadata.ok_or(OpenIdError::MetadataInvalid)?;
        *known = Some((Instant::now(), metadata.clone()));
        Ok(metadata)
    }
}

fn random_text() -> Result<String, OpenIdError> {
    let mut bytes = [0; RANDOM_BYTES];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| OpenIdError::Random)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}
