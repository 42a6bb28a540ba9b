//! Reads the rest of a reply whose client has disconnected, so that its call keeps its turn.
//!
//! A disconnect does not cancel a call (MCP 2025-11-25, transports), and the next call of the session waits for it.
//! Invariant: the wait ends after [`SILENT_MAX`] without a message of the server, and after [`READ_MAX`] in any case.

use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::{Instant, timeout_at};

use super::event_filter::EventFilter;
use super::relay::ReplyGuards;
use crate::affinity::Turn;
use mooring_protocol::{ByteStream, EventStream, ReplyError};
use mooring_usage::for_same_user;

/// How long the turn is kept while the server is silent. After a disconnect no client can cancel the call.
pub const SILENT_MAX: Duration = Duration::from_secs(30);
/// How long the turn is kept in total.
pub const READ_MAX: Duration = Duration::from_secs(600);

/// A reply that is still being received.
pub(super) enum UnreadReply {
    /// A single message, which is the answer.
    Json(ByteStream),
    /// Messages, including the answer.
    Events(EventStream, Box<EventFilter>),
}

/// Reads the rest of a reply in a background task, if its call has a turn.
pub(super) fn read(reply: UnreadReply, guards: ReplyGuards) {
    if guards.turn.is_none() || !reply.is_awaited() {
        return;
    }
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(for_same_user(async move {
            reply.read_rest(guards.turn.as_ref()).await
        }));
    }
}

impl UnreadReply {
    /// Whether the call's answer is outstanding and can only arrive here.
    fn is_awaited(&self) -> bool {
        match self {
            Self::Json(_) => true,
            Self::Events(_, filter) => filter.reads_on_after_disconnect(),
        }
    }

    /// Reads until the answer or the limit.
    async fn read_rest(mut self, turn: Option<&Turn>) {
        let gives_up_at = Instant::now() + READ_MAX;
        while self.is_awaited() {
            let silent_until = Instant::now() + SILENT_MAX;
            let message = self.next_message(turn);
            match timeout_at(gives_up_at.min(silent_until), message).await {
                Ok(Some(Ok(()))) => {}
                Ok(None | Some(Err(_))) => return,
                Err(_) => {
                    tracing::info!(
                        "released the turn of an unanswered call whose client disconnected"
                    );
                    return;
                }
            }
        }
    }

    /// Reads until the server's next message about the call.
    async fn next_message(&mut self, turn: Option<&Turn>) -> Option<Result<(), ReplyError>> {
        match self {
            Self::Json(chunks) => Some(chunks.next().await?.map(drop)),
            Self::Events(events, filter) => loop {
                let event = match events.next().await? {
                    Ok(event) => event,
                    Err(error) => return Some(Err(error)),
                };
                let is_message = event.as_message().is_some();
                filter.pass(event, turn);
                if is_message {
                    return Some(Ok(()));
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use tokio::sync::mpsc;

    use super::super::event_filter::Audience;
    use super::*;
    use crate::request_tag::StreamOwner;
    use mooring_protocol::ids::Epoch;
    use mooring_protocol::{Event, Marker, PendingRequest, RequestTag};

    const EVERY: Duration = Duration::from_secs(15);

    /// A call's stream, and the server's side of it.
    fn abandoned() -> (UnreadReply, mpsc::Sender<Event>) {
        let tag = RequestTag(10);
        let id_json = "1".into();
        let pending_request = PendingRequest { id_json, tag };
        let audience = Audience::Bound(Marker::of(Epoch(1)));
        let owner = StreamOwner::Request(tag);
        let filter = EventFilter::new(audience, owner, Some(pending_request), None, None);
        let (written, events) = mpsc::channel(1);
        let events = futures_util::stream::unfold(events, async |mut events| {
            Some((Ok(events.recv().await?), events))
        });
        let reply = UnreadReply::Events(Box::pin(events), Box::new(filter));
        (reply, written)
    }

    /// How long a call is awaited whose server repeats this message, at most `times` times.
    async fn waited(event: Event, times: usize) -> Duration {
        let (reply, written) = abandoned();
        let began = Instant::now();
        let writes = async {
            for _ in 0..times {
                tokio::time::sleep(EVERY).await;
                if written.send(event.clone()).await.is_err() {
                    break;
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = reply.read_rest(None) => {}
            () = writes => {}
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_call_is_awaited_briefly_and_a_busy_one_longer() {
        let message = |text: &'static str| Event::message(text);
        let progress = message(r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#);
        assert_eq!(waited(progress.clone(), 0).await, SILENT_MAX);
        let no_message = Event {
            retry_ms: Some(5),
            ..Event::default()
        };
        assert_eq!(waited(no_message, 1_000).await, SILENT_MAX);
        assert_eq!(waited(progress.clone(), 3).await, EVERY * 3 + SILENT_MAX);
        assert_eq!(waited(progress, 1_000).await, READ_MAX);
        let answer =
            message(r#"{"jsonrpc":"2.0","id":"c:0000000000000000000000000000000a:1","result":{}}"#);
        assert_eq!(waited(answer, 1).await, EVERY);
    }
}
