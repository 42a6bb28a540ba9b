//! What serves the messages of clients, whichever transport they came by: the edges of HTTP and of peers in the crate
//! `mooring`, and here the streams of HTTP+SSE and of standard input. It also serves members of groups, and calls of code.
//!
//! [`serve`] is the entry of clients' requests, and [`NestedServers`] that of the gateway's own. [`order`] has the steps in
//! their order, and what does not pass them. `mooring-router` decides where a message goes.
//!
//! Invariant: nothing here knows HTTP's listeners and paths, or headers other than those that peers exchange. What a request
//! says in headers arrives as [`RequestFields`], and what a transport has to write leaves as a [`mooring_protocol::Reply`].

mod admin;
mod agent;
pub mod answer;
mod batch;
mod built_in;
mod client_states;
mod client_stream;
mod code;
mod delayed_answer;
mod directory;
pub mod group;
mod held_text;
mod hooked_call;
pub mod hooks;
mod latest_session;
pub mod legacy;
mod map_messages;
mod modern;
mod nested_servers;
mod order;
mod pipeline;
pub mod policy;
mod refusals;
mod removed_servers;
mod request;
mod request_entry;
mod request_facts;
mod request_log;
mod request_rate;
mod request_trace;
mod serving_core;
mod stateful;
mod stateless;
pub mod stdio;
mod top_senders;
mod upstream_server;
mod user_secret;
mod user_usages;
mod visible_tools;

pub use self::admin::{AdminServer, OperatorToolCall, OperatorTools};
pub use self::batch::serve_batch;
pub use self::client_states::ClientStates;
pub use self::directory::{AdmissionRefusal, ServerDirectory, ServerTarget};
pub use self::latest_session::LatestSession;
pub use self::nested_servers::NestedServers;
pub use self::pipeline::{Operation, serve, serve_posted};
pub use self::refusals::{RefusalCause, RefusalView};
pub use self::removed_servers::RemovedServers;
pub use self::request::{
    ClientTransport, ContinuityFields, MirroredFields, Request, RequestFields, RequestServer,
    SessionSource,
};
pub use self::request_entry::RequestEntry;
pub use self::request_facts::RequestKind;
pub use self::request_log::{REQUESTS_TARGET, RequestLog};
pub use self::request_rate::RequestRates;
pub use self::serving_core::ServingCore;
pub use self::top_senders::{SenderFigures, TopSenders, TopSession, TopUser};
pub use self::user_usages::UserUsages;
