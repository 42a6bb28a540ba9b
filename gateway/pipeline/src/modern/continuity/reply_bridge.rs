//! The reply of a server of an earlier revision, as its client of 2026-07-28 gets it.
//!
//! Such a client resumes no stream and answers no request, and its disconnect cancels. So a stream that its server ends early
//! is resumed here, requests of the server are answered here, and a stream that is dropped before its answer cancels the
//! request. Invariant: a reply has one response, the last of its messages.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::StatusCode;
use serde::Deserialize;
use tokio::runtime::Handle;

use super::session_request::SessionRequest;
use crate::answer;
use crate::map_messages::map_messages;
use mooring_protocol::bridge::{BegunSession, LogThreshold, bridge_response};
use mooring_protocol::{
    ErrorBody, ErrorKind, Event, EventStream, Id, Kind, Message, Method, Reply, ReplyBody,
    ReplyError, Sender,
};
use mooring_usage::{for_same_user, work_on_text};

/// Most times that one reply is resumed without a message in between.
const RESUMES_MAX: u32 = 5;
/// The pause before a reply is resumed whose server names none.
const RESUME_PAUSE: Duration = Duration::from_millis(500);
/// The longest such pause.
const RESUME_PAUSE_MAX: Duration = Duration::from_secs(30);

/// How the reply to one request is changed.
#[derive(Debug)]
pub(super) struct ReplyBridge {
    pub(super) method: Method,
    pub(super) begun: Option<BegunSession>,
    /// Whether tools in a list get the argument for a session.
    pub(super) lists_argument: bool,
    pub(super) log: LogThreshold,
    /// The id of the request.
    pub(super) id_json: Box<str>,
    pub(super) message_bytes_max: usize,
    pub(super) in_session: Arc<SessionRequest>,
}

impl ReplyBridge {
    /// The reply as the client gets it. A JSON reply is read whole first.
    pub(super) async fn apply(self: Arc<Self>, reply: Reply) -> Reply {
        if let ReplyBody::Events(events) = reply.body {
            let events = BridgedEvents {
                events,
                resumes: 0,
                last_event_id: None,
                pause: RESUME_PAUSE,
                unanswered: UnansweredRequest(Some(Arc::clone(&self))),
                bridge: self,
            };
            let events = stream::unfold(events, BridgedEvents::next);
            return Reply {
                body: ReplyBody::Events(Box::pin(events)),
                ..reply
            };
        }
        let bytes_max = self.message_bytes_max;
        let bridge = Arc::clone(&self);
        let response = move |text| Arc::clone(&bridge).response(text);
        match map_messages(reply, bytes_max, response).await {
            Ok(reply) => with_status(reply),
            Err(cause) => answer::unread(&cause),
        }
    }

    /// The response as the client gets it, also if it is no response.
    async fn response(self: Arc<Self>, text: Bytes) -> Bytes {
        let (bridge, changed) = (Arc::clone(&self), text.clone());
        let change = move || {
            let message = Message::parse(&changed, Sender::Upstream).ok()?;
            let (method, begun) = (bridge.method, bridge.begun.as_ref());
            let bridged = bridge_response(&message, method, begun, bridge.lists_argument)?;
            Some((bridged, message.kind() == Kind::Result))
        };
        let changed = work_on_text(text.len(), change).await.flatten();
        let Some((bridged, is_result)) = changed else {
            return text;
        };
        let tells_of_loss = (self.begun.as_ref()).is_some_and(|begun| begun.lost.is_some());
        // Models read the results of tools alone.
        if is_result && tells_of_loss && self.method == Method::ToolsCall {
            self.in_session.note_session_loss_reported().await;
        }
        Bytes::from(bridged)
    }
}

/// An error of a method that the server does not have, with the status that 2026-07-28 gives it (transports, "Server
/// Validation").
fn with_status(reply: Reply) -> Reply {
    #[derive(Deserialize)]
    struct ErrorOnly {
        error: CodeOnly,
    }
    #[derive(Deserialize)]
    struct CodeOnly {
        code: i64,
    }
    let is_unknown_method = match &reply.body {
        ReplyBody::Json(text) => serde_json::from_slice::<ErrorOnly>(text)
            .is_ok_and(|reply| reply.error.code == i64::from(ErrorKind::MethodUnknown.code())),
        _ => false,
    };
    match is_unknown_method && reply.status == StatusCode::OK {
        true => Reply {
            status: ErrorKind::MethodUnknown.status(),
            ..reply
        },
        false => reply,
    }
}

/// A request that is cancelled if this is dropped before it is answered: its client does not wait for the answer.
struct UnansweredRequest(Option<Arc<ReplyBridge>>);

impl UnansweredRequest {
    const fn is_answered(&self) -> bool {
        self.0.is_none()
    }

    fn note_answer(&mut self) {
        self.0 = None;
    }
}

impl Drop for UnansweredRequest {
    fn drop(&mut self) {
        // Without a runtime the gateway is gone, and its connections with it.
        if let Some(bridge) = self.0.take()
            && let Ok(runtime) = Handle::try_current()
        {
            let cancel = async move { bridge.in_session.cancel(&bridge.id_json).await };
            runtime.spawn(for_same_user(cancel));
        }
    }
}

/// The events of a reply.
struct BridgedEvents {
    /// Dropped before `events`, whose request can then still be cancelled.
    unanswered: UnansweredRequest,
    events: EventStream,
    bridge: Arc<ReplyBridge>,
    last_event_id: Option<Box<str>>,
    pause: Duration,
    /// Since the last message.
    resumes: u32,
}

impl BridgedEvents {
    /// The next event for the client; none at the end.
    async fn next(mut self) -> Option<(Result<Event, ReplyError>, Self)> {
        loop {
            match self.events.next().await {
                Some(Ok(event)) => {
                    if let Some(event) = self.bridged(event).await {
                        return Some((Ok(event), self));
                    }
                }
                Some(Err(error)) => return Some((Err(error), self)),
                None if self.unanswered.is_answered() => return None,
                None => {
                    if let Some(events) = self.resume().await {
                        self.events = events;
                        continue;
                    }
                    self.unanswered.note_answer();
                    let error = ErrorBody::new(ErrorKind::OutcomeUnknown)
                        .answering(Id::from_json(&self.bridge.id_json).ok());
                    let text = String::from_utf8_lossy(&error.to_bytes()).into_owned();
                    return Some((Ok(Event::message(text)), self));
                }
            }
        }
    }

    /// The event as the client gets it, which resumes nothing; none if it is not for the client.
    async fn bridged(&mut self, event: Event) -> Option<Event> {
        if let Some(id) = &event.id {
            self.last_event_id = (!id.is_empty()).then(|| id.clone());
        }
        if let Some(retry_ms) = event.retry_ms {
            self.pause = Duration::from_millis(retry_ms).min(RESUME_PAUSE_MAX);
        }
        let text = event.as_message()?.clone();
        self.resumes = 0;
        let text = match Message::parse(&text, Sender::Upstream) {
            Ok(message) => match message.kind() {
                Kind::Request => {
                    let id = message.id()?;
                    let in_session = &self.bridge.in_session;
                    in_session.answer_server(&message, id.as_json()).await;
                    return None;
                }
                Kind::Notification if message.method() == Method::LogMessage => {
                    let level = message.params.level().unwrap_or_default();
                    if !self.bridge.log.admits(&level) {
                        return None;
                    }
                    text
                }
                Kind::Notification => text,
                Kind::Result | Kind::Error => {
                    self.unanswered.note_answer();
                    Arc::clone(&self.bridge).response(text).await
                }
            },
            Err(_) => text,
        };
        Some(Event {
            id: None,
            retry_ms: None,
            data: Some(text),
            ..event
        })
    }

    /// The rest of a reply that its server has ended before the answer, in order to go on later (MCP 2025-11-25, transports).
    async fn resume(&mut self) -> Option<EventStream> {
        let last_event_id = self.last_event_id.clone()?;
        while self.resumes < RESUMES_MAX {
            self.resumes += 1;
            tokio::time::sleep(self.pause).await;
            let reply = self.bridge.in_session.resume(&last_event_id).await;
            if let Some(Reply {
                body: ReplyBody::Events(events),
                ..
            }) = reply
            {
                return Some(events);
            }
        }
        None
    }
}
