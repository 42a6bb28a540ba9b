//! `[upstream]`: how upstream servers are talked to, and when one of their instances counts as lost.

use std::time::Duration;

use super::reader::Reader;
use super::rows::settings;

settings! {
    /// How upstream servers are talked to.
    pub struct UpstreamSettings {
        /// How long one attempt to connect to an instance may take.
        pub connect_timeout: Duration = Integer("upstream.connect_timeout_ms", "milliseconds", 1000, 10..=60_000),
        /// How long a refused connection is tried again before the instance counts as lost and its sessions move to
        /// another one. Longer bridges a restart in place; shorter moves sessions sooner.
        pub lost_after: Duration = Integer("upstream.lost_after_ms", "milliseconds", 600, 0..=60_000),
        /// How long an idle connection is kept. It should be shorter than the keep-alive of the servers (5000 is
        /// common), so that a connection is not reused while its server closes it.
        pub idle_connection: Duration = Integer("upstream.idle_connection_ms", "milliseconds", 4000, 0..=3_600_000),
        /// How long one gateway may take to initialize an upstream session before another may try; at least
        /// `upstream.response_headers_timeout_ms`.
        pub claim_lease: Duration = Integer("upstream.claim_lease_ms", "milliseconds", 10_000, 100..=600_000),
        /// How long an instance may take to begin its reply to `initialize` and to a probe. Clients' calls have no such
        /// limit: a tool may take as long as its client waits.
        pub response_headers_timeout: Duration =
            Integer("upstream.response_headers_timeout_ms", "milliseconds", 10_000, 100..=600_000),
        /// How often an instance that has answered nothing in between is probed in the background, by a ping without a
        /// session; for a program, whether it is there. `/readyz` and metrics have the result, which only several
        /// outcomes in a row change. 0 turns it off.
        pub probe_interval: Duration =
            Integer("upstream.probe_interval_ms", "milliseconds", 10_000, 0..=3_600_000),
        /// Maximum size of one event of an upstream; a larger one ends the reply with an error. JSON replies whose `id`
        /// comes first are streamed at any length; others are buffered up to their id, at most this many bytes.
        pub event_bytes_max: usize =
            Integer("upstream.event_bytes_max", "bytes", 16 * 1024 * 1024, 1024..=256 * 1024 * 1024),
        /// Maximum total size of the replies in memory, which are buffered because they must be complete (events,
        /// results that a hook checks) or because a client reads slowly. Only the part of a reply beyond 64 KiB counts.
        /// Reading a reply pauses while there is no room, for at most 30 seconds. One user gets at most a quarter of
        /// it; if `auth.mode` is `none`, all clients are one user, who gets all of it. At least
        /// `upstream.event_bytes_max`.
        pub reply_budget_bytes: usize =
            Integer("upstream.reply_budget_bytes", "bytes", 256 * 1024 * 1024, 1024..=64 * 1024 * 1024 * 1024)
            => |reader, row| reader.at_least(row, event_bytes_max, "an event", "upstream.event_bytes_max"),
        /// How long a server's request to a client (elicitation, sampling, roots) may wait for an answer before the
        /// server gets a timeout error. It is long because a person may have to answer.
        pub client_answer_timeout: Duration =
            Integer("upstream.client_answer_timeout_ms", "milliseconds", 300_000, 1000..=86_400_000),
        /// How many of its latest events a session's connection of kind `stdio` or `sse` keeps for clients that resume
        /// a stream with Last-Event-ID. A client that has missed more is notified.
        pub event_log_events_max: usize = Integer("upstream.event_log_events_max", "events", 100, 1..=10_000),
        /// Maximum total size of these events; the oldest are dropped first.
        pub event_log_bytes_max: usize =
            Integer("upstream.event_log_bytes_max", "bytes", 1024 * 1024, 1024..=64 * 1024 * 1024),
    }
}

impl UpstreamSettings {
    pub(super) fn parse(reader: &mut Reader<'_>) -> Self {
        let upstream = Self::read(reader);
        let both_valid = !reader.was_refused(&Self::claim_lease)
            && !reader.was_refused(&Self::response_headers_timeout);
        let (lease_ms, least) = (
            upstream.claim_lease.as_millis(),
            upstream.response_headers_timeout.as_millis(),
        );
        if both_valid && lease_ms < least {
            let reason = format!(
                "upstream.response_headers_timeout_ms is {least}: the lease would end while its holder still waits \
                 for `initialize`"
            );
            let allowed = format!("at least {least}");
            reader.refuse(&Self::claim_lease, lease_ms.to_string(), reason, allowed);
        }
        upstream
    }
}
