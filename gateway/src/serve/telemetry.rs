//! Traces: the tracer of this process, and how its spans reach the collector: over OTLP, with the HTTP client that requests
//! to upstream servers have.
//!
//! Invariant: nothing waits for the collector but the end of the process, and that not longer than [`FLUSHED_WITHIN`].

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri};
use mooring_session::names::WorkerId;
use opentelemetry_http::HttpError;
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use tokio::time::timeout;

use mooring_settings::{Settings, TelemetrySettings};
use mooring_traces::{ExportOutlet, SpanQueue, Tracer};
use mooring_upstream::{
    ClientError, HttpClient, HttpClientOptions, SilenceLimits, tls_config, with_causes,
};

/// The path of traces below the endpoint (OTLP, HTTP requests).
const TRACES_PATH: &str = "/v1/traces";
/// The type of a request.
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
/// How long the collector may take for one request.
const EXPORTED_WITHIN: Duration = Duration::from_secs(10);
/// How long an ending process waits until its last spans are sent.
pub(super) const FLUSHED_WITHIN: Duration = Duration::from_secs(2);
/// Longest answer of the collector that is read: it says which spans it rejects.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// How long an idle connection is kept: several batches.
const IDLE_CONNECTION: Duration = Duration::from_secs(4);
/// Timeout for one attempt to connect.
const CONNECTED_WITHIN: Duration = Duration::from_secs(2);

/// Why spans cannot be sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TelemetryError {
    /// There is no client for the collector.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The exporter cannot be made, as with a variable of OpenTelemetry that it cannot read.
    #[error("spans cannot be exported")]
    Exporter(#[from] ExporterBuildError),
}

/// The tracer of this process, whose spans are being sent.
#[derive(Debug)]
pub(crate) struct Telemetry {
    pub(crate) tracer: Tracer,
    pub(crate) outlet: ExportOutlet,
}

/// Starts to trace and to send spans; none if no collector is configured.
pub(super) fn start(
    settings: &Settings,
    worker: &WorkerId,
) -> Result<Option<Telemetry>, TelemetryError> {
    let telemetry = &settings.telemetry;
    let Some(endpoint) = &telemetry.otlp_endpoint else {
        return Ok(None);
    };
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(CollectorClient::new(telemetry, endpoint)?)
        .with_endpoint(traces_url(endpoint))
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(EXPORTED_WITHIN)
        .build()?;
    let resource = Tracer::resource(
        &telemetry.service_name,
        worker.as_str(),
        telemetry.resource_attributes.iter().cloned(),
    );
    let (queue, export, outlet) = SpanQueue::new(exporter);
    // Ends with the tracer.
    tokio::spawn(export.run(resource.clone()));
    tracing::info!(%endpoint, sample_ratio = telemetry.sample_ratio, "requests are traced");
    Ok(Some(Telemetry {
        tracer: Tracer::new(queue, telemetry.sample_ratio, resource),
        outlet,
    }))
}

/// Asks the collector whether it takes traces, by a request without any. Returns its URL.
///
/// # Errors
/// Why it takes none, after its URL.
pub(super) async fn ask_collector(
    telemetry: &TelemetrySettings,
    endpoint: &Uri,
) -> Result<String, String> {
    let url = traces_url(endpoint);
    let problem = |reason: String| format!("{url} takes no traces: {reason}");
    let client = CollectorClient::new(telemetry, endpoint);
    let client = client.map_err(|error| problem(with_causes(&error)))?;
    let request = Request::post(&url).header(CONTENT_TYPE, PROTOBUF);
    let request = request.body(Bytes::new());
    let request = request.map_err(|error| problem(error.to_string()))?;
    match client.send(request).await {
        Ok(response) if response.status().is_success() => Ok(url),
        Ok(response) => Err(problem(format!(
            "it answered with status {}",
            response.status()
        ))),
        Err(error) => Err(problem(error.to_string())),
    }
}

fn traces_url(endpoint: &Uri) -> String {
    let endpoint = endpoint.to_string();
    format!("{}{TRACES_PATH}", endpoint.trim_end_matches('/'))
}

/// The client to the collector.
#[derive(Debug)]
struct CollectorClient {
    http: HttpClient,
    headers: HeaderMap,
}

impl CollectorClient {
    fn new(telemetry: &TelemetrySettings, endpoint: &Uri) -> Result<Self, ClientError> {
        let options = HttpClientOptions {
            connect_timeout: CONNECTED_WITHIN,
            idle_connection: IDLE_CONNECTION,
            silence: SilenceLimits::default(),
            event_bytes_max: ANSWER_BYTES_MAX,
        };
        let needs_tls = endpoint.scheme_str() == Some("https");
        Ok(Self {
            http: HttpClient::new(options, tls_config(needs_tls)?),
            headers: telemetry.headers.map().clone(),
        })
    }

    async fn send(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        for (name, value) in &self.headers {
            request.headers_mut().insert(name, value.clone());
        }
        let exchange = async {
            let reply = self.http.request(&request).await?;
            let status = reply.status;
            let text = reply.body.read_text(ANSWER_BYTES_MAX).await?;
            Ok::<_, HttpError>(answer(status, text))
        };
        timeout(EXPORTED_WITHIN, exchange).await?
    }
}

fn answer(status: StatusCode, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

#[async_trait]
impl opentelemetry_http::HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let response = self.send(request).await?;
        // The exporter logs the whole answer at an error.
        match response.status() {
            status if status.is_success() => Ok(response),
            status => Err(format!("the collector answered with status {status}").into()),
        }
    }
}
