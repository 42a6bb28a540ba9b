//! Fetches documents of the issuer: one GET, without redirects, within a time and a size limit.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HeaderValue};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use mooring_upstream::{ClientError, tls_config};
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
    Request(#[source] hyper_util::client::legacy::Error),
    /// Another status than 200.
    #[error("the response has status {0}")]
    Status(StatusCode),
    /// The body broke off, or is larger than the limit of 256 KiB.
    #[error("the body could not be read")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It took longer than the limit.
    #[error("no response within {} s", TIMEOUT.as_secs())]
    TimedOut,
}

/// A client that keeps no connections: it is used once in minutes, from several runtimes.
#[derive(Clone, Debug)]
pub(crate) struct Fetcher(Client<HttpsConnector<HttpConnector>, Empty<Bytes>>);

impl Fetcher {
    /// # Errors
    /// There are no root certificates, and TLS is needed.
    pub(crate) fn new(needs_tls: bool) -> Result<Self, ClientError> {
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls_config(needs_tls)?)
            .https_or_http()
            .enable_http1()
            .build();
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .build(connector);
        Ok(Self(client))
    }

    pub(crate) async fn get(&self, url: &Url) -> Result<Bytes, FetchError> {
        let fetched = tokio::time::timeout(TIMEOUT, self.get_untimed(url)).await;
        fetched.unwrap_or(Err(FetchError::TimedOut))
    }

    async fn get_untimed(&self, url: &Url) -> Result<Bytes, FetchError> {
        let request = Request::get(url.as_str())
            .header(ACCEPT, HeaderValue::from_static("application/json"))
            .body(Empty::new())
            .map_err(FetchError::Address)?;
        let response = self.0.request(request).await.map_err(FetchError::Request)?;
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(response.status()));
        }
        let body = Limited::new(response.into_body(), BODY_BYTES_MAX)
            .collect()
            .await;
        Ok(body.map_err(FetchError::Body)?.to_bytes())
    }
}
