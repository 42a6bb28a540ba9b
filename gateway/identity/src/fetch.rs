//! Fetches documents of the issuer: one GET, without redirects, within a time and a size limit.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HeaderValue};
use http::{Request, StatusCode};
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
        let fetched = tokio::time::timeout(TIMEOUT, self.get_untimed(url)).await;
        fetched.unwrap_or(Err(FetchError::TimedOut))
    }

    async fn get_untimed(&self, url: &Url) -> Result<Bytes, FetchError> {
        let request = Request::get(url.as_str())
            .header(ACCEPT, HeaderValue::from_static("application/json"))
            .body(Bytes::new())
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
