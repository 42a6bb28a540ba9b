//! Every metric of the gateway, named once. Labels are bounded sets, never ids or e-mails.

use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

/// Bindings this worker made or drove last.
pub const BINDINGS_ACTIVE: &str = "session_affinity_bindings_active";
/// Requests routed to an existing binding.
pub const HITS: &str = "session_affinity_hits_total";
/// Requests that met no binding.
pub const MISSES: &str = "session_affinity_misses_total";
/// Bindings moved, by `reason`.
pub const REBINDS: &str = "session_affinity_rebinds_total";
/// Bindings that could not be made, by `reason`.
pub const FAILURES: &str = "session_affinity_failures_total";
/// Whether the store is away.
pub const DEGRADED: &str = "mooring_degraded";
/// Time from a request's arrival to the head of its reply, by `server`, `method` and `era`.
pub const REQUEST_SECONDS: &str = "mooring_request_duration_seconds";
/// Time of one store command, by `command`.
pub const STORE_SECONDS: &str = "mooring_store_duration_seconds";
/// Time from a request's sending to the head of the upstream's response.
pub const UPSTREAM_SECONDS: &str = "mooring_upstream_duration_seconds";

/// Upper bounds of the histograms' buckets, in seconds: from below one Redis round trip to above a slow tool.
pub const BUCKETS_SECONDS: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0,
];

/// Registers descriptions, and the counters at zero, so that a scrape before the first event shows them.
pub fn describe() {
    describe_gauge!(BINDINGS_ACTIVE, "Bindings this worker made or drove last");
    describe_counter!(HITS, "Requests routed to an existing binding");
    describe_counter!(MISSES, "Requests that met no binding");
    describe_counter!(REBINDS, "Bindings moved, by reason");
    describe_counter!(FAILURES, "Bindings that could not be made, by reason");
    describe_gauge!(DEGRADED, "1 while the store is away");
    describe_histogram!(
        REQUEST_SECONDS,
        "Arrival of a request to the head of its reply"
    );
    describe_histogram!(STORE_SECONDS, "One store command");
    describe_histogram!(
        UPSTREAM_SECONDS,
        "Sending upstream to the head of the response"
    );
    counter!(HITS).absolute(0);
    counter!(MISSES).absolute(0);
    for reason in ["upstream", "owner", "drain", "worker"] {
        counter!(REBINDS, "reason" => reason).absolute(0);
    }
    counter!(FAILURES, "reason" => "no_instance").absolute(0);
    gauge!(BINDINGS_ACTIVE).set(0.0);
    gauge!(DEGRADED).set(0.0);
}

/// A request was routed to an existing binding.
pub fn affinity_hit() {
    counter!(HITS).increment(1);
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

/// What is set when it is scraped.
pub fn snapshot(bindings: usize, is_degraded: bool) {
    #[allow(
        clippy::cast_precision_loss,
        reason = "a count of bindings is far below 2^52"
    )]
    gauge!(BINDINGS_ACTIVE).set(bindings as f64);
    gauge!(DEGRADED).set(if is_degraded { 1.0 } else { 0.0 });
}

/// One request of a client.
pub fn request(server: &str, method: &'static str, took: Duration) {
    histogram!(REQUEST_SECONDS, "server" => server.to_owned(), "method" => method, "era" => "legacy")
        .record(took.as_secs_f64());
}

/// One exchange with an upstream, up to the head of its response.
pub fn upstream(took: Duration) {
    histogram!(UPSTREAM_SECONDS).record(took.as_secs_f64());
}
