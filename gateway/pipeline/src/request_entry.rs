//! The facts about one request, from its arrival to the last byte of its reply, for metrics and the log.
//!
//! Invariant: an entry ends once, with its reply, also if the client leaves before.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use http::HeaderValue;
use mooring_session::names::{InstanceName, Principal, ServerName};

use super::request::Request;
use super::request_facts::{EndedRequest, RequestFacts, RequestKind};
use super::request_log::RequestLog;
use super::request_trace::begin_trace;
use mooring_metrics::ExchangeTimer;
use mooring_protocol::{CompleteWith, Kind, Message, Method, Reply, ReplySummary, Revision};
use mooring_traces::{TraceScope, attribute};
use mooring_upstream::{exchange_outcome, note_reply};

/// Most characters of a request's id, as many as a log line has of a value.
const REQUEST_ID_CHARACTERS_MAX: usize = 64;
/// Most bytes that are kept of a tool's name. The log shows fewer characters.
const TOOL_BYTES_MAX: usize = 256;

/// One request. Shared by all that serve it.
#[derive(Debug)]
pub struct RequestEntry {
    log: Arc<RequestLog>,
    id: HeaderValue,
    arrived: Instant,
    facts: Mutex<RequestFacts>,
}

impl RequestEntry {
    /// The entry of a request that arrives now, with the id that its sender has given it, if that is valid.
    pub fn begin(log: &Arc<RequestLog>, id: Option<&HeaderValue>) -> Arc<Self> {
        Arc::new(Self {
            log: Arc::clone(log),
            id: Self::id_of(id),
            arrived: Instant::now(),
            facts: Mutex::default(),
        })
    }

    /// The id of a request: the one that its sender has given it, if that is valid, or one that is made for it.
    pub fn id_of(id: Option<&HeaderValue>) -> HeaderValue {
        let id = id.filter(|id| is_valid_id(id)).cloned();
        id.unwrap_or_else(random_id)
    }

    /// The id of the request: its sender's, or one that was made for it.
    pub const fn id(&self) -> &HeaderValue {
        &self.id
    }

    /// It is from this user.
    pub fn note_user(&self, user: &Principal) {
        self.facts().user = Some(user.clone());
    }

    /// It is for this server, and is a `kind` as far as its head says.
    pub fn note_server(&self, server: &ServerName, kind: RequestKind) {
        let mut facts = self.facts();
        facts.server = Some(server.clone());
        facts.kind = kind;
    }

    /// Its body is this long.
    pub fn note_body(&self, bytes: usize) {
        self.facts().bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    }

    /// It is a batch of messages.
    pub(super) fn note_batch(&self) {
        self.facts().kind = RequestKind::Batch;
    }

    /// It is this message, for this server.
    pub fn note_message(&self, server: &ServerName, message: &Message<'_>) {
        let method = message.method();
        let timer = ExchangeTimer::of_request(server.as_str(), method.label(), self.arrived);
        let timer = match message.params.is_modern() {
            true => timer.sessionless(),
            false => timer,
        };
        let tool = (method == Method::ToolsCall)
            .then(|| message.params.name())
            .flatten();
        let mut facts = self.facts();
        facts.server = Some(server.clone());
        facts.kind = match message.kind() {
            Kind::Request => RequestKind::Request(method),
            Kind::Notification | Kind::Result | Kind::Error => RequestKind::OneWay(method),
        };
        facts.tool = tool.map(|tool| {
            let end = tool.floor_char_boundary(TOOL_BYTES_MAX);
            tool.get(..end).unwrap_or_default().into()
        });
        facts.timer = Some(timer);
    }

    /// Begins its trace, as this message; returns the scope in which it is served. None if it is not traced.
    pub(crate) fn begin_trace(
        &self,
        request: &Request,
        message: &Message<'_>,
        revision: Revision,
    ) -> Option<TraceScope> {
        let tracer = self.log.tracer()?;
        let trace = begin_trace(tracer, request, message, revision, self.arrived);
        self.facts().span = trace.span;
        trace.scope
    }

    /// It is in the session with this digest.
    pub fn note_session(&self, digest: &Arc<str>) {
        self.facts().session = Some(Arc::clone(digest));
    }

    /// This instance answers it.
    pub fn note_instance(&self, instance: &InstanceName) {
        self.facts().instance = Some(instance.clone());
    }

    /// Its reply, which ends it.
    pub fn watch(self: Arc<Self>, reply: Reply) -> Reply {
        let complete_with = match self.facts().kind {
            RequestKind::Request(_) => CompleteWith::Response,
            _ => CompleteWith::End,
        };
        reply.watched(complete_with, move |summary| self.end(summary))
    }

    fn end(&self, reply: &ReplySummary) {
        let mut facts = std::mem::take(&mut *self.facts());
        let outcome = exchange_outcome(reply);
        end_span(&mut facts, reply);
        if let Some(timer) = &facts.timer {
            timer.end(reply.first_byte_at, reply.status.as_u16(), outcome);
        }
        self.log.note(EndedRequest {
            id: self.id.to_str().unwrap_or_default(),
            facts,
            reply,
            outcome,
            first_byte: (reply.first_byte_at).map(|at| at.saturating_duration_since(self.arrived)),
            took: self.arrived.elapsed(),
        });
    }

    fn facts(&self) -> MutexGuard<'_, RequestFacts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says of its span what became known while it was served.
fn end_span(facts: &mut RequestFacts, reply: &ReplySummary) {
    let span = &mut facts.span;
    note_reply(span, reply);
    if let Some(session) = &facts.session {
        span.note_text(attribute::MCP_SESSION_ID, session);
    }
    if let Some(server) = &facts.server {
        span.note_text(attribute::SERVER, server.as_str());
    }
}

/// Whether an id may go into logs and to upstream servers.
fn is_valid_id(id: &HeaderValue) -> bool {
    let is_valid = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(byte);
    (1..=REQUEST_ID_CHARACTERS_MAX).contains(&id.len()) && id.as_bytes().iter().all(is_valid)
}

/// An id for a request that came without one.
fn random_id() -> HeaderValue {
    let id = format!("{:032x}", rand::random::<u128>());
    HeaderValue::try_from(id).unwrap_or(HeaderValue::from_static("0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_taken_if_it_harms_no_log() {
        for (id, is_taken) in [
            ("req-1", true),
            ("4bf92f3577b34da6a3ce929d0e0e4736", true),
            ("Root=1-67891233-abcdef012345678912345678", true),
            ("", false),
            ("a b", false),
            ("a\"b", false),
            ("a\tb", false),
        ] {
            assert_eq!(
                is_valid_id(&HeaderValue::from_static(id)),
                is_taken,
                "{id:?}"
            );
        }
        let of_length = |length| HeaderValue::try_from("x".repeat(length));
        assert!(of_length(64).is_ok_and(|id| is_valid_id(&id)));
        assert!(of_length(65).is_ok_and(|id| !is_valid_id(&id)));
        assert!(is_valid_id(&random_id()));
    }
}
