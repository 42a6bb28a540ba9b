//! The response to a call of a code or agent server.
//!
//! A fast response is plain JSON. A slow one, or one that other messages precede, is an event stream, whose comments
//! keep proxies from closing it. The call continues even if the client disconnects.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use mooring_protocol::{ErrorBody, ErrorKind, Event, Reply};

/// How long to wait for the response before an event stream is opened.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Messages to send before the response; none if there cannot be any.
pub(crate) type Before<M = Box<str>> = Option<mpsc::Receiver<M>>;

/// The response as JSON if it is fast, otherwise an event stream.
pub(crate) async fn reply_or_stream(
    mut task: JoinHandle<Bytes>,
    mut before: Before,
    id_json: Box<str>,
) -> Reply {
    let first = async {
        match &mut before {
            Some(before) => before.recv().await,
            None => None,
        }
    };
    tokio::select! {
        biased;
        done = &mut task => match done {
            Ok(text) => Reply::json(StatusCode::OK, text),
            Err(_) => Reply::json(StatusCode::INTERNAL_SERVER_ERROR, defect(&id_json)),
        },
        Some(first) = first => streamed(task, before, Some(first), id_json),
        () = tokio::time::sleep(ANSWER_WITHIN) => streamed(task, before, None, id_json),
    }
}

/// The response as an event stream.
pub(crate) fn streamed<M, A>(
    task: JoinHandle<A>,
    before: Before<M>,
    first: Option<M>,
    id_json: Box<str>,
) -> Reply
where
    M: Into<Event> + Send + 'static,
    A: Into<Event> + Send + 'static,
{
    let delayed = DelayedAnswer {
        task: Some(task),
        before,
        first,
        id_json,
    };
    Reply::events(stream::unfold(delayed, async |mut delayed| {
        Some((Ok(delayed.next().await?), delayed))
    }))
}

/// The JSON-RPC error of a call whose task panicked.
fn defect(id_json: &str) -> Bytes {
    let id = mooring_protocol::Id::from_json(id_json).ok();
    ErrorBody::new(ErrorKind::Internal).answering(id).to_bytes()
}

/// An event stream of messages and then the response.
struct DelayedAnswer<M, A> {
    /// None after the response.
    task: Option<JoinHandle<A>>,
    before: Before<M>,
    /// Sent first.
    first: Option<M>,
    id_json: Box<str>,
}

impl<M: Into<Event>, A: Into<Event>> DelayedAnswer<M, A> {
    /// The next event: all messages before the response, then the response, then none.
    async fn next(&mut self) -> Option<Event> {
        let task = self.task.as_mut()?;
        if let Some(first) = self.first.take() {
            return Some(first.into());
        }
        let before = async {
            match &mut self.before {
                Some(before) => before.recv().await,
                None => None,
            }
        };
        let answered = tokio::select! {
            biased;
            Some(message) = before => return Some(message.into()),
            answered = task => answered,
        };
        self.task = None;
        Some(answered.map_or_else(|_| Event::message(defect(&self.id_json)), Into::into))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use mooring_protocol::{ReplyBody, ReplyMessages};

    async fn answer_after(time: Duration, before: Before) -> Reply {
        let task = tokio::spawn(async move {
            tokio::time::sleep(time).await;
            Bytes::from_static(b"{\"id\":1}")
        });
        reply_or_stream(task, before, "1".into()).await
    }

    async fn messages(reply: Reply) -> Vec<Bytes> {
        let mut messages = ReplyMessages::of(reply, 100);
        let mut all = Vec::new();
        while let Some(message) = messages.next().await.unwrap() {
            all.push(message);
        }
        all
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_takes_long_is_answered_on_a_stream() {
        let reply = answer_after(ANSWER_WITHIN * 4, None).await;
        assert_eq!(reply.status, StatusCode::OK);
        assert!(matches!(reply.body, ReplyBody::Events(_)));
        assert_eq!(messages(reply).await, ["{\"id\":1}"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_said_before_the_answer_comes_before_it() {
        let (said, before) = mpsc::channel(8);
        for message in ["{}", "[]"] {
            said.send(message.into()).await.unwrap();
        }
        let reply = answer_after(Duration::from_millis(1), Some(before)).await;
        assert_eq!(messages(reply).await, ["{}", "[]", "{\"id\":1}"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_done_in_time_is_answered_in_json() {
        let reply = answer_after(ANSWER_WITHIN - Duration::from_millis(1), None).await;
        assert!(matches!(reply.body, ReplyBody::Json(_)));
        assert_eq!(messages(reply).await, ["{\"id\":1}"]);
    }
}
