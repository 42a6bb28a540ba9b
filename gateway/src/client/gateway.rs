//! Requests to a gateway's REST interface.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method, Request};
use rustls::sign::SingleCertAndKey;
use serde_json::Value;

use super::output::ClientError;
use super::target::GatewayTarget;
use mooring_upstream::{HttpClient, HttpClientOptions, SilenceLimits, tls_config};

/// Request timeout: longer than the longest run, which a replay waits for.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10 * 60);
/// Largest response body: a run with all its output and every call that it made.
const ANSWER_BYTES_MAX: usize = 512 * 1024 * 1024;
/// A person waits for a command, so it outlasts a network that is away for a minute.
const OPTIONS: HttpClientOptions = HttpClientOptions {
    connect_timeout: Duration::from_secs(60),
    idle_connection: Duration::ZERO,
    silence: SilenceLimits {
        usual: Duration::from_secs(60),
        large_body: Duration::from_secs(60),
        probe_after: Duration::from_secs(15),
        probe_every: Duration::from_secs(15),
    },
    event_bytes_max: 0,
};

/// A gateway, and the code server to query there.
#[derive(Debug)]
pub(super) struct Gateway {
    target: GatewayTarget,
}

impl Gateway {
    pub(super) fn new(target: GatewayTarget) -> Result<Self, ClientError> {
        let is_url = target.gateway.parse::<http::Uri>().is_ok_and(|uri| {
            uri.authority().is_some() && matches!(uri.scheme_str(), Some("http" | "https"))
        });
        if !is_url {
            let message = "--gateway must be an http:// or https:// URL".to_owned();
            return Err(ClientError::Flag(message));
        }
        Ok(Self { target })
    }

    /// The server's id.
    pub(super) fn server(&self) -> &str {
        &self.target.server
    }

    /// Sends a GET. Parameters without a value are left out.
    pub(super) async fn get(
        &self,
        path: &[&str],
        parameters: &[(&str, Option<String>)],
    ) -> Result<Value, ClientError> {
        self.get_at(self.url(path), parameters).await
    }

    /// Sends a GET to a path of the admin API.
    pub(super) async fn get_admin(
        &self,
        path: &[&str],
        parameters: &[(&str, Option<String>)],
    ) -> Result<Value, ClientError> {
        self.get_at(self.admin_url(path), parameters).await
    }

    /// Sends a POST to a path of the admin API.
    pub(super) async fn post_admin(
        &self,
        path: &[&str],
        body: &Value,
    ) -> Result<Value, ClientError> {
        let url = self.admin_url(path);
        self.ask(Method::POST, &url, Bytes::from(body.to_string()))
            .await
    }

    /// Sends a GET to a path that is of no server.
    pub(super) async fn get_root(&self, path: &str) -> Result<Value, ClientError> {
        self.get_at(format!("{}/{path}", self.target.gateway), &[])
            .await
    }

    /// Sends a POST without a body to a path that is of no server.
    pub(super) async fn post_root(&self, path: &str) -> Result<Value, ClientError> {
        let url = format!("{}/{path}", self.target.gateway);
        self.ask(Method::POST, &url, Bytes::new()).await
    }

    async fn get_at(
        &self,
        mut url: String,
        parameters: &[(&str, Option<String>)],
    ) -> Result<Value, ClientError> {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        for (name, value) in parameters {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        let query = query.finish();
        if !query.is_empty() {
            url = format!("{url}?{query}");
        }
        self.ask(Method::GET, &url, Bytes::new()).await
    }

    /// Sends a POST with a JSON body.
    pub(super) async fn post(&self, path: &[&str], body: &Value) -> Result<Value, ClientError> {
        let url = self.url(path);
        self.ask(Method::POST, &url, Bytes::from(body.to_string()))
            .await
    }

    fn url(&self, path: &[&str]) -> String {
        let server = std::iter::once(self.server());
        self.url_of("servers", server.chain(path.iter().copied()))
    }

    fn admin_url(&self, path: &[&str]) -> String {
        self.url_of("admin", path.iter().copied())
    }

    fn url_of<'a>(&self, first: &str, path: impl Iterator<Item = &'a str>) -> String {
        let mut url = format!("{}/{first}", self.target.gateway);
        for part in path {
            url.push('/');
            url.extend(url::form_urlencoded::byte_serialize(part.as_bytes()));
        }
        // A space is encoded differently in a path than in a form.
        url.replace('+', "%20")
    }

    async fn ask(&self, method: Method, url: &str, body: Bytes) -> Result<Value, ClientError> {
        let unprepared = |error: &dyn std::fmt::Display| ClientError::Request(error.to_string());
        let mut request = Request::new(body);
        *request.uri_mut() = url
            .parse()
            .map_err(|error: http::uri::InvalidUri| unprepared(&error))?;
        *request.method_mut() = method;
        let headers = request.headers_mut();
        headers.extend(self.target.headers.clone());
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let tls = tls_config(url.starts_with("https:"));
        let mut tls = tls.map_err(|error| unprepared(&error))?;
        if let Some(certificate) = &self.target.certificate {
            let certificate = SingleCertAndKey::from(Arc::clone(certificate));
            tls.client_auth_cert_resolver = Arc::new(certificate);
        }
        let client = HttpClient::new(OPTIONS, tls);
        let unreachable =
            |source: Box<dyn std::error::Error + Send + Sync>| ClientError::Unreachable {
                gateway: self.target.gateway.clone(),
                source,
            };
        let answered = async {
            let reply = client.request(&request).await?;
            let body = reply.body.read_text(ANSWER_BYTES_MAX).await?;
            Ok((reply.status, body))
        };
        let (status, body) = match tokio::time::timeout(ANSWERS_WITHIN, answered).await {
            Ok(answered) => answered.map_err(unreachable)?,
            Err(elapsed) => return Err(unreachable(elapsed.into())),
        };
        let answer: Option<Value> = serde_json::from_slice(&body).ok();
        match answer {
            Some(answer) if status.is_success() => Ok(answer),
            Some(answer) if answer.get("error").is_some() => Err(refused(status, &answer)),
            _ => Err(ClientError::Answer {
                gateway: self.target.gateway.clone(),
                status,
            }),
        }
    }
}

/// An error response: of this interface, whose codes are words, or of the host and origin guard, whose codes are
/// numbers.
fn refused(status: http::StatusCode, answer: &Value) -> ClientError {
    let code = match answer.pointer("/error/code") {
        Some(Value::String(word)) => super::table::printable(word),
        Some(other) => other.to_string(),
        None => String::new(),
    };
    let message = answer.pointer("/error/message").and_then(Value::as_str);
    ClientError::Refused {
        status,
        code,
        message: super::table::printable(message.unwrap_or_default()),
    }
}
