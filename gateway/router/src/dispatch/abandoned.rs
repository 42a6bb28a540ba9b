//! The rest of a reply whose client has gone away: it is read for nobody, so that its call keeps its turn.
//!
//! A client that disconnects has not cancelled its call (MCP 2025-11-25, transports), and the next call of its session
//! waits for it. Invariant: it waits for a server that says nothing for [`SILENT_MAX`], and for any other for
//! [`READ_MAX`].

use std::time::Duration;

use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use super::relay::{RelayMode, ReplyGuards};
use mooring_upstream as upstream;

/// How long the turn is kept while the server says nothing. Nobody could cancel such a call any more.
pub const SILENT_MAX: Duration = Duration::from_secs(30);
/// How long it is kept in all.
const READ_MAX: Duration = Duration::from_secs(600);

/// A reply that is still under way.
pub(super) struct AbandonedReply {
    pub(super) upstream: upstream::Body,
    pub(super) mode: RelayMode,
    pub(super) guards: ReplyGuards,
}

impl AbandonedReply {
    /// Reads until the answer has come, or until the limit; then the turn is released.
    pub(super) async fn read(mut self) {
        let gives_up_at = Instant::now() + READ_MAX;
        let mut silent_until = Instant::now() + SILENT_MAX;
        while self.mode.is_awaited() {
            let Ok(frame) = timeout_at(gives_up_at.min(silent_until), self.upstream.frame()).await
            else {
                tracing::info!(
                    "a call whose client disconnected has no answer yet; its turn is released"
                );
                return;
            };
            let Some(Ok(frame)) = frame else {
                return;
            };
            let Ok(chunk) = frame.into_data() else {
                continue;
            };
            let said = self.mode.says_something(chunk, self.guards.turn.as_ref());
            match said {
                Ok(true) => silent_until = Instant::now() + SILENT_MAX,
                Ok(false) => {}
                Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use bytes::Bytes;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use tokio::sync::mpsc;

    use super::super::RelayOptions;
    use super::super::event_relay::{Audience, EventRelay, PendingRequest};
    use super::super::seals::Seals;
    use super::*;
    use mooring_protocol::Marker;
    use mooring_protocol::ids::Epoch;

    const EVERY: Duration = Duration::from_secs(15);

    /// A call's stream, and where its server writes.
    fn abandoned() -> (AbandonedReply, mpsc::Sender<&'static str>) {
        let options = RelayOptions {
            event_bytes_max: 1_000,
            seals: Seals::default(),
            stopping: tokio_util::sync::CancellationToken::new(),
        };
        let pending_request = PendingRequest {
            id_json: "1".into(),
        };
        let audience = Audience::Bound(Marker::of(Epoch(1)));
        let events = EventRelay::new(audience, &options, Some(pending_request), None, None);
        let (written, chunks) = mpsc::channel::<&'static str>(1);
        let frames = futures_util::stream::unfold(chunks, async |mut chunks| {
            let chunk = chunks.recv().await?;
            Some((
                Ok(Frame::data(Bytes::from_static(chunk.as_bytes()))),
                chunks,
            ))
        });
        let reply = AbandonedReply {
            upstream: upstream::Body::made(StreamBody::new(frames)),
            mode: RelayMode::Events(Box::new(events)),
            guards: ReplyGuards::default(),
        };
        (reply, written)
    }

    /// How long a call is waited for whose server writes this again and again, `times` at most.
    async fn waited(chunk: &'static str, times: usize) -> Duration {
        let (reply, written) = abandoned();
        let began = Instant::now();
        let writes = async {
            for _ in 0..times {
                tokio::time::sleep(EVERY).await;
                if written.send(chunk).await.is_err() {
                    break;
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = reply.read() => {}
            () = writes => {}
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_call_is_waited_for_shortly_and_a_busy_one_for_longer() {
        let progress = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n";
        assert_eq!(waited(progress, 0).await, SILENT_MAX);
        assert_eq!(waited(": keep-alive\n\n", 1_000).await, SILENT_MAX);
        assert_eq!(waited(progress, 3).await, EVERY * 3 + SILENT_MAX);
        assert_eq!(waited(progress, 1_000).await, READ_MAX);
        let answer = "data: {\"jsonrpc\":\"2.0\",\"id\":\"c:1\",\"result\":{}}\n\n";
        assert_eq!(waited(answer, 1).await, EVERY);
    }
}
