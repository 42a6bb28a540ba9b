//! Durations of clients' requests and of exchanges with upstream servers, up to the last byte of the reply.
//!
//! Invariant: labels are configured servers and instances, known methods and [`ExchangeOutcome`]s. An exchange is
//! counted as in flight until its timer is dropped, even if its end is never reported.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use metrics::{Gauge, Histogram, Label, gauge, histogram};

use super::traffic::{RecentExchanges, TrafficCounter};

metrics! {
    pub(super) fn describe;
    /// Time from a request's arrival to the last byte of its reply, by server, method, status, outcome and era.
    pub REQUEST_SECONDS = histogram("mooring_request_duration_seconds");
    /// Time from a request's arrival to the first byte of its reply, by server and method.
    REQUEST_FIRST_BYTE_SECONDS = histogram("mooring_request_first_byte_seconds");
    /// Requests whose reply has not ended, by server.
    REQUESTS_IN_FLIGHT = gauge("mooring_requests_in_flight");
    /// Time from sending a message to the last byte of the upstream's reply, by server, instance, method and outcome.
    pub UPSTREAM_SECONDS = histogram("mooring_upstream_duration_seconds");
    /// Time from sending a message to the first byte of the upstream's reply, by server, instance and method.
    UPSTREAM_FIRST_BYTE_SECONDS = histogram("mooring_upstream_first_byte_seconds");
    /// Messages to upstream servers whose reply has not ended, by server and instance.
    UPSTREAM_IN_FLIGHT = gauge("mooring_upstream_requests_in_flight");
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ExchangeOutcome {
    /// With a result, or an accepted message.
    Ok,
    /// With the result of a tool that failed.
    ToolError,
    /// With a JSON-RPC error in a reply of status 2xx.
    Error,
    /// With a status 4xx.
    #[strum(serialize = "4xx")]
    Refused,
    /// With a status 5xx.
    #[strum(serialize = "5xx")]
    Failed,
    /// The reply broke.
    Broken,
    /// Its stream ended without the response.
    Unanswered,
    /// Its reader left before the end of the reply.
    Abandoned,
    /// It was not sent, or there was no reply.
    NoReply,
}

/// The series of one server, or of one instance of it.
#[derive(Debug)]
struct ExchangeSeries {
    side: ExchangeSide,
    labels: Vec<Label>,
    in_flight: Gauge,
    recent: TrafficCounter,
    first_byte: RwLock<Vec<(&'static str, Histogram)>>,
    ended: RwLock<Vec<(EndKind, Histogram)>>,
}

/// The labels of the ends of one server's exchanges: method, status class, outcome and era.
type EndKind = (&'static str, &'static str, ExchangeOutcome, &'static str);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExchangeSide {
    Client,
    Upstream,
}

/// One request or exchange that has begun. It is in flight until it is dropped.
#[derive(Debug)]
pub struct ExchangeTimer {
    series: Arc<ExchangeSeries>,
    method: &'static str,
    era: &'static str,
    started: Instant,
}

impl ExchangeTimer {
    /// A request of a client at this server, which arrived at `started`.
    #[must_use]
    pub fn of_request(server: &str, method: &'static str, started: Instant) -> Self {
        Self::begin(series(ExchangeSide::Client, server, ""), method, started)
    }

    /// The same request, as one without a session (MCP 2026-07-28).
    #[must_use]
    pub const fn sessionless(mut self) -> Self {
        self.era = "modern";
        self
    }

    /// A message to this instance, which is sent now.
    #[must_use]
    pub fn of_upstream(server: &str, instance: &str, method: &'static str) -> Self {
        let series = series(ExchangeSide::Upstream, server, instance);
        Self::begin(series, method, Instant::now())
    }

    fn begin(series: Arc<ExchangeSeries>, method: &'static str, started: Instant) -> Self {
        series.in_flight.increment(1.0);
        series.recent.begin();
        Self {
            series,
            method,
            era: "legacy",
            started,
        }
    }

    /// Records the end. `first_byte_at` is that of its reply, if there was one; `status` the reply's.
    pub fn end(&self, first_byte_at: Option<Instant>, status: u16, outcome: ExchangeOutcome) {
        if let Some(first_byte_at) = first_byte_at {
            let took = first_byte_at.saturating_duration_since(self.started);
            self.series.record_first_byte(self.method, took);
        }
        let kind = (self.method, status_class(status), outcome, self.era);
        let now = Instant::now();
        let took = now.saturating_duration_since(self.started);
        self.series.recent.end(outcome, took, now);
        self.series.record_end(kind, took);
    }
}

impl Drop for ExchangeTimer {
    fn drop(&mut self) {
        self.series.in_flight.decrement(1.0);
        self.series.recent.leave();
    }
}

impl ExchangeSeries {
    fn new(side: ExchangeSide, server: &str, instance: &str) -> Self {
        let mut labels = vec![Label::new("server", server.to_owned())];
        let in_flight = match side {
            ExchangeSide::Client => gauge!(REQUESTS_IN_FLIGHT, labels.iter()),
            ExchangeSide::Upstream => {
                labels.push(Label::new("instance", instance.to_owned()));
                gauge!(UPSTREAM_IN_FLIGHT, labels.iter())
            }
        };
        Self {
            side,
            labels,
            in_flight,
            recent: TrafficCounter::default(),
            first_byte: RwLock::default(),
            ended: RwLock::default(),
        }
    }

    fn record_first_byte(&self, method: &'static str, took: Duration) {
        let name = match self.side {
            ExchangeSide::Client => REQUEST_FIRST_BYTE_SECONDS,
            ExchangeSide::Upstream => UPSTREAM_FIRST_BYTE_SECONDS,
        };
        record(&self.first_byte, method, took, || {
            let mut labels = self.labels.clone();
            labels.push(Label::from_static_parts("method", method));
            histogram!(name, labels)
        });
    }

    fn record_end(&self, kind: EndKind, took: Duration) {
        record(&self.ended, kind, took, || {
            let (method, status, outcome, era) = kind;
            let mut labels = self.labels.clone();
            labels.push(Label::from_static_parts("method", method));
            labels.push(Label::from_static_parts("outcome", outcome.into()));
            match self.side {
                ExchangeSide::Client => {
                    labels.push(Label::from_static_parts("status", status));
                    labels.push(Label::from_static_parts("era", era));
                    histogram!(REQUEST_SECONDS, labels)
                }
                ExchangeSide::Upstream => histogram!(UPSTREAM_SECONDS, labels),
            }
        });
    }
}

/// Records in the histogram of this kind. What every call records is looked up once: a look-up costs more than the
/// record.
fn record<K: Copy + PartialEq>(
    known: &RwLock<Vec<(K, Histogram)>>,
    kind: K,
    took: Duration,
    make: impl FnOnce() -> Histogram,
) {
    let seconds = took.as_secs_f64();
    {
        let known = known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, histogram)) = known.iter().find(|(known, _)| *known == kind) {
            return histogram.record(seconds);
        }
    }
    let histogram = make();
    histogram.record(seconds);
    let mut known = known.write().unwrap_or_else(PoisonError::into_inner);
    known.push((kind, histogram));
}

/// What happened lately at each server and instance at which something did; the requests of clients come first.
#[must_use]
pub fn recent_exchanges() -> Vec<RecentExchanges> {
    let mut recent = Vec::new();
    for side in [ExchangeSide::Client, ExchangeSide::Upstream] {
        let known = known_series(side);
        let known = known.read().unwrap_or_else(PoisonError::into_inner);
        let of_all = known.iter().flat_map(|(server, of_server)| {
            let of_server = of_server.iter();
            of_server.map(move |(instance, series)| RecentExchanges {
                server: server.clone(),
                instance: (side == ExchangeSide::Upstream).then(|| instance.clone()),
                figures: series.recent.figures(),
            })
        });
        recent.extend(of_all.filter(|of| !of.figures.is_empty()));
    }
    recent
}

/// The series by server and instance.
type SeriesTable = BTreeMap<String, BTreeMap<String, Arc<ExchangeSeries>>>;

fn known_series(side: ExchangeSide) -> &'static RwLock<SeriesTable> {
    static REQUESTS: RwLock<SeriesTable> = RwLock::new(BTreeMap::new());
    static UPSTREAM: RwLock<SeriesTable> = RwLock::new(BTreeMap::new());
    match side {
        ExchangeSide::Client => &REQUESTS,
        ExchangeSide::Upstream => &UPSTREAM,
    }
}

/// The series of a configured server or instance.
fn series(side: ExchangeSide, server: &str, instance: &str) -> Arc<ExchangeSeries> {
    let known = known_series(side);
    {
        let known = known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(series) = known.get(server).and_then(|of| of.get(instance)) {
            return Arc::clone(series);
        }
    }
    let mut known = known.write().unwrap_or_else(PoisonError::into_inner);
    let of_server = known.entry(server.to_owned()).or_default();
    let new = || Arc::new(ExchangeSeries::new(side, server, instance));
    Arc::clone(of_server.entry(instance.to_owned()).or_insert_with(new))
}

const fn status_class(status: u16) -> &'static str {
    match status {
        ..400 => "2xx",
        400..500 => "4xx",
        500.. => "5xx",
    }
}
