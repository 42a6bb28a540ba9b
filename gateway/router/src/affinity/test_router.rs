//! A router for tests.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::time::Duration;

use mooring_session::names::WorkerId;
use mooring_session::time::Millis;

use super::{
    ConnectionSettings, OwnedConnections, RoutedServers, SessionLimits, SessionRouter,
    SessionRouterOptions,
};
use mooring_store::Store;
use mooring_upstream::{Client, HttpClient, HttpClientOptions, SilenceLimits, tls_config};

const SECOND: Duration = Duration::from_secs(1);

/// The router of this gateway, without servers. `delegation_lease` is zero for none.
pub(super) fn test_router(
    store: &Store,
    worker: &WorkerId,
    delegation_lease: Millis,
) -> SessionRouter {
    let client = HttpClientOptions {
        connect_timeout: SECOND,
        idle_connection: SECOND,
        silence: SilenceLimits::default(),
        event_bytes_max: 1024,
    };
    let connections = ConnectionSettings {
        message_bytes_max: 1024,
        events_max: 1,
        event_bytes_max: 1024,
        client_answer_timeout: SECOND,
    };
    let options = SessionRouterOptions {
        session_ttl: Millis::new(60_000),
        claim_lease: Millis::new(1_000),
        turn_wait_max: SECOND,
        delegation_lease,
        answer_timeout: SECOND,
        key_prefix: "mcpgw:".into(),
    };
    SessionRouter::new(
        store.clone(),
        Client::new(HttpClient::new(client, tls_config(false).unwrap()), SECOND),
        RoutedServers::default(),
        OwnedConnections::new(connections, SECOND, None),
        worker.clone(),
        options,
        SessionLimits::default(),
    )
}
