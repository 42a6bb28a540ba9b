//! The gateway's own token for a server: OAuth client credentials (RFC 6749, section 4.4), fetched before they are needed.
//!
//! Invariants: a request waits for no token; a token that was fetched is sent until it expires; neither it nor the secret
//! is in a log or an error.

use std::fmt;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Full;
use mooring_secrets::file::{self as secret_file, SecretFileError};
use mooring_session::names::ServerName;
use mooring_settings::{ClientAuthentication, ClientCredentialsSettings};
use serde::Deserialize;
use tokio::time::Instant;
use url::form_urlencoded;

use super::metrics::{TokenFetch, token_fetched};
use super::{Caller, CallerCredentials, Client, SendError, with_causes};
use mooring_protocol::ReplyError;

/// How long one attempt may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long a token is valid if the answer does not say it.
const VALID_BY_DEFAULT: Duration = Duration::from_secs(300);
/// Longest time until a token is fetched again.
const VALID_MAX: Duration = Duration::from_secs(24 * 3600);
/// Pauses after failures: doubled from the first to the longest.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// Largest answer.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Largest file of a secret.
const SECRET_BYTES_MAX: u64 = 4096;
/// Longest token.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Why no token was fetched.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("the client secret cannot be read")]
    Secret(#[from] SecretFileError),
    #[error("the client secret is not text")]
    SecretForm,
    #[error("the address cannot be requested")]
    Address,
    #[error(transparent)]
    Send(#[from] SendError),
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

/// The token of one server.
pub struct ClientCredentials {
    server: ServerName,
    settings: ClientCredentialsSettings,
    token: RwLock<Option<FetchedToken>>,
}

struct FetchedToken {
    authorization: HeaderValue,
    expires_at: Instant,
}

impl fmt::Debug for ClientCredentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ClientCredentials")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

impl CallerCredentials for ClientCredentials {
    fn authorization(&self, _: &ServerName, _: &Caller<'_>) -> Option<HeaderValue> {
        let token = self.token.read().unwrap_or_else(PoisonError::into_inner);
        let valid = token
            .as_ref()
            .filter(|token| Instant::now() < token.expires_at);
        valid.map(|token| token.authorization.clone())
    }
}

impl ClientCredentials {
    /// The token of this server; none until it is fetched.
    #[must_use]
    pub fn new(server: ServerName, settings: ClientCredentialsSettings) -> Self {
        Self {
            server,
            settings,
            token: RwLock::default(),
        }
    }

    /// Keeps the token current, until it is dropped. `fetched` is called after the first attempt.
    pub async fn keep_current(&self, client: &Client, fetched: impl FnOnce()) {
        let mut fetched = Some(fetched);
        let mut pause = RETRY_MIN;
        loop {
            let attempt = tokio::time::timeout(TIMEOUT, self.fetch(client)).await;
            let next = match attempt.unwrap_or(Err(FetchError::TimedOut)) {
                Ok((authorization, valid)) => {
                    token_fetched(TokenFetch::Ok);
                    tracing::debug!(server = %self.server, valid_seconds = valid.as_secs(), "a token for the server was fetched");
                    let expires_at = Instant::now() + valid;
                    let token = FetchedToken {
                        authorization,
                        expires_at,
                    };
                    *self.token.write().unwrap_or_else(PoisonError::into_inner) = Some(token);
                    pause = RETRY_MIN;
                    (valid * 4 / 5).max(RETRY_MIN)
                }
                Err(error) => {
                    token_fetched(TokenFetch::Failed);
                    tracing::warn!(server = %self.server, cause = %with_causes(&error), "fetching a token for the server failed");
                    let wait = pause;
                    pause = (pause * 2).min(RETRY_MAX);
                    wait
                }
            };
            if let Some(fetched) = fetched.take() {
                fetched();
            }
            tokio::time::sleep(next).await;
        }
    }

    /// A token as the value of a header, and how long it is valid.
    async fn fetch(&self, client: &Client) -> Result<(HeaderValue, Duration), FetchError> {
        let path = self.settings.client_secret_file.clone();
        let reading =
            tokio::task::spawn_blocking(move || secret_file::read(&path, SECRET_BYTES_MAX));
        let secret = reading.await.map_err(|_| FetchError::SecretForm)??;
        let secret = str::from_utf8(&secret).map_err(|_| FetchError::SecretForm)?;
        let request = token_request(&self.settings, secret.trim())?;
        let reply = client.send_elsewhere(request).await?;
        let status = reply.status;
        let body = reply.body.read_text(ANSWER_BYTES_MAX).await?;
        match status {
            StatusCode::OK => read_token(&body).ok_or(FetchError::Answer),
            status => Err(FetchError::Refused {
                status,
                code: error_code(&body),
            }),
        }
    }
}

fn token_request(
    settings: &ClientCredentialsSettings,
    secret: &str,
) -> Result<Request<Full<Bytes>>, FetchError> {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("grant_type", "client_credentials");
    if !settings.scopes.is_empty() {
        form.append_pair("scope", &settings.scopes.join(" "));
    }
    if let Some(resource) = &settings.resource {
        form.append_pair("resource", resource.as_str());
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
    let mut request = Request::new(Full::from(form.finish()));
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
        expires_in: Option<u64>,
    }
    let answer: Answer = serde_json::from_slice(answer).ok()?;
    let is_bearer = answer.token_type.eq_ignore_ascii_case("bearer");
    let token = Some(answer.access_token)
        .filter(|token| is_bearer && !token.is_empty() && token.len() <= TOKEN_BYTES_MAX)?;
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    let valid = answer
        .expires_in
        .map_or(VALID_BY_DEFAULT, Duration::from_secs);
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
    use http_body_util::BodyExt as _;

    use super::*;

    fn settings(authentication: ClientAuthentication) -> ClientCredentialsSettings {
        ClientCredentialsSettings {
            token_url: "https://login.example/token".parse().unwrap(),
            client_id: "gate:way".to_owned(),
            client_secret_file: "/none".into(),
            authentication,
            scopes: vec!["read".to_owned(), "write".to_owned()],
            resource: Some("https://tools.example/mcp".parse().unwrap()),
        }
    }

    async fn body_of(request: Request<Full<Bytes>>) -> String {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn requests_are_those_of_rfc_6749() {
        const FORM: &str = "grant_type=client_credentials&scope=read+write&resource=https%3A%2F%2Ftools.example%2Fmcp";
        let request = token_request(&settings(ClientAuthentication::Basic), "a b+c").unwrap();
        let authorization = request.headers()["authorization"]
            .to_str()
            .unwrap()
            .to_owned();
        let pair = STANDARD
            .decode(authorization.strip_prefix("Basic ").unwrap())
            .unwrap();
        assert_eq!(pair, b"gate%3Away:a+b%2Bc");
        assert_eq!(body_of(request).await, FORM);
        let request = token_request(&settings(ClientAuthentication::Post), "a b+c").unwrap();
        assert!(!request.headers().contains_key("authorization"));
        assert_eq!(
            body_of(request).await,
            format!("{FORM}&client_id=gate%3Away&client_secret=a+b%2Bc")
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
