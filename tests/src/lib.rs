//! The harness: real processes on free ports in temporary directories, and a client that hides nothing.
//!
//! A test starts what it needs, asserts, and drops it. Invariants: only processes started here are ever signalled, each
//! by its own id; every wait has a name and a timeout; nothing is written outside of a temporary directory. If a wait
//! times out or a test panics, the process's log is shown.

pub mod advised_users;
pub mod agent;
pub mod balancer;
pub mod certificates;
pub mod clean_machine;
pub mod client;
pub mod code;
pub mod collector;
pub mod compose;
pub mod duplex;
pub mod fixture;
pub mod fleet;
pub mod fleet_keys;
pub mod gate;
pub mod gateway;
pub mod hook;
pub mod identity_provider;
pub mod journal;
pub mod legacy;
pub mod model;
pub mod network_link;
pub mod nginx;
pub mod pages;
pub mod paths;
pub mod port;
pub mod printed;
pub mod process;
pub mod process_tree;
pub mod reader;
pub mod redis;
pub mod redis_cluster;
pub mod reply_proxy;
pub mod script;
pub mod sentinel_group;
pub mod servers;
pub mod session;
pub mod sse;
pub mod stdio;
pub mod stdio_client;
pub mod wait;
pub mod wall_clock;
