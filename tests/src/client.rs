//! An HTTP client that exposes what client libraries hide: status, headers, and each event as it arrives.
//!
//! Every step has a time limit, so that a gateway that hangs fails a test instead of stopping it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};
use serde_json::Value;

use crate::certificates::Certificate;
use crate::sse::{Decoder, Event};

/// How long one step may take: reply headers, or the next event of a stream.
pub const STEP_WITHIN: Duration = Duration::from_secs(30);

/// Sends requests exactly as they are written. Cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub struct HttpClient {
    inner: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    step_within: Duration,
}

impl Default for HttpClient {
    fn default() -> Self {
        Self::new(STEP_WITHIN)
    }
}

impl HttpClient {
    /// A client with its own connections and a timeout for each step.
    #[must_use]
    pub fn new(step_within: Duration) -> Self {
        let knows_nobody = tls().with_root_certificates(RootCertStore::empty());
        Self::with_tls(step_within, knows_nobody.with_no_client_auth())
    }

    /// A client that trusts this authority, and proves who it is by its own certificate, if it has one.
    pub fn over_tls(authority: &Path, own: Option<&Certificate>) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(authority)?)?;
        let tls = tls().with_root_certificates(roots);
        let tls = match own {
            None => tls.with_no_client_auth(),
            Some(own) => {
                let chain = vec![CertificateDer::from_pem_file(&own.certificate)?];
                tls.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(&own.key)?)?
            }
        };
        Ok(Self::with_tls(STEP_WITHIN, tls))
    }

    fn with_tls(step_within: Duration, tls: ClientConfig) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        // A refused connection is a reply here: nothing is sent twice without the test's knowledge.
        let inner = Client::builder(TokioExecutor::new())
            .retry_canceled_requests(false)
            .build(connector);
        Self { inner, step_within }
    }

    /// Sends one request and waits for the reply's headers.
    pub async fn send(&self, request: Request<Bytes>) -> anyhow::Result<Reply> {
        let what = format!("{} {}", request.method(), request.uri());
        let sent = self.inner.request(request.map(Full::new));
        let reply = tokio::time::timeout(self.step_within, sent)
            .await
            .map_err(|_| anyhow!("no reply within {:?}: {what}", self.step_within))?
            .with_context(|| what.clone())?;
        let (parts, body) = reply.into_parts();
        Ok(Reply {
            status: parts.status,
            headers: parts.headers,
            body,
            decoder: Decoder::default(),
            step_within: self.step_within,
        })
    }

    /// GET with no headers but the necessary ones.
    pub async fn get(&self, url: &str) -> anyhow::Result<Reply> {
        self.send(Request::get(url).body(Bytes::new())?).await
    }
}

fn tls() -> ConfigBuilder<ClientConfig, WantsVerifier> {
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap_or_else(|error| unreachable!("the provider has the default versions: {error}"))
}

/// A reply whose body is not read yet.
#[derive(Debug)]
pub struct Reply {
    /// The status code.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    body: Incoming,
    decoder: Decoder,
    step_within: Duration,
}

impl Reply {
    /// One header as text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Whether the body is a stream of events.
    #[must_use]
    pub fn is_event_stream(&self) -> bool {
        self.header("content-type")
            .is_some_and(|kind| kind.starts_with("text/event-stream"))
    }

    /// The whole body, which must end within the step's limit.
    pub async fn bytes(self) -> anyhow::Result<Bytes> {
        let whole = tokio::time::timeout(self.step_within, self.body.collect());
        Ok(whole
            .await
            .context("read the body in time")?
            .context("read the body")?
            .to_bytes())
    }

    /// The whole body as text.
    pub async fn text(self) -> anyhow::Result<String> {
        Ok(String::from_utf8_lossy(&self.bytes().await?).into_owned())
    }

    /// The whole body as JSON.
    pub async fn json(self) -> anyhow::Result<Value> {
        let bytes = self.bytes().await?;
        serde_json::from_slice(&bytes)
            .with_context(|| format!("parse the body: {}", String::from_utf8_lossy(&bytes)))
    }

    /// The next event, or `None` at the clean end of the stream.
    pub async fn next_event(&mut self) -> anyhow::Result<Option<Event>> {
        loop {
            if let Some(event) = self.decoder.next_event() {
                return Ok(Some(event));
            }
            let frame = tokio::time::timeout(self.step_within, self.body.frame());
            match frame.await.context("wait for the next event")? {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame.context("read the stream")?.into_data() {
                        self.decoder.push(&data);
                    }
                }
            }
        }
    }

    /// The next JSON-RPC message: the body itself, or the next event that is not a priming one.
    pub async fn next_message(&mut self) -> anyhow::Result<Option<Value>> {
        if !self.is_event_stream() {
            ensure!(self.status.is_success(), "status {}", self.status);
            let whole = tokio::time::timeout(self.step_within, (&mut self.body).collect());
            let bytes = whole
                .await
                .context("read the body in time")?
                .context("read the body")?
                .to_bytes();
            return match bytes.is_empty() {
                true => Ok(None),
                false => Ok(Some(
                    serde_json::from_slice(&bytes).context("parse the body")?,
                )),
            };
        }
        while let Some(event) = self.next_event().await? {
            if !event.data.trim().is_empty() {
                return Ok(Some(
                    serde_json::from_str(&event.data).context("parse the event")?,
                ));
            }
        }
        Ok(None)
    }
}
