//! The rmcp client, each of whose HTTP requests goes to the next gateway in turn.
//!
//! It behaves as a client behind a load balancer: what one gateway refuses, or breaks before it has sent
//! reply headers, goes to the next. rmcp itself knows nothing of this, except that it may not open a new
//! session where the old one is gone: that would hide exactly what these tests look for.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, ensure};
use futures_util::stream::BoxStream;
use http::{HeaderName, HeaderValue};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientJsonRpcMessage, JsonObject, ProtocolVersion, Tool,
};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use serde_json::Value;
use sse_stream::{Error as SseError, Sse};

type Failure = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;

/// An rmcp session over several gateways.
#[derive(Debug)]
pub(crate) struct RmcpSession {
    service: RunningService<RoleClient, ()>,
}

impl RmcpSession {
    /// Initializes over `endpoints` (full URLs), beginning with the one at `first`.
    pub(crate) async fn open(endpoints: &[String], first: usize) -> anyhow::Result<Self> {
        Self::open_as(endpoints, first, ClientLifecycleMode::Initialize).await
    }

    /// Finds out whether the server is one of 2026-07-28, and initializes for `legacy_version` where it is not.
    pub(crate) async fn open_auto(
        endpoints: &[String],
        legacy_version: ProtocolVersion,
    ) -> anyhow::Result<Self> {
        let lifecycle = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(legacy_version),
        };
        Self::open_as(endpoints, 0, lifecycle).await
    }

    async fn open_as(
        endpoints: &[String],
        first: usize,
        lifecycle: ClientLifecycleMode,
    ) -> anyhow::Result<Self> {
        let uri = endpoints.first().context("an endpoint")?.clone();
        let config =
            StreamableHttpClientTransportConfig::with_uri(uri).reinit_on_expired_session(false);
        let client = RoundRobin {
            inner: reqwest::Client::builder()
                .tcp_nodelay(true)
                .build()
                .context("build a client")?,
            // At least one: the config took its address from it.
            endpoints: endpoints
                .iter()
                .map(|endpoint| Arc::from(endpoint.as_str()))
                .collect(),
            turn: Arc::new(AtomicUsize::new(first)),
        };
        let transport = StreamableHttpClientTransport::with_client(client, config);
        Ok(Self {
            service: ().serve_with_lifecycle(transport, lifecycle).await.context("initialize")?,
        })
    }

    /// The revision that was negotiated.
    #[must_use]
    pub(crate) fn protocol_version(&self) -> Option<String> {
        let info = self.service.peer_info()?;
        Some(info.protocol_version.to_string())
    }

    /// Calls `increment` and gives the count.
    pub(crate) async fn increment(&self) -> anyhow::Result<u64> {
        let result = self.call("increment", JsonObject::new()).await?;
        let structured = result.structured_content.context("structured content")?;
        structured
            .get("count")
            .and_then(Value::as_u64)
            .with_context(|| format!("a count: {structured}"))
    }

    /// Calls a tool; its result. An error that the tool reports is an error.
    pub(crate) async fn call(
        &self,
        tool: &'static str,
        arguments: JsonObject,
    ) -> anyhow::Result<CallToolResult> {
        let params = CallToolRequestParams::new(tool).with_arguments(arguments);
        let result = self.service.call_tool(params).await?;
        ensure!(result.is_error != Some(true), "{tool}: {result:?}");
        Ok(result)
    }

    /// All tools that the server lists.
    pub(crate) async fn tools(&self) -> anyhow::Result<Vec<Tool>> {
        Ok(self.service.list_all_tools().await?)
    }

    /// The URIs of all resources that the server lists to this session.
    pub(crate) async fn resource_uris(&self) -> anyhow::Result<Vec<String>> {
        let resources = self.service.list_all_resources().await?;
        Ok(resources
            .into_iter()
            .map(|resource| resource.uri.clone())
            .collect())
    }

    /// Ends the session by DELETE.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        self.service
            .cancel()
            .await
            .map(drop)
            .context("close the session")
    }
}

#[derive(Clone)]
struct RoundRobin {
    inner: reqwest::Client,
    endpoints: Arc<[Arc<str>]>,
    turn: Arc<AtomicUsize>,
}

impl RoundRobin {
    /// Each endpoint once, beginning with the next in turn.
    fn in_turn(&self) -> impl Iterator<Item = Arc<str>> {
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % self.endpoints.len();
        self.endpoints
            .iter()
            .cycle()
            .skip(first)
            .take(self.endpoints.len())
            .cloned()
    }
}

/// Whether no reply headers came, so that another gateway is to be asked.
fn unanswered<T>(answer: &Result<T, Failure>) -> bool {
    matches!(answer, Err(Failure::Client(error)) if error.is_connect() || error.is_request())
}

impl StreamableHttpClient for RoundRobin {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        _: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let mut answer = Err(Failure::UnexpectedEndOfStream);
        for endpoint in self.in_turn() {
            let (message, session_id) = (message.clone(), session_id.clone());
            let sent = self.inner.post_message(
                endpoint,
                message,
                session_id,
                token.clone(),
                headers.clone(),
            );
            answer = sent.await;
            if !unanswered(&answer) {
                break;
            }
        }
        answer
    }

    async fn delete_session(
        &self,
        _: Arc<str>,
        session_id: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<(), Failure> {
        let mut answer = Err(Failure::UnexpectedEndOfStream);
        for endpoint in self.in_turn() {
            let session_id = Arc::clone(&session_id);
            answer = self
                .inner
                .delete_session(endpoint, session_id, token.clone(), headers.clone())
                .await;
            if !unanswered(&answer) {
                break;
            }
        }
        answer
    }

    async fn get_stream(
        &self,
        _: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        let mut answer = Err(Failure::UnexpectedEndOfStream);
        for endpoint in self.in_turn() {
            let (session_id, last_event_id) = (session_id.clone(), last_event_id.clone());
            let sent = self.inner.get_stream(
                endpoint,
                session_id,
                last_event_id,
                token.clone(),
                headers.clone(),
            );
            answer = sent.await;
            if !unanswered(&answer) {
                break;
            }
        }
        answer
    }
}
