//! Requests to the token endpoint of an authorization server (RFC 6749, RFC 8693), and the gateway's secret there.
//!
//! Invariant: neither a token nor the secret is in an error.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use mooring_secrets::access_token::AccessToken;
use mooring_secrets::digest;
use mooring_secrets::file::{self as secret_file, FileError};
use mooring_session::names::ServerName;
use mooring_settings::{ClientAuthentication, OauthSettings};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Semaphore;
use url::form_urlencoded;

use crate::{HttpClient, HttpError};
use mooring_protocol::ReplyError;

/// Shortest time between two fetches of the same token because its server refused the one before.
pub(super) const RENEW_PAUSE: Duration = Duration::from_secs(10);
/// Most requests for callers' tokens at once: after another secret, every caller needs one.
pub(super) const EXCHANGES_MAX: usize = 16;
/// How long one attempt may take, with the wait for its turn.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long a token is valid if the answer does not say it.
const VALID_BY_DEFAULT: Duration = Duration::from_secs(300);
/// Longest time until a token is fetched again.
const VALID_MAX: Duration = Duration::from_secs(24 * 3600);
/// How often the secret's file is read.
pub(super) const SECRET_READ_EVERY: Duration = Duration::from_secs(5);
/// Largest answer.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Largest file of a secret.
const SECRET_BYTES_MAX: u64 = 4096;
/// Longest token.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Why no token was fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("the client secret cannot be read")]
    Secret(#[from] FileError),
    #[error("the client secret is not text")]
    SecretForm,
    #[error("the address cannot be requested")]
    Address,
    #[error(transparent)]
    Send(#[from] HttpError),
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    TimedOut,
    #[error("the answer could not be read")]
    Body(#[from] ReplyError),
    /// RFC 6749, section 5.2: the code is one of a few words.
    #[error("the authorization server refused with status {status}: {code}")]
    Refused { status: StatusCode, code: String },
    #[error("the answer has no bearer token that can be sent")]
    Answer,
}

/// The grant type of an exchange, and the type of the callers' tokens (RFC 8693, sections 2.1 and 3).
const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// The token to ask for.
#[derive(Clone, Copy)]
pub(super) enum TokenRequest<'a> {
    /// The gateway's own.
    ClientCredentials,
    /// One for the caller with this token.
    Exchange(&'a AccessToken),
}

/// A token that was fetched just now.
pub(super) struct FetchedToken {
    /// The value of the Authorization header.
    pub(super) authorization: HeaderValue,
    /// How long it is valid.
    pub(super) valid: Duration,
    /// That of the secret with which it was fetched.
    pub(super) generation: u64,
}

/// The token endpoint of one server's authorization server.
pub(super) struct TokenEndpoint {
    server: ServerName,
    settings: OauthSettings,
    /// The digest of the secret that was read last; none before the first.
    secret: Mutex<Option<String>>,
    /// How many secrets were read.
    generation: AtomicU64,
    exchanges: Semaphore,
}

impl TokenEndpoint {
    pub(super) fn new(server: ServerName, settings: OauthSettings) -> Self {
        Self {
            server,
            settings,
            secret: Mutex::default(),
            generation: AtomicU64::new(0),
            exchanges: Semaphore::new(EXCHANGES_MAX),
        }
    }

    /// The server that the tokens are for.
    pub(super) const fn server(&self) -> &ServerName {
        &self.server
    }

    /// The number of the gateway's secret: it grows when another one is read.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Reads the file, and returns the number of the secret. An unreadable file replaces nothing.
    pub(super) async fn read_generation(&self) -> u64 {
        let read = self.read_secret().await;
        read.map_or_else(|_| self.generation(), |(_, generation)| generation)
    }

    /// The secret and its number.
    async fn read_secret(&self) -> Result<(String, u64), FetchError> {
        let path = self.settings.client_secret_file.clone();
        let reading =
            tokio::task::spawn_blocking(move || secret_file::read(&path, SECRET_BYTES_MAX));
        let secret = reading.await.map_err(|_| FetchError::SecretForm)??;
        let secret = str::from_utf8(&secret).map_err(|_| FetchError::SecretForm)?;
        let secret = secret.trim().to_owned();
        let digest = digest::hex(secret.as_bytes());
        let mut known = self.secret.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref() != Some(&digest) {
            if known.replace(digest).is_some() {
                tracing::info!(server = %self.server, "the gateway's secret for tokens of the server was replaced");
            }
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
        Ok((secret, self.generation()))
    }

    /// Asks for a token.
    ///
    /// # Errors
    /// See [`FetchError`].
    pub(super) async fn fetch(
        &self,
        client: &HttpClient,
        token: TokenRequest<'_>,
    ) -> Result<FetchedToken, FetchError> {
        let attempt = tokio::time::timeout(TIMEOUT, self.ask(client, token)).await;
        attempt.unwrap_or(Err(FetchError::TimedOut))
    }

    async fn ask(
        &self,
        client: &HttpClient,
        token: TokenRequest<'_>,
    ) -> Result<FetchedToken, FetchError> {
        let _turn = match token {
            TokenRequest::ClientCredentials => None,
            // It is never closed.
            TokenRequest::Exchange(_) => self.exchanges.acquire().await.ok(),
        };
        let (secret, generation) = self.read_secret().await?;
        let request = token_request(&self.settings, &secret, token)?;
        let reply = client.request(&request).await?;
        let status = reply.status;
        let body = reply.body.read_text(ANSWER_BYTES_MAX).await?;
        if status != StatusCode::OK {
            let code = error_code(&body);
            return Err(FetchError::Refused { status, code });
        }
        let (authorization, valid) = read_token(&body).ok_or(FetchError::Answer)?;
        Ok(FetchedToken {
            authorization,
            valid,
            generation,
        })
    }
}

fn token_request(
    settings: &OauthSettings,
    secret: &str,
    token: TokenRequest<'_>,
) -> Result<Request<Bytes>, FetchError> {
    let mut form = form_urlencoded::Serializer::new(String::new());
    match token {
        TokenRequest::ClientCredentials => {
            form.append_pair("grant_type", "client_credentials");
        }
        TokenRequest::Exchange(subject) => {
            form.append_pair("grant_type", TOKEN_EXCHANGE)
                .append_pair("subject_token", subject.text())
                .append_pair("subject_token_type", ACCESS_TOKEN);
        }
    }
    if !settings.scopes.is_empty() {
        form.append_pair("scope", &settings.scopes.join(" "));
    }
    if let Some(resource) = &settings.resource {
        form.append_pair("resource", resource.as_str());
    }
    if let Some(audience) = &settings.audience {
        form.append_pair("audience", audience);
    }
    let id = &settings.client_id;
    let authorization = match settings.authentication {
        ClientAuthentication::Basic => {
            // Encoded as a form first (RFC 6749, section 2.3.1).
            let encoded =
                |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            let pair = format!("{}:{}", encoded(id), encoded(secret));
            let text = format!("Basic {}", STANDARD.encode(pair));
            Some(HeaderValue::try_from(text).map_err(|_| FetchError::SecretForm)?)
        }
        ClientAuthentication::Post => {
            form.append_pair("client_id", id)
                .append_pair("client_secret", secret);
            None
        }
    };
    let mut request = Request::new(Bytes::from(form.finish()));
    *request.method_mut() = Method::POST;
    let uri: Result<Uri, _> = settings.token_url.as_str().parse();
    *request.uri_mut() = uri.map_err(|_| FetchError::Address)?;
    let headers = request.headers_mut();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let form = HeaderValue::from_static("application/x-www-form-urlencoded");
    headers.insert(CONTENT_TYPE, form);
    if let Some(mut authorization) = authorization {
        authorization.set_sensitive(true);
        headers.insert(AUTHORIZATION, authorization);
    }
    Ok(request)
}

/// The token of an answer (RFC 6749, section 5.1), if it can be sent as a bearer token.
fn read_token(answer: &[u8]) -> Option<(HeaderValue, Duration)> {
    #[derive(Deserialize)]
    struct Answer {
        access_token: String,
        token_type: String,
        expires_in: Option<Value>,
    }
    let answer: Answer = serde_json::from_slice(answer).ok()?;
    let is_bearer = answer.token_type.eq_ignore_ascii_case("bearer");
    let token = Some(answer.access_token)
        .filter(|token| is_bearer && !token.is_empty() && token.len() <= TOKEN_BYTES_MAX)?;
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    // Some servers send the number as text.
    let seconds = answer
        .expires_in
        .and_then(|seconds| seconds.as_u64().or_else(|| seconds.as_str()?.parse().ok()));
    let valid = seconds.map_or(VALID_BY_DEFAULT, Duration::from_secs);
    Some((value, valid.min(VALID_MAX)))
}

/// The error's code, if it is a word as RFC 6749 allows it: a log line is made of it.
fn error_code(answer: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Refusal {
        error: String,
    }
    let code = serde_json::from_slice(answer).map(|Refusal { error }| error);
    let is_word = |code: &String| {
        code.len() <= 64
            && code
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    code.ok()
        .filter(is_word)
        .unwrap_or_else(|| "no error code".to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use mooring_settings::TokenGrant;

    use super::*;

    fn settings(authentication: ClientAuthentication) -> OauthSettings {
        OauthSettings {
            grant: TokenGrant::ClientCredentials,
            token_url: "https://login.example/token".parse().unwrap(),
            client_id: "gate:way".to_owned(),
            client_secret_file: "/none".into(),
            authentication,
            scopes: vec!["read".to_owned(), "write".to_owned()],
            resource: Some("https://tools.example/mcp".parse().unwrap()),
            audience: None,
        }
    }

    fn body_of(request: Request<Bytes>) -> String {
        String::from_utf8(request.into_body().to_vec()).unwrap()
    }

    #[test]
    fn requests_are_those_of_rfc_6749() {
        let own_token = |authentication| {
            let token = TokenRequest::ClientCredentials;
            token_request(&settings(authentication), "a b+c", token).unwrap()
        };
        const FORM: &str = "grant_type=client_credentials&scope=read+write&resource=https%3A%2F%2Ftools.example%2Fmcp";
        let request = own_token(ClientAuthentication::Basic);
        let authorization = request.headers()["authorization"]
            .to_str()
            .unwrap()
            .to_owned();
        let pair = STANDARD
            .decode(authorization.strip_prefix("Basic ").unwrap())
            .unwrap();
        assert_eq!(pair, b"gate%3Away:a+b%2Bc");
        assert_eq!(body_of(request), FORM);
        let request = own_token(ClientAuthentication::Post);
        assert!(!request.headers().contains_key("authorization"));
        assert_eq!(
            body_of(request),
            format!("{FORM}&client_id=gate%3Away&client_secret=a+b%2Bc")
        );
    }

    #[test]
    fn an_exchange_is_that_of_rfc_8693() {
        let subject = AccessToken::new("a.b.c", [0; 32], u64::MAX);
        let mut settings = settings(ClientAuthentication::Basic);
        settings.audience = Some("tools".to_owned());
        let token = TokenRequest::Exchange(&subject);
        let request = token_request(&settings, "secret", token).unwrap();
        assert!(request.headers()["authorization"].is_sensitive());
        assert_eq!(
            body_of(request),
            "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange&subject_token=a.b.c\
             &subject_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Aaccess_token&scope=read+write\
             &resource=https%3A%2F%2Ftools.example%2Fmcp&audience=tools"
        );
    }

    #[test]
    fn only_bearer_tokens_are_sent() {
        let read =
            |text: &str| read_token(text.as_bytes()).map(|(value, valid)| (value, valid.as_secs()));
        let (value, valid) =
            read(r#"{"access_token":"x","token_type":"bearer","expires_in":60,"scope":""}"#)
                .unwrap();
        assert_eq!((value.to_str().unwrap(), valid), ("Bearer x", 60));
        assert!(value.is_sensitive());
        assert_eq!(
            read(r#"{"access_token":"x","token_type":"Bearer"}"#)
                .unwrap()
                .1,
            300
        );
        assert_eq!(
            read(r#"{"access_token":"x","token_type":"Bearer","expires_in":"60"}"#)
                .unwrap()
                .1,
            60
        );
        for answer in [
            r#"{"access_token":"x","token_type":"DPoP"}"#,
            r#"{"access_token":"","token_type":"Bearer"}"#,
            r#"{"access_token":"a\nb","token_type":"Bearer"}"#,
            r#"{"token_type":"Bearer"}"#,
            "",
        ] {
            assert!(read(answer).is_none(), "{answer}");
        }
        let long = "x".repeat(TOKEN_BYTES_MAX + 1);
        assert!(
            read(&format!(
                r#"{{"access_token":"{long}","token_type":"Bearer"}}"#
            ))
            .is_none()
        );
    }

    #[test]
    fn errors_are_words() {
        assert_eq!(
            error_code(br#"{"error":"invalid_client"}"#),
            "invalid_client"
        );
        for text in [&br#"{"error":"a\nb"}"#[..], b"<html>", b""] {
            assert_eq!(error_code(text), "no error code");
        }
    }
}
