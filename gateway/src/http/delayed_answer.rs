//! The answer to a call of a server that is the gateway itself.
//!
//! One that is soon there is JSON. One that takes its time, or before which something else is to be said, comes as an event
//! stream, whose comments keep proxies from closing it. The call goes on whoever still listens.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use http_body::Frame;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep};

use super::answer;
use mooring_protocol::event::{Event, comment};
use mooring_protocol::header::X_ACCEL_BUFFERING;
use mooring_protocol::{ErrorBody, ErrorKind};

/// How long an answer may take before its head is sent without it.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long the stream may then be silent, well under the usual 60 s of proxies.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// What is said before the answer; none where nothing may be.
pub(super) type Before = Option<mpsc::Receiver<Box<str>>>;

/// The answer as JSON where it is soon there, and else a stream that will hold it.
pub(super) async fn reply_or_stream(
    mut task: JoinHandle<Bytes>,
    mut before: Before,
    id_json: Box<str>,
) -> Response {
    let first = async {
        match &mut before {
            Some(before) => before.recv().await,
            None => None,
        }
    };
    tokio::select! {
        biased;
        done = &mut task => match done {
            Ok(text) => answer::json(StatusCode::OK, text),
            Err(_) => answer::json(StatusCode::INTERNAL_SERVER_ERROR, defect(&id_json)),
        },
        Some(first) = first => streamed(task, before, Some(first), id_json),
        () = tokio::time::sleep(ANSWER_WITHIN) => streamed(task, before, None, id_json),
    }
}

/// The answer on a stream from the start.
pub(super) fn streamed(
    task: JoinHandle<Bytes>,
    before: Before,
    first: Option<Box<str>>,
    id_json: Box<str>,
) -> Response {
    let body = DelayedAnswer {
        task: Some(task),
        before,
        first,
        id_json,
        // At once, so that the client sees a living stream.
        silent_until: Box::pin(tokio::time::sleep(Duration::ZERO)),
    };
    let mut reply = Response::new(Body::new(body));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    reply
}

/// The JSON-RPC error of a call whose task ended by itself.
fn defect(id_json: &str) -> Bytes {
    let id = mooring_protocol::Id::from_json(id_json).ok();
    ErrorBody::new(ErrorKind::Internal).answering(id).to_bytes()
}

/// A stream that will hold one answer, and before it what is said until then.
struct DelayedAnswer {
    /// None once it has come.
    task: Option<JoinHandle<Bytes>>,
    before: Before,
    /// What is said at once.
    first: Option<Box<str>>,
    id_json: Box<str>,
    silent_until: Pin<Box<Sleep>>,
}

impl DelayedAnswer {
    fn next_before(&mut self, context: &mut Context<'_>) -> Option<Box<str>> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        match self.before.as_mut()?.poll_recv(context) {
            Poll::Ready(Some(message)) => Some(message),
            // Nobody is left who could say more.
            Poll::Ready(None) => {
                self.before = None;
                None
            }
            Poll::Pending => None,
        }
    }
}

impl http_body::Body for DelayedAnswer {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let delayed_answer = self.get_mut();
        if delayed_answer.task.is_some()
            && let Some(message) = delayed_answer.next_before(context)
        {
            let event = Event::message(&message).encode();
            return Poll::Ready(Some(Ok(Frame::data(event))));
        }
        let Some(task) = &mut delayed_answer.task else {
            return Poll::Ready(None);
        };
        if let Poll::Ready(ended) = Pin::new(task).poll(context) {
            delayed_answer.task = None;
            let text = ended.unwrap_or_else(|_| defect(&delayed_answer.id_json));
            // The answer is JSON, and so is text.
            let text = String::from_utf8_lossy(&text);
            return Poll::Ready(Some(Ok(Frame::data(Event::message(&text).encode()))));
        }
        if delayed_answer
            .silent_until
            .as_mut()
            .poll(context)
            .is_pending()
        {
            return Poll::Pending;
        }
        let next = Instant::now() + KEEP_ALIVE;
        delayed_answer.silent_until.as_mut().reset(next);
        // The timer has to be asked again, or nobody is woken by it.
        let _ = delayed_answer.silent_until.as_mut().poll(context);
        Poll::Ready(Some(Ok(Frame::data(comment("keep-alive")))))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn answer_after(time: Duration) -> Response {
        let task = tokio::spawn(async move {
            tokio::time::sleep(time).await;
            Bytes::from_static(b"{\"id\":1}")
        });
        reply_or_stream(task, None, "1".into()).await
    }

    async fn text(reply: Response) -> String {
        let body = reply.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_takes_long_is_answered_on_a_stream() {
        let reply = answer_after(ANSWER_WITHIN + KEEP_ALIVE + KEEP_ALIVE / 2).await;
        assert_eq!(reply.status(), StatusCode::OK);
        let header = |name| reply.headers().get(name).unwrap();
        assert_eq!(header(CONTENT_TYPE), "text/event-stream");
        assert_eq!(header(CACHE_CONTROL), "no-cache");
        assert_eq!(header(X_ACCEL_BUFFERING), "no");
        // At once, and again after each silence.
        let expected = ": keep-alive\n\n: keep-alive\n\ndata: {\"id\":1}\n\n";
        assert_eq!(text(reply).await, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_done_in_time_is_answered_in_json() {
        let reply = answer_after(ANSWER_WITHIN - Duration::from_millis(1)).await;
        assert_eq!(
            reply.headers().get(CONTENT_TYPE).unwrap(),
            "application/json"
        );
        assert_eq!(text(reply).await, "{\"id\":1}");
    }
}
