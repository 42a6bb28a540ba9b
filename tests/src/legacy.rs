//! A client of HTTP+SSE as revision 2024-11-05 has it: a stream, and an address that it names to post to.

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request};
use serde_json::Value;

use crate::client::{HttpClient, Reply};
use crate::duplex::{Connection, DuplexSession};
use crate::session::Opening;

/// A session over HTTP+SSE.
pub type LegacySession = DuplexSession<LegacyConnection>;

impl LegacySession {
    /// Initializes over the stream at `url`, with the default [`Opening`] but for the revision: this transport's own.
    pub async fn open_at(client: &HttpClient, url: &str) -> anyhow::Result<Self> {
        let opening = Opening {
            protocol_version: "2024-11-05".to_owned(),
            ..Opening::default()
        };
        Self::open_with(client, url, &opening).await
    }

    /// Initializes over the stream at `url` as `opening` says.
    pub async fn open_with(
        client: &HttpClient,
        url: &str,
        opening: &Opening,
    ) -> anyhow::Result<Self> {
        let connection = LegacyConnection::open(client, url, &opening.headers).await?;
        Self::open(connection, opening).await
    }
}

/// The stream and the address of one session. The stream is closed when this is dropped.
#[derive(Debug)]
pub struct LegacyConnection {
    client: HttpClient,
    headers: HeaderMap,
    stream: Reply,
    endpoint: String,
}

impl LegacyConnection {
    /// Opens the stream at `url` and waits for its first event, which names the address. `headers` go with every
    /// request.
    pub async fn open(client: &HttpClient, url: &str, headers: &HeaderMap) -> anyhow::Result<Self> {
        let mut request = Request::get(url)
            .header("accept", "text/event-stream")
            .body(Bytes::new())?;
        request.headers_mut().extend(headers.clone());
        let mut stream = client.send(request).await?;
        ensure!(
            stream.status == 200 && stream.is_event_stream(),
            "GET {url}: {}",
            stream.status
        );
        let first = stream.next_event().await?.context("a first event")?;
        ensure!(first.name.as_deref() == Some("endpoint"), "{first:?}");
        let base: http::Uri = url.parse()?;
        let origin = format!(
            "{}://{}",
            base.scheme_str().context("a scheme")?,
            base.authority().context("an authority")?
        );
        // A path, or a whole URL of the same origin; no other is to be followed.
        let endpoint = match first.data.strip_prefix('/') {
            Some(path) => format!("{origin}/{path}"),
            None => first.data,
        };
        ensure!(endpoint.starts_with(&format!("{origin}/")), "{endpoint}");
        Ok(Self {
            client: client.clone(),
            headers: headers.clone(),
            stream,
            endpoint,
        })
    }

    /// Where messages are posted: a full URL.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Posts these bytes as a message; the reply as it is.
    pub async fn post(&self, body: impl Into<Bytes>) -> anyhow::Result<Reply> {
        let mut request = Request::post(&self.endpoint).body(body.into())?;
        let headers = request.headers_mut();
        headers.extend(self.headers.clone());
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        self.client.send(request).await
    }

    /// The stream, for the events as they are.
    pub fn stream(&mut self) -> &mut Reply {
        &mut self.stream
    }
}

impl Connection for LegacyConnection {
    async fn send(&mut self, message: &Value) -> anyhow::Result<()> {
        let reply = self.post(serde_json::to_vec(message)?).await?;
        if !reply.status.is_success() {
            let status = reply.status;
            bail!(
                "status {status}: {}",
                reply.text().await.unwrap_or_default()
            );
        }
        Ok(())
    }

    async fn receive(&mut self) -> anyhow::Result<Option<Value>> {
        self.stream.next_message().await
    }
}
