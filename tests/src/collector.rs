//! A real collector of traces: rotel, which receives OTLP over HTTP and prints each span that it has received.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::paths;
use crate::port::free_port;
use crate::process::Process;
use crate::wait;

/// How long a span may take from its end to the collector: a batch waits for half a second, on a machine that others use.
const RECEIVED_WITHIN: Duration = Duration::from_secs(60);

/// A running collector.
#[derive(Debug)]
pub struct Collector {
    process: Process,
    port: u16,
    _directory: TempDir,
}

/// A span as the collector has received it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceivedSpan {
    /// The id of its trace.
    pub trace: String,
    /// Its own id.
    pub id: String,
    /// The id of its parent; empty for none.
    pub parent: String,
    /// Its name.
    pub name: String,
    /// `SERVER`, `CLIENT` or `INTERNAL`.
    pub kind: String,
    /// The `tracestate` of its trace.
    pub state: String,
    /// Whether its status is an error.
    pub is_error: bool,
    /// Its attributes, each with the type of its value.
    pub attributes: BTreeMap<String, String>,
    /// The ids of traces and spans that it is linked to.
    pub links: Vec<(String, String)>,
    /// What its process says of itself.
    pub resource: BTreeMap<String, String>,
}

impl Collector {
    /// Starts a collector.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_at(free_port()?).await
    }

    /// Starts a collector at this port.
    pub async fn start_at(port: u16) -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("mooring-collector-").context("make a directory")?;
        let mut command = Command::new(paths::tool("rotel-agent")?);
        command
            .arg("start")
            .args(["--exporter", "blackhole"])
            .args(["--debug-log", "traces", "--debug-log-verbosity", "detailed"])
            .args(["--otlp-http-endpoint", &format!("127.0.0.1:{port}")])
            .args([
                "--otlp-grpc-endpoint",
                &format!("127.0.0.1:{}", free_port()?),
            ])
            .arg("--pid-file")
            .arg(directory.path().join("pid"));
        let log = directory.path().join("log");
        let mut process = Process::start("collector", &mut command, &log)?;
        let listening = async || {
            TcpStream::connect(("127.0.0.1", port)).await?;
            Ok(())
        };
        process.ready(listening).await?;
        Ok(Self {
            process,
            port,
            _directory: directory,
        })
    }

    /// The endpoint for `telemetry.otlp_endpoint`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// All that it has received, as it prints it.
    #[must_use]
    pub fn text(&self) -> String {
        self.process.log_text()
    }

    /// What it has received so far.
    pub fn spans(&self) -> anyhow::Result<Vec<ReceivedSpan>> {
        read_spans(&self.text())
    }

    /// Waits until these spans were received; all those of their traces.
    pub async fn until(
        &self,
        what: &str,
        is_there: impl Fn(&[ReceivedSpan]) -> bool,
    ) -> anyhow::Result<Vec<ReceivedSpan>> {
        let waited = wait::until(what, RECEIVED_WITHIN, async || {
            let spans = self.spans()?;
            Ok(is_there(&spans).then_some(spans))
        });
        waited
            .await
            .with_context(|| format!("received: {}", self.text()))
    }

    /// Stops it, so that its port refuses connections.
    pub async fn stop(mut self) -> anyhow::Result<u16> {
        self.process.terminate().await?;
        Ok(self.port)
    }
}

impl ReceivedSpan {
    /// The value of an attribute; empty if it has none of this name.
    #[must_use]
    pub fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }

    /// Whether it is a child of this one.
    #[must_use]
    pub fn is_child_of(&self, other: &Self) -> bool {
        self.trace == other.trace && self.parent == other.id
    }
}

/// Reads what rotel prints. Its lines are names with values behind a colon; those of lists begin with an arrow.
fn read_spans(text: &str) -> anyhow::Result<Vec<ReceivedSpan>> {
    /// The list that the arrows belong to.
    #[derive(Clone, Copy)]
    enum List {
        Resource,
        Attributes,
        Links,
        Other,
    }
    let mut spans: Vec<ReceivedSpan> = Vec::new();
    let mut resource = BTreeMap::new();
    let mut list = List::Other;
    // The last line may be half written.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    for line in whole.lines() {
        let line = line.trim();
        if let Some(entry) = line.strip_prefix("-> ") {
            let (name, value) = entry
                .split_once(": ")
                .unwrap_or((entry.trim_end_matches(':'), ""));
            let (name, value) = (name.to_owned(), value.to_owned());
            match (list, spans.last_mut()) {
                (List::Resource, _) => drop(resource.insert(name, value)),
                (List::Attributes, Some(span)) => drop(span.attributes.insert(name, value)),
                (List::Links, Some(span)) => match (name.as_str(), span.links.last_mut()) {
                    ("Trace ID", Some(link)) => link.0 = value,
                    ("ID", Some(link)) => link.1 = value,
                    _ => {}
                },
                _ => {}
            }
            continue;
        }
        if line == "Resource attributes:" {
            (list, resource) = (List::Resource, BTreeMap::new());
        } else if line.starts_with("Span #") {
            list = List::Other;
            spans.push(ReceivedSpan {
                resource: resource.clone(),
                ..ReceivedSpan::default()
            });
        } else if line == "Attributes:" {
            list = List::Attributes;
        } else if line.starts_with("SpanLink #") {
            list = List::Links;
            let span = spans.last_mut().context("a link belongs to a span")?;
            span.links.push(Default::default());
        } else if let (Some((name, value)), Some(span)) = (line.split_once(':'), spans.last_mut()) {
            let value = value.trim().to_owned();
            match name.trim() {
                "Trace ID" => span.trace = value,
                "Parent ID" => span.parent = value,
                "ID" => span.id = value,
                "Name" => span.name = value,
                "Kind" => span.kind = value.trim_start_matches("SPAN_KIND_").to_owned(),
                "TraceState" => span.state = value,
                "Status code" => span.is_error = value == "STATUS_CODE_ERROR",
                _ => {}
            }
        }
    }
    ensure!(
        spans.iter().all(|span| span.trace.len() == 32),
        "rotel prints spans in another form: {text}"
    );
    Ok(spans)
}
