//! `[listen]`, as far as it limits what clients may use up: connections, time, and streams.

use std::time::Duration;

use super::rows::settings;

settings! {
    /// What client connections may use up.
    pub struct ConnectionSettings {
        /// Most client connections at a time, and never more than half of the files that the system lets the process open. In
        /// up to 64 connections beyond it, `/healthz`, `/readyz` and `/metrics` are answered, and everything else with status
        /// 503; further ones are closed.
        pub connections_max: usize = Integer("listen.connections_max", "connections", 10_000, 1..=1_000_000),
        /// Most client connections at a time from one IPv4 address or one IPv6 network of 64 bits; further ones are closed.
        /// Loopback addresses and `auth.trusted_peers`, from where the connections of many clients come, have no such limit.
        pub connections_per_peer_max: usize =
            Integer("listen.connections_per_peer_max", "connections", 256, 1..=1_000_000),
        /// How long the head of a request may take: of the first from the moment that the connection is accepted, of a later
        /// one up to twice as long from its first byte. The connection is closed then.
        pub header_timeout: Duration = Integer("listen.header_timeout_ms", "milliseconds", 10_000, 100..=600_000),
        /// How long a client connection is kept without an open request. A load balancer in front should let go of its
        /// connections sooner, so that it never sends a request into one that is being closed.
        pub idle_timeout: Duration = Integer("listen.idle_timeout_ms", "milliseconds", 120_000, 100..=86_400_000),
        /// Most requests at a time in one HTTP/2 connection. HTTP/2 is spoken without TLS to clients that begin with it (h2c
        /// with prior knowledge); 0 turns it off.
        pub http2_streams_max: Option<u32> = Integer("listen.http2_streams_max", "requests", 64, 0..=1000),
    }
}
