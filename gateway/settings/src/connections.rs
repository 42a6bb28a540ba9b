//! `[listen]`, as far as it limits what clients may use up: connections, time, and streams.

use std::time::Duration;

use super::reader::Reader;
use super::setting::{Integer, Setting, SettingInfo};

pub(super) const CONNECTIONS_MAX: Integer = Integer {
    about: SettingInfo::new(
        "listen.connections_max",
        "Most client connections at a time, and never more than half of the files that the system lets the process \
         open. In up to 64 connections beyond it, `/healthz`, `/readyz` and `/metrics` are answered, and everything else \
         with status 503; further ones are closed.",
    ),
    unit: "connections",
    default: 10_000,
    least: 1,
    most: 1_000_000,
};

pub(super) const CONNECTIONS_PER_PEER_MAX: Integer = Integer {
    about: SettingInfo::new(
        "listen.connections_per_peer_max",
        "Most client connections at a time from one IPv4 address or one IPv6 network of 64 bits; further ones are closed. \
         Loopback addresses and `auth.trusted_peers`, from where the connections of many clients come, have no such limit.",
    ),
    unit: "connections",
    default: 256,
    least: 1,
    most: 1_000_000,
};

pub(super) const HEADER_TIMEOUT_MS: Integer = Integer {
    about: SettingInfo::new(
        "listen.header_timeout_ms",
        "How long the head of a request may take: of the first from the moment that the connection is accepted, of a \
         later one up to twice as long from its first byte. The connection is closed then.",
    ),
    unit: "milliseconds",
    default: 10_000,
    least: 100,
    most: 600_000,
};

pub(super) const IDLE_TIMEOUT_MS: Integer = Integer {
    about: SettingInfo::new(
        "listen.idle_timeout_ms",
        "How long a client connection is kept without an open request. A load balancer in front should let go of its \
         connections sooner, so that it never sends a request into one that is being closed.",
    ),
    unit: "milliseconds",
    default: 120_000,
    least: 100,
    most: 86_400_000,
};

pub(super) const HTTP2_STREAMS_MAX: Integer = Integer {
    about: SettingInfo::new(
        "listen.http2_streams_max",
        "Most requests at a time in one HTTP/2 connection. HTTP/2 is spoken without TLS to clients that begin with it \
         (h2c with prior knowledge); 0 turns it off.",
    ),
    unit: "requests",
    default: 64,
    least: 0,
    most: 1000,
};

/// The rows of this part of the section.
pub(super) const SETTINGS: &[Setting] = &[
    Setting::Integer(&CONNECTIONS_MAX),
    Setting::Integer(&CONNECTIONS_PER_PEER_MAX),
    Setting::Integer(&HEADER_TIMEOUT_MS),
    Setting::Integer(&IDLE_TIMEOUT_MS),
    Setting::Integer(&HTTP2_STREAMS_MAX),
];

/// What client connections may use up.
#[derive(Debug, Clone)]
pub struct ConnectionSettings {
    /// Most connections in all.
    pub connections_max: usize,
    /// Most connections of a peer that is neither on the loopback nor trusted.
    pub connections_per_peer_max: usize,
    /// How long the head of a request may take.
    pub header_timeout: Duration,
    /// How long a connection may be without an open request.
    pub idle_timeout: Duration,
    /// Most requests at a time in one HTTP/2 connection; none where HTTP/2 is not spoken.
    pub http2_streams_max: Option<u32>,
}

pub(super) fn parse(reader: &mut Reader<'_>) -> ConnectionSettings {
    let mut count = |setting| usize::try_from(reader.integer(setting)).unwrap_or(usize::MAX);
    let connections_max = count(&CONNECTIONS_MAX);
    let connections_per_peer_max = count(&CONNECTIONS_PER_PEER_MAX);
    let streams = u32::try_from(reader.integer(&HTTP2_STREAMS_MAX)).unwrap_or(u32::MAX);
    ConnectionSettings {
        connections_max,
        connections_per_peer_max,
        header_timeout: Duration::from_millis(reader.integer(&HEADER_TIMEOUT_MS)),
        idle_timeout: Duration::from_millis(reader.integer(&IDLE_TIMEOUT_MS)),
        http2_streams_max: (streams > 0).then_some(streams),
    }
}
