//! `[upstream]`: how upstream servers are talked to, and when one of their instances counts as lost.

use std::time::Duration;

use super::reader::Reader;
use super::setting::{Integer, Setting, SettingInfo};

pub(super) const CONNECT_TIMEOUT_MS: Integer = Integer {
    about: SettingInfo::new(
        "upstream.connect_timeout_ms",
        "How long one attempt to connect to an instance may take.",
    ),
    unit: "milliseconds",
    default: 1000,
    least: 10,
    most: 60_000,
};

pub(super) const LOST_AFTER_MS: Integer = Integer {
    about: SettingInfo::new(
        "upstream.lost_after_ms",
        "How long a refused connection is tried again before the instance counts as lost and its sessions \
         move to another one. Longer bridges a restart in place; shorter moves sessions sooner.",
    ),
    unit: "milliseconds",
    default: 600,
    least: 0,
    most: 60_000,
};

pub(super) const IDLE_CONNECTION_MS: Integer = Integer {
    about: SettingInfo::new(
        "upstream.idle_connection_ms",
        "How long an idle connection is kept. Shorter than the keep-alive of the servers in use (5000 is \
         common), so that a connection is not reused in the moment its server closes it.",
    ),
    unit: "milliseconds",
    default: 4000,
    least: 0,
    most: 3_600_000,
};

pub(super) const CLAIM_LEASE_MS: Integer = Integer {
    about: SettingInfo::new(
        "upstream.claim_lease_ms",
        "How long one worker may take to initialise an upstream session before another may try; at least \
         `upstream.response_headers_timeout_ms`.",
    ),
    unit: "milliseconds",
    default: 10_000,
    least: 100,
    most: 600_000,
};

pub(super) const RESPONSE_HEADERS_TIMEOUT_MS: Integer = Integer {
    about: SettingInfo::new(
        "upstream.response_headers_timeout_ms",
        "How long an instance may take to begin its answer to `initialize` and to a probe. Calls of clients \
         have no such limit: a tool may take as long as its client waits.",
    ),
    unit: "milliseconds",
    default: 10_000,
    least: 100,
    most: 600_000,
};

pub(super) const EVENT_BYTES_MAX: Integer = Integer {
    about: SettingInfo::new(
        "upstream.event_bytes_max",
        "The largest single event of an upstream that is passed on; a larger one ends the reply with an \
         error. Answers that are JSON stream through at any length.",
    ),
    unit: "bytes",
    default: 16 * 1024 * 1024,
    least: 1024,
    most: 256 * 1024 * 1024,
};

pub(super) const CLIENT_ANSWER_TIMEOUT_MS: Integer = Integer {
    about: SettingInfo::new(
        "upstream.client_answer_timeout_ms",
        "How long what a server asks of a client (elicitation, sampling, roots) may wait for its answer before the \
         server is told that nobody answered. A person may be asked, so it is long.",
    ),
    unit: "milliseconds",
    default: 300_000,
    least: 1000,
    most: 86_400_000,
};

pub(super) const EVENT_LOG_EVENTS_MAX: Integer = Integer {
    about: SettingInfo::new(
        "upstream.event_log_events_max",
        "How many of its last events a session's connection of kind `stdio` or `sse` keeps for clients that resume a \
         stream with Last-Event-ID. Whoever has missed more is told so.",
    ),
    unit: "events",
    default: 100,
    least: 1,
    most: 10_000,
};

pub(super) const EVENT_LOG_BYTES_MAX: Integer = Integer {
    about: SettingInfo::new(
        "upstream.event_log_bytes_max",
        "How many bytes these events may have together; the oldest go first.",
    ),
    unit: "bytes",
    default: 1024 * 1024,
    least: 1024,
    most: 64 * 1024 * 1024,
};

/// The rows of this section.
pub(super) const SETTINGS: &[Setting] = &[
    Setting::Integer(&CONNECT_TIMEOUT_MS),
    Setting::Integer(&LOST_AFTER_MS),
    Setting::Integer(&IDLE_CONNECTION_MS),
    Setting::Integer(&CLAIM_LEASE_MS),
    Setting::Integer(&RESPONSE_HEADERS_TIMEOUT_MS),
    Setting::Integer(&EVENT_BYTES_MAX),
    Setting::Integer(&CLIENT_ANSWER_TIMEOUT_MS),
    Setting::Integer(&EVENT_LOG_EVENTS_MAX),
    Setting::Integer(&EVENT_LOG_BYTES_MAX),
];

/// How upstream servers are talked to.
#[derive(Debug, Clone)]
pub struct UpstreamSettings {
    /// Longest single attempt to connect.
    pub connect_timeout: Duration,
    /// How long refused connections are tried again before the instance counts as lost.
    pub lost_after: Duration,
    /// Longest time an idle connection is kept.
    pub idle_connection: Duration,
    /// Lease of the claim under which one worker initialises.
    pub claim_lease: Duration,
    /// Longest wait for the answer to `initialize` or a probe to begin; never longer than the lease.
    pub response_headers_timeout: Duration,
    /// Largest single event in bytes.
    pub event_bytes_max: usize,
    /// Longest wait of a server's request for its client's answer.
    pub client_answer_timeout: Duration,
    /// Most events in the log of one connection.
    pub event_log_events_max: usize,
    /// Most bytes in the log of one connection.
    pub event_log_bytes_max: usize,
}

pub(super) fn parse(reader: &mut Reader<'_>) -> UpstreamSettings {
    let lease_ms = reader.integer(&CLAIM_LEASE_MS);
    let headers_ms = reader.integer(&RESPONSE_HEADERS_TIMEOUT_MS);
    let both_valid = !reader.was_refused(&CLAIM_LEASE_MS.about)
        && !reader.was_refused(&RESPONSE_HEADERS_TIMEOUT_MS.about);
    if both_valid && lease_ms < headers_ms {
        reader.refuse(
            &CLAIM_LEASE_MS.about,
            lease_ms.to_string(),
            format!(
                "{} is {headers_ms}: the lease would end while its holder still waits for `initialize`",
                RESPONSE_HEADERS_TIMEOUT_MS.about.key
            ),
            format!("at least {headers_ms}"),
        );
    }
    UpstreamSettings {
        connect_timeout: Duration::from_millis(reader.integer(&CONNECT_TIMEOUT_MS)),
        lost_after: Duration::from_millis(reader.integer(&LOST_AFTER_MS)),
        idle_connection: Duration::from_millis(reader.integer(&IDLE_CONNECTION_MS)),
        claim_lease: Duration::from_millis(lease_ms),
        response_headers_timeout: Duration::from_millis(headers_ms),
        event_bytes_max: size(reader, &EVENT_BYTES_MAX),
        client_answer_timeout: Duration::from_millis(reader.integer(&CLIENT_ANSWER_TIMEOUT_MS)),
        event_log_events_max: size(reader, &EVENT_LOG_EVENTS_MAX),
        event_log_bytes_max: size(reader, &EVENT_LOG_BYTES_MAX),
    }
}

fn size(reader: &mut Reader<'_>, setting: &'static Integer) -> usize {
    usize::try_from(reader.integer(setting)).unwrap_or(usize::MAX)
}
