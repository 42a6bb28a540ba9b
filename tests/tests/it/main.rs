//! The whole system under test: real servers, real clients, one module per concern.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod access;
mod affinity_off;
mod affinity_unset;
mod agents;
mod api_keys;
mod batches;
mod bodies;
mod broken_upstreams;
mod cancelled;
mod cap;
mod chaos;
mod claim_wakeups;
mod client_certificates;
mod client_credentials;
mod clients;
mod code_fleet;
mod code_mode;
mod code_server;
mod conformance;
mod counting_server;
mod cross_origin;
mod doctor;
mod everything;
mod everything_streams;
mod exits;
mod faulty;
mod fixture;
mod fixture_legacy;
mod fixture_stdio;
mod fleet;
mod foreign_replies;
mod foreign_store_replies;
mod forgotten_sessions;
mod forwarded_identity;
mod front_door;
mod governance;
mod governed_fleet;
mod group;
mod group_kinds;
mod handshakes;
mod hanging_servers;
mod harness;
mod hooks;
mod hostile;
mod identity;
mod init_params;
mod keep_alive;
mod keyed;
mod lifetimes;
mod listener_tls;
mod logs;
mod loss_race;
mod may_have_run;
mod older_servers;
mod order;
mod owned;
mod peer_proxy;
mod peers;
mod placement;
mod playwright;
mod probes;
mod proofs;
mod questions;
mod questions_fleet;
mod reaper;
mod reaping;
mod recovery;
mod resuming;
mod returning;
mod reuse;
mod rig;
mod rmcp_client;
mod rolling_restart;
mod scene;
mod scripted;
mod secrets;
mod serving_threads;
mod session_endpoints;
mod sessions_command;
mod small_server;
mod stdio;
mod stopping;
mod store_away;
mod store_away_load;
mod stories;
mod strangers;
mod streams;
mod surface;
mod tenants;
mod tls;
mod token_exchange;
mod tokens;
mod upstream_loss;
mod upstreams;
mod vanished;
mod vault;
mod worker_death;
mod worker_names;
