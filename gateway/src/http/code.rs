//! Requests to servers of kind `code`, which the gateway answers itself.
//!
//! Such a server keeps no MCP session: all its state follows from the principal. So it has neither a stream to GET nor
//! anything to DELETE. A client that can be asked questions is given a session id all the same, because it says so in its
//! `initialize` alone: the id carries nothing but that (see [`asking_id`]).
//!
//! An answer that is soon there is JSON. One that takes its time, or that asks its client something first, comes as an
//! event stream, whose comments keep proxies from closing it. The call goes on whoever still listens.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body::{Body, Frame};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep};

use super::endpoint::{session_id, with_session_id};
use super::nested::Inside;
use super::{App, answer};
use crate::code::calls::{AnswerPlace, RunClient, Upstreams};
use crate::code::server::{Asked, Asker, CallContext, CodeServer};
use crate::dispatch::{ReplyBody, empty};
use crate::mcp::event::{Event, comment};
use crate::mcp::header::X_ACCEL_BUFFERING;
use crate::mcp::{ErrorBody, ErrorKind, Kind, Message, Method, Revision};

/// How long an answer may take before its head is sent without it.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long the stream may then be silent, well under the usual 60 s of proxies.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// What the id of a client begins with that can be asked.
const ASKING: &str = "asking-";

/// A request for a code server.
#[derive(Clone, Debug)]
pub(super) struct CodeVisit {
    pub(super) app: Arc<App>,
    pub(super) server: Arc<CodeServer>,
    pub(super) asker: Asker,
    pub(super) headers: HeaderMap,
}

/// One message.
pub(super) async fn post(visit: &CodeVisit, message: &Message<'_>, revision: Revision) -> Response {
    match message.kind() {
        Kind::Request => {}
        // What a client tells here changes nothing: a run ends by itself, or at its limits.
        Kind::Notification => return empty(StatusCode::ACCEPTED),
        Kind::Result | Kind::Error => return answered(visit, message).await,
    }
    let Some(id) = message.id() else {
        return answer::plain(ErrorKind::InvalidRequest, None);
    };
    let id_json: Box<str> = id.as_json().into();
    match visit.server.asked(message, revision) {
        Asked::Result(result) => {
            let reply = answer::json(StatusCode::OK, response(&id_json, &result));
            match message.method() {
                Method::Initialize if can_be_asked(message) => with_session_id(reply, &asking_id()),
                _ => reply,
            }
        }
        Asked::Error(error) => answer::error(&error),
        Asked::Call(call) => {
            let (client, questions) = match session_id(&visit.headers) {
                Ok(id) if id.as_str().starts_with(ASKING) => {
                    let (client, questions) = RunClient::asked();
                    (client, Some(questions))
                }
                _ => (RunClient::silent(), None),
            };
            let context = CallContext {
                asker: visit.asker.clone(),
                upstreams: Arc::new(Inside(Arc::clone(&visit.app))),
                client,
            };
            let answered_id = id_json.clone();
            let task =
                tokio::spawn(async move { response(&answered_id, &call.make(context).await) });
            soon_or_streamed(task, questions, id_json).await
        }
    }
}

/// The client answers what a tool asked during a run.
async fn answered(visit: &CodeVisit, message: &Message<'_>) -> Response {
    let place = message.id().and_then(|id| AnswerPlace::read(id.as_json()));
    let session = place.as_ref().and_then(|place| {
        let session = visit
            .server
            .session_of(&visit.asker.principal, place.language);
        session.ok()
    });
    let answer = place.as_ref().and_then(|place| place.answer(message));
    match (place, session, answer) {
        (Some(place), Some(session), Some(answer)) => {
            let inside = Inside(Arc::clone(&visit.app));
            inside.send(&session, place.server.as_str(), answer).await
        }
        _ => answer::plain(ErrorKind::AnswerUnexpected, message.id()),
    }
}

/// Whether a client's `initialize` says that it can be asked.
fn can_be_asked(message: &Message<'_>) -> bool {
    #[derive(serde::Deserialize)]
    struct Params {
        capabilities: Capabilities,
    }
    #[derive(serde::Deserialize)]
    struct Capabilities {
        elicitation: Option<serde::de::IgnoredAny>,
    }
    message
        .raw_params()
        .and_then(|params| serde_json::from_str::<Params>(params).ok())
        .is_some_and(|params| params.capabilities.elicitation.is_some())
}

/// The session id of a client that can be asked. Any worker reads that from it, and nothing is kept under it: who makes
/// one up only says of itself that it can be asked.
fn asking_id() -> String {
    format!("{ASKING}{:032x}", rand::random::<u128>())
}

/// GET and DELETE.
pub(super) fn not_allowed() -> Response {
    let mut reply = answer::error(
        &ErrorBody::new(ErrorKind::MethodNotAllowed)
            .detail("this server keeps no MCP sessions; everything is a POST"),
    );
    let allowed = HeaderValue::from_static("POST");
    reply.headers_mut().insert(ALLOW, allowed);
    reply
}

fn response(id_json: &str, result: &str) -> Bytes {
    Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","id":{id_json},"result":{result}}}"#
    ))
}

/// What a call asks its client; none where that cannot be asked.
type Questions = Option<mpsc::Receiver<Box<str>>>;

async fn soon_or_streamed(
    mut task: JoinHandle<Bytes>,
    mut questions: Questions,
    id_json: Box<str>,
) -> Response {
    let question = async {
        match &mut questions {
            Some(questions) => questions.recv().await,
            None => None,
        }
    };
    tokio::select! {
        biased;
        done = &mut task => match done {
            Ok(text) => answer::json(StatusCode::OK, text),
            Err(_) => answer::json(StatusCode::INTERNAL_SERVER_ERROR, defect(&id_json)),
        },
        Some(first) = question => streamed(task, questions, Some(first), id_json),
        () = tokio::time::sleep(ANSWER_WITHIN) => streamed(task, questions, None, id_json),
    }
}

fn streamed(
    task: JoinHandle<Bytes>,
    questions: Questions,
    first: Option<Box<str>>,
    id_json: Box<str>,
) -> Response {
    let body = Late {
        task: Some(task),
        questions,
        first,
        id_json,
        // At once, so that the client sees a living stream.
        silent_until: Box::pin(tokio::time::sleep(Duration::ZERO)),
    };
    let mut reply = Response::new(ReplyBody::new(body));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    reply
}

/// The JSON-RPC error of a call whose task ended by itself.
fn defect(id_json: &str) -> Bytes {
    let id = crate::mcp::Id::from_json(id_json).ok();
    ErrorBody::new(ErrorKind::Internal).answering(id).to_bytes()
}

/// A stream that will hold one answer, and before it what its client is asked.
struct Late {
    /// None once it has come.
    task: Option<JoinHandle<Bytes>>,
    questions: Questions,
    /// What is asked at once.
    first: Option<Box<str>>,
    id_json: Box<str>,
    silent_until: Pin<Box<Sleep>>,
}

impl Late {
    fn next_question(&mut self, context: &mut Context<'_>) -> Option<Box<str>> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        match self.questions.as_mut()?.poll_recv(context) {
            Poll::Ready(Some(question)) => Some(question),
            // Nobody is left who could ask.
            Poll::Ready(None) => {
                self.questions = None;
                None
            }
            Poll::Pending => None,
        }
    }
}

impl Body for Late {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let late = self.get_mut();
        if late.task.is_some()
            && let Some(question) = late.next_question(context)
        {
            let event = Event::message(&question).encode();
            return Poll::Ready(Some(Ok(Frame::data(event))));
        }
        let Some(task) = &mut late.task else {
            return Poll::Ready(None);
        };
        if let Poll::Ready(ended) = Pin::new(task).poll(context) {
            late.task = None;
            let text = ended.unwrap_or_else(|_| defect(&late.id_json));
            // The answer is JSON, and so is text.
            let text = String::from_utf8_lossy(&text);
            return Poll::Ready(Some(Ok(Frame::data(Event::message(&text).encode()))));
        }
        if late.silent_until.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        let next = Instant::now() + KEEP_ALIVE;
        late.silent_until.as_mut().reset(next);
        // The timer has to be asked again, or nobody is woken by it.
        let _ = late.silent_until.as_mut().poll(context);
        Poll::Ready(Some(Ok(Frame::data(comment("keep-alive")))))
    }
}
