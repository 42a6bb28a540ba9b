//! The metrics that several parts of the gateway count, each named once. Labels are bounded sets, never ids or e-mails.
//! Metrics of one part alone stand in that part.

#[macro_use]
mod table;

mod agent;
mod code;
mod connections;
mod exchanges;
mod governance;
mod hooks;
mod logs;
mod process;
mod traces;
mod traffic;

use std::sync::LazyLock;

pub use agent::{AgentOutcome, agent_run};
pub use code::{
    LockUse, RunOutcome, SandboxHelper, SessionRetired, code_files_refused, code_lock_held,
    code_rate_limited, code_run, code_session_opened, code_session_retired, code_snapshot,
    code_tools_tree, sandbox_start, turn_wait,
};
pub use connections::{
    ConnectionRefusal, StrangerReply, client_connection_refused, reply_delayed, requests_refused,
};
pub use exchanges::{
    ExchangeOutcome, ExchangeTimer, REQUEST_SECONDS, UPSTREAM_SECONDS, recent_exchanges,
};
pub use governance::{
    Record, code_record_failed, code_records_pruned, code_replayed, code_runs_lost,
    code_security_event, code_skill_changed,
};
pub use hooks::{HookOutcome, hook_answered};
pub use logs::{LogLoss, log_line_lost};
use metrics::{Counter, counter, gauge};
pub use process::process_figures;
use strum::VariantArray as _;
pub use traces::{SpanLoss, spans_dropped, spans_exported};
pub use traffic::{ExchangeFigures, RecentExchanges, recent_time};

metrics! {
    fn describe_rows;
    /// Bindings this worker made or drove last.
    pub BINDINGS_ACTIVE = gauge("session_affinity_bindings_active").zero();
    /// Connections to servers of the kinds stdio and sse that live in this worker.
    pub CONNECTIONS_OWNED = gauge("mooring_connections_owned").zero();
    /// Requests routed to an existing binding.
    pub HITS = counter("session_affinity_hits_total").zero();
    /// Requests that met no binding.
    pub MISSES = counter("session_affinity_misses_total").zero();
    /// Bindings moved, by reason.
    pub REBINDS = counter("session_affinity_rebinds_total")
        .zero("reason", ["upstream", "owner", "drain", "worker"]);
    /// Bindings that could not be made, by reason.
    pub FAILURES = counter("session_affinity_failures_total").zero("reason", ["no_instance"]);
    /// Attempts to clean up after sessions that expired or ended, by outcome.
    pub REAPED = counter("mooring_reaped_sessions_total").zero("outcome", ReapOutcome::VARIANTS);
    /// Sessions that a principal's cap ended or refused, by outcome.
    pub CAPPED = counter("mooring_capped_sessions_total").zero("outcome", CapOutcome::VARIANTS);
    /// Messages of upstream servers that were dropped because they cannot be forwarded.
    pub UPSTREAM_DROPPED = counter("mooring_upstream_messages_dropped_total").zero();
    /// Replies that answer another request than the one they came for, by source.
    pub REPLIES_MISMATCHED = counter("mooring_mismatched_replies_total").zero("source", ReplySource::VARIANTS);
    /// Claims of other workers that the store reported as settled.
    pub CLAIM_NEWS = counter("mooring_claim_news_total").zero();
    /// What became of delegated turns, by event.
    pub DELEGATIONS = counter("mooring_turn_delegations_total").zero("event", DelegationEvent::VARIANTS);
    /// Always 1, with the version of the gateway.
    pub BUILD_INFO = gauge("mooring_build_info");
    /// 1 while the store is away.
    pub DEGRADED = gauge("mooring_degraded").zero();
    /// 1 while the gateway drains or stops.
    pub DRAINING = gauge("mooring_draining").zero();
    /// Time of one store command, by command.
    pub STORE_SECONDS = histogram("mooring_store_duration_seconds");
    /// Primaries of the Redis Cluster, by state.
    pub STORE_PRIMARIES = gauge("mooring_store_primaries").zero("state", ["up", "away"]);
    /// Connections to Redis that were closed because a reply was another command's, malformed or too large.
    pub STORE_REPLIES_REFUSED = counter("mooring_store_replies_refused_total").zero();
    /// Entries of sessions' histories, by outcome.
    pub HISTORY_ENTRIES = counter("mooring_history_entries_total").zero("outcome", ["written", "left_out"]);
}

/// Upper bounds of the histograms' buckets, in seconds: from below one Redis round trip to above a slow tool.
pub const BUCKETS_SECONDS: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0, 300.0,
];

/// Registers descriptions, and the counters at zero, so that a scrape before the first event shows them.
pub fn describe() {
    describe_rows();
    gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    agent::describe();
    code::describe();
    connections::describe();
    exchanges::describe();
    governance::describe();
    hooks::describe();
    logs::describe();
    process::describe();
    traces::describe();
}

/// A request was routed to an existing binding.
pub fn affinity_hit() {
    // What every call records is looked up once: a look-up costs more than the record.
    static COUNTER: LazyLock<Counter> = LazyLock::new(|| counter!(HITS));
    COUNTER.increment(1);
}

/// A request met no binding.
pub fn affinity_miss() {
    counter!(MISSES).increment(1);
}

/// A binding was moved: `upstream`, `owner`, `drain`, or `worker` for the first use after a worker's death.
pub fn affinity_rebind(reason: &'static str) {
    counter!(REBINDS, "reason" => reason).increment(1);
}

/// A binding could not be made: `no_instance`.
pub fn affinity_failure(reason: &'static str) {
    counter!(FAILURES, "reason" => reason).increment(1);
}

/// The outcome of one attempt to clean up after a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ReapOutcome {
    /// All that it held is deleted upstream.
    Cleaned,
    /// All that could be is; something was at a server or instance that is not configured any more.
    Unconfigured,
    /// An instance did not answer, or with an error: it is tried again until the record's tombstone ends.
    PutOff,
    /// Its client came back meanwhile, or another worker took it over.
    Stale,
}

/// One attempt to clean up after a session.
pub fn session_reaped(outcome: ReapOutcome) {
    counter!(REAPED, "outcome" => <&'static str>::from(outcome)).increment(1);
}

/// Which session a session cap ended or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum CapOutcome {
    /// The least recently used one was ended.
    Ended,
    /// The new one was refused: all the others are in use.
    Refused,
}

/// A message of an upstream server was dropped.
pub fn upstream_message_dropped() {
    counter!(UPSTREAM_DROPPED).increment(1);
}

/// The sender of a reply that does not match its request.
#[derive(Clone, Copy, Debug, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ReplySource {
    /// An upstream server.
    Upstream,
    /// A hook.
    Hook,
}

/// A reply came that answers another request. It was dropped, and its connection closed.
pub fn reply_mismatched(source: ReplySource) {
    counter!(REPLIES_MISMATCHED, "source" => <&'static str>::from(source)).increment(1);
}

/// A principal was at its cap.
pub fn session_capped(outcome: CapOutcome) {
    counter!(CAPPED, "outcome" => <&'static str>::from(outcome)).increment(1);
}

/// The store reported that another worker's claim has settled.
pub fn claim_news() {
    counter!(CLAIM_NEWS).increment(1);
}

/// What happened to a delegated turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum DelegationEvent {
    /// The store delegated it to this gateway.
    Granted,
    /// A call has it from this gateway.
    Used,
    /// A call that lasts keeps it for itself.
    Kept,
    /// It was left because another caller waits for it, its binding has changed, or this gateway stops.
    Recalled,
    /// It was left because no call used it.
    Unused,
    /// The store had ended it before it was renewed.
    Lapsed,
    /// It ended because recalls may not arrive.
    Broken,
    /// A message to a server whose calls have no turns used the route that the store delegated.
    RouteUsed,
    /// A delegated route was dropped because its binding has changed.
    RouteRecalled,
}

fn delegations(event: DelegationEvent) -> Counter {
    counter!(DELEGATIONS, "event" => <&'static str>::from(event))
}

/// Something happened to a delegated turn or route.
pub fn delegation(event: DelegationEvent) {
    // Most calls are uses.
    static USED: LazyLock<Counter> = LazyLock::new(|| delegations(DelegationEvent::Used));
    static ROUTE_USED: LazyLock<Counter> =
        LazyLock::new(|| delegations(DelegationEvent::RouteUsed));
    match event {
        DelegationEvent::Used => USED.increment(1),
        DelegationEvent::RouteUsed => ROUTE_USED.increment(1),
        event => delegations(event).increment(1),
    }
}

/// Sets the gauges that are computed at each scrape.
#[allow(
    clippy::cast_precision_loss,
    reason = "counts of bindings and connections are far below 2^52"
)]
pub fn snapshot(bindings: usize, connections: usize, is_degraded: bool, is_draining: bool) {
    gauge!(BINDINGS_ACTIVE).set(bindings as f64);
    gauge!(CONNECTIONS_OWNED).set(connections as f64);
    gauge!(DEGRADED).set(if is_degraded { 1.0 } else { 0.0 });
    gauge!(DRAINING).set(if is_draining { 1.0 } else { 0.0 });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_and_outcome_is_documented() {
        const PAGE: &str = include_str!("../../../docs/metrics.md");
        let files = [
            ALL,
            agent::ALL,
            code::ALL,
            connections::ALL,
            exchanges::ALL,
            governance::ALL,
            hooks::ALL,
            logs::ALL,
            &process::ALL,
            traces::ALL,
        ];
        for name in files.concat() {
            assert!(PAGE.contains(name), "{name}");
        }
        for outcome in ReapOutcome::VARIANTS.iter().map(<&'static str>::from) {
            assert!(PAGE.contains(&format!("| `{outcome}` |")), "{outcome}");
        }
        let words = RunOutcome::VARIANTS
            .iter()
            .map(<&'static str>::from)
            .chain(ExchangeOutcome::VARIANTS.iter().map(<&'static str>::from))
            .chain(LockUse::VARIANTS.iter().map(<&'static str>::from))
            .chain(SessionRetired::VARIANTS.iter().map(<&'static str>::from))
            .chain(Record::VARIANTS.iter().map(<&'static str>::from))
            .chain(SpanLoss::VARIANTS.iter().map(<&'static str>::from));
        for word in words {
            assert!(PAGE.contains(&format!("`{word}`")), "{word}");
        }
    }
}
