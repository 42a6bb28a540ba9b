//! The upstream side: instances of MCP servers, and whether a request sent to one was delivered.
//!
//! Invariant: every failure says whether the request may have been delivered, and retries depend on that alone.

mod answer_in_place;
mod answer_in_time;
mod ask_era;
mod ask_statefulness;
mod caller;
mod cause;
mod client;
pub mod connection;
mod contact;
mod credential;
mod credential_header;
mod discard;
mod dropped_message;
mod era;
mod exchange;
mod forwarded_fields;
mod handshake;
mod health;
mod http;
mod http_reply;
mod lateness;
mod message_span;
mod metrics;
mod oauth;
mod probe;
mod probe_readiness;
mod reach;
mod readiness;
mod redirect;
mod request;
mod send_error;
mod send_permit;
mod server;
pub mod sse;
mod statefulness;
pub mod stdio;
mod timed_exchange;
mod transport;
mod user_secret;

pub use ask_era::{era_of, is_modern_error};
pub use ask_statefulness::ask_statefulness;
pub use caller::{Caller, CallerCredentials};
pub use cause::{ContactOutcome, FailureCause, causes, is_refused, with_causes};
pub use client::Client;
pub use contact::{Contact, ContactLog};
pub use credential::CredentialError;
pub use discard::{DiscardOutcome, discard};
pub use dropped_message::report_dropped_message;
pub use era::{EraLog, ServerEra};
pub use exchange::{ANSWER_BYTES_MAX, Answer, ExchangeError, ReplySource, read_answer, within};
pub use forwarded_fields::ForwardedFields;
pub use handshake::{
    Completion, HandshakeError, InitializeHandshake, InitializedSession, initialize,
};
pub use health::{ServerHealth, publish_server_state};
pub use http::{
    ClientError, ConnectionError, HttpClient, HttpClientOptions, HttpError, RoundTripError,
    SilenceLimits, tls_config,
};
pub use http_reply::read_http;
pub use lateness::Lateness;
pub use message_span::{describe_message, note_reply};
pub use metrics::describe_metrics;
pub use oauth::{OauthTokens, TokenExchangeError};
pub use probe::{ProbeResult, is_session_unknown, may_be_session_unknown, probe};
pub use probe_readiness::probe_readiness;
pub use reach::{Reach, UNREACHED_LOST_AFTER};
pub use readiness::{Readiness, ReadinessLog};
pub use request::Outgoing;
pub use send_error::SendError;
pub use send_permit::{PermitSource, SendPermit};
pub use server::{Instance, STARTED_HERE, Server, Servers, SessionPolicy};
pub use statefulness::{Statefulness, StatefulnessSeen};
pub use timed_exchange::{TimedExchange, exchange_outcome};
pub use transport::{InstanceTransport, MessageTransport};
pub use user_secret::{SecretHeader, UserSecret, UserSecretError, UserSecrets};
