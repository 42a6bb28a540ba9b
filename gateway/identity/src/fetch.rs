//! Fetches documents of the issuer: one request, without redirects, within a time and a size limit.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{Request, StatusCode, request};
use mooring_protocol::ReplyError;
use mooring_upstream::{
    ClientError, HttpClient, HttpClientOptions, HttpError, SilenceLimits, tls_config,
};
use url::Url;

/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Largest document.
const BODY_BYTES_MAX: usize = 256 * 1024;

/// Why a document could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The address is not one of a request.
    #[error("the address cannot be requested")]
    Address(#[source] http::Error),
    /// No response.
    #[error("no response")]
    Request(#[source] HttpError),
    /// Another status than 200.
    #[error("the response has status {0}")]
    Status(StatusCode),
    /// The body broke off, or is larger than the limit of 256 KiB.
    #[error("the body could not be read")]
    Body(#[source] ReplyError),
    /// It took longer than the limit.
    #[error("no response within {} s", TIMEOUT.as_secs())]
    TimedOut,
}

/// A client that keeps no connections: it is used once in minutes.
#[derive(Clone, Debug)]
pub(crate) struct Fetcher(HttpClient);

impl Fetcher {
    /// # Errors
    /// There are no root certificates, and TLS is needed.
    pub(crate) fn new(needs_tls: bool) -> Result<Self, ClientError> {
        let options = HttpClientOptions {
            connect_timeout: TIMEOUT,
            idle_connection: Duration::ZERO,
            silence: SilenceLimits::default(),
            event_bytes_max: BODY_BYTES_MAX,
        };
        Ok(Self(HttpClient::new(options, tls_config(needs_tls)?)))
    }

    pub(crate) async fn get(&self, url: &Url) -> Result<Bytes, FetchError> {
        let fetched =
            tokio::time::timeout(TIMEOUT, self.send(Request::get(url.as_str()), Bytes::new()));
        fetched.await.unwrap_or(Err(FetchError::TimedOut))
    }

    /// Posts a form, with these credentials.
    pub(crate) async fn post_form(
        &self,
        url: &Url,
        form: String,
        authorization: Option<HeaderValue>,
    ) -> Result<Bytes, FetchError> {
        let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
        let mut request = Request::post(url.as_str()).header(CONTENT_TYPE, form_type);
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let sent = tokio::time::timeout(TIMEOUT, self.send(request, form.into()));
        sent.await.unwrap_or(Err(FetchError::TimedOut))
    }

    async fn send(&self, request: request::Builder, body: Bytes) -> Result<Bytes, FetchError> {
        let request = request
            .header(ACCEPT, HeaderValue::from_static("application/json"))
            .body(body)
            .map_err(FetchError::Address)?;
        let sent = self.0.request(&request).await;
        let reply = sent.map_err(FetchError::Request)?;
        if reply.status != StatusCode::OK {
            return Err(FetchError::Status(reply.status));
        }
        let document = reply.body.read_text(BODY_BYTES_MAX).await;
        document.map_err(FetchError::Body)
    }
}
