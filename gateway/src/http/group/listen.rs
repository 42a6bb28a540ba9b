//! The GET stream of a group: those of all members as one.
//!
//! Invariants: events of different members never mix, each goes out whole; and a member without such a stream, or one
//! that cannot be reached, takes nothing from the others.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::ALLOW;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body::{Body as _, Frame};

use super::member_reply::{event_headers, passed};
use super::{GroupContext, attend};
use crate::group::blocks::Blocks;
use crate::group::event_ids::{EventMarker, Resumption, Source};
use crate::http::endpoint::UpstreamContext;
use crate::http::{answer, stateful};
use mooring_protocol::header::LAST_EVENT_ID;
use mooring_protocol::{ErrorBody, ErrorKind};
use mooring_router::affinity::{BindingHolder, InFlightKind, Session, StreamHold, StreamKind};
use mooring_router::dispatch::{
    Call, OnLoss, ReplyBody, ReplyGuards, RetrySafety, deliver, relay_stream,
};
use mooring_upstream::{Outgoing, is_event_stream};

/// The stream of messages that answer nothing, or of what came after an event.
pub(in crate::http) async fn get(context: &GroupContext) -> Response {
    let session = match context.session() {
        Ok(session) => session,
        Err(kind) => return answer::plain(kind, None),
    };
    let resumption = match context.headers.get(LAST_EVENT_ID) {
        None => None,
        Some(value) => match value.to_str().ok().and_then(Resumption::parse) {
            Some(resumption) if context.group.upstream(resumption.server).is_some() => {
                Some(resumption)
            }
            _ => return answer::error(&unknown_event()),
        },
    };
    if let Some(Resumption {
        server,
        source: Source::Call,
        id,
    }) = resumption
        && let Some(found) = context.group.upstream(server)
    {
        let mut member = context.at(found);
        resume_after(&mut member.headers, Some(id));
        return passed(stateful::get(&member).await, server, &[]);
    }
    if let Err(cause) = attend(context, &session).await {
        return answer::store(&cause, None);
    }
    let hold = match hold(context, &session).await {
        Ok(hold) => hold,
        Err(reply) => return *reply,
    };
    let lanes = context.group.upstreams().map(|server| {
        let mut member = context.at(server);
        let after = resumption.filter(|resumption| resumption.server == server.id.as_str());
        resume_after(&mut member.headers, after.map(|resumption| resumption.id));
        MemberStream::opening(member, session.clone())
    });
    let mut lanes = MemberStreams {
        lanes: lanes.collect(),
        next: 0,
        _hold: hold,
    };
    if !std::future::poll_fn(|context| lanes.poll_open(context)).await {
        return no_stream();
    }
    let mut reply = Response::new(Body::new(lanes));
    event_headers(reply.headers_mut());
    reply
}

/// Makes the session's unrelated stream this worker's, once for all members. Whoever resumes it is the one who had it.
async fn hold(
    context: &GroupContext,
    session: &Session,
) -> Result<Option<StreamHold>, Box<Response>> {
    if context.headers.contains_key(LAST_EVENT_ID) {
        return Ok(None);
    }
    let held = context
        .app
        .session_router
        .hold_stream(session, StreamKind::Get);
    held.await
        .map_err(|cause| Box::new(answer::hold_error(&cause)))
}

fn unknown_event() -> ErrorBody<'static> {
    ErrorBody::new(ErrorKind::InvalidRequest).detail("Last-Event-ID is no event of this group")
}

fn no_stream() -> Response {
    let mut reply = answer::error(
        &ErrorBody::new(ErrorKind::MethodNotAllowed)
            .detail("no server of this group has a GET stream that can be opened now"),
    );
    let allowed = HeaderValue::from_static("POST, DELETE");
    reply.headers_mut().insert(ALLOW, allowed);
    reply
}

/// The member is to go on after this event of its own.
fn resume_after(headers: &mut HeaderMap, id: Option<&str>) {
    match id.map(HeaderValue::from_str) {
        Some(Ok(id)) => {
            headers.insert(LAST_EVENT_ID, id);
        }
        Some(Err(_)) | None => {
            headers.remove(LAST_EVENT_ID);
        }
    }
}

/// One member's stream; none where it has none.
async fn open(member: UpstreamContext, session: Session) -> Option<ReplyBody> {
    let call = Call {
        session: &session,
        server: &member.server,
        outgoing: Outgoing::listen(&member.server).forwarding(&member.headers),
        on_loss: OnLoss::RecoverUnreported,
        repeat: RetrySafety::Harmless,
        epoch: None,
        routed: None,
    };
    let session_router = &member.app.session_router;
    let in_flight =
        session_router
            .active_bindings()
            .begin(&session, &member.server.id, InFlightKind::Stream);
    let delivered = match deliver(session_router, &call).await {
        Ok(delivered) => delivered,
        Err(error) => {
            tracing::info!(session = %session.digest, server = %member.server.id, %error, "a member's stream could not be opened");
            return None;
        }
    };
    in_flight.set_holder(BindingHolder::of(
        &delivered.binding,
        session_router.worker(),
    ));
    let guards = ReplyGuards {
        in_flight: Some(in_flight),
        ..ReplyGuards::default()
    };
    let relayed = relay_stream(
        delivered,
        &session,
        &member.server,
        guards,
        &member.app.relay,
    )
    .await;
    let reply = relayed.ok()?;
    if reply.status() == StatusCode::OK && is_event_stream(&reply) {
        return Some(reply.into_body());
    }
    if reply.status() != StatusCode::METHOD_NOT_ALLOWED {
        tracing::info!(session = %session.digest, server = %member.server.id, status = %reply.status(), "a member refused its stream");
    }
    None
}

/// One member's part of the stream.
struct MemberStream {
    state: MemberStreamState,
    marker: EventMarker,
    blocks: Blocks,
}

enum MemberStreamState {
    Opening(Pin<Box<dyn Future<Output = Option<ReplyBody>> + Send>>),
    Open(ReplyBody),
    Over,
}

impl MemberStream {
    fn opening(member: UpstreamContext, session: Session) -> Self {
        Self {
            marker: EventMarker::new(member.server.id.as_str(), Source::Unrelated),
            blocks: Blocks::default(),
            state: MemberStreamState::Opening(Box::pin(open(member, session))),
        }
    }

    /// Ready when it is open, or over.
    fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let MemberStreamState::Opening(opening) = &mut self.state {
            let body = std::task::ready!(opening.as_mut().poll(context));
            self.state = body.map_or(MemberStreamState::Over, MemberStreamState::Open);
        }
        Poll::Ready(())
    }

    /// Its next whole events; none when it is over.
    fn poll_events(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        std::task::ready!(self.poll_open(context));
        while let MemberStreamState::Open(body) = &mut self.state {
            match std::task::ready!(Pin::new(body).poll_frame(context)) {
                Some(Ok(frame)) => {
                    let Ok(chunk) = frame.into_data() else {
                        continue;
                    };
                    let events = self.blocks.push(self.marker.push(&chunk));
                    if !events.is_empty() {
                        return Poll::Ready(Some(events));
                    }
                }
                Some(Err(error)) => {
                    tracing::info!(%error, "a member's stream broke off");
                    self.state = MemberStreamState::Over;
                }
                None => self.state = MemberStreamState::Over,
            }
        }
        Poll::Ready(None)
    }
}

/// The members' streams as one, which ends when all have ended.
struct MemberStreams {
    lanes: Vec<MemberStream>,
    /// Which one is asked first: each in its turn, so that none keeps the others waiting.
    next: usize,
    /// Keeps the session's stream this worker's.
    _hold: Option<StreamHold>,
}

impl MemberStreams {
    /// Ready with true as soon as one is open, and with false when it is clear that none will be.
    fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        self.lanes.retain_mut(|lane| {
            let _ = lane.poll_open(context);
            !matches!(lane.state, MemberStreamState::Over)
        });
        let is_open = |lane: &MemberStream| matches!(lane.state, MemberStreamState::Open(_));
        match self.lanes.iter().any(is_open) {
            true => Poll::Ready(true),
            false if self.lanes.is_empty() => Poll::Ready(false),
            false => Poll::Pending,
        }
    }
}

impl http_body::Body for MemberStreams {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        let count = this.lanes.len();
        for step in 0..count {
            let place = this.next.wrapping_add(step) % count.max(1);
            let Some(lane) = this.lanes.get_mut(place) else {
                continue;
            };
            if let Poll::Ready(Some(events)) = lane.poll_events(context) {
                this.next = place.wrapping_add(1);
                return Poll::Ready(Some(Ok(Frame::data(events))));
            }
        }
        this.lanes
            .retain(|lane| !matches!(lane.state, MemberStreamState::Over));
        if this.lanes.is_empty() {
            Poll::Ready(None)
        } else {
            Poll::Pending
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use futures_util::stream;
    use http_body_util::BodyExt;

    use super::*;

    /// A member's stream that arrives in these chunks.
    fn lane(server: &str, chunks: &'static [&'static str]) -> MemberStream {
        let chunks = chunks
            .iter()
            .map(|chunk| Ok::<_, std::io::Error>(Bytes::from_static(chunk.as_bytes())));
        let body =
            answer::to_be_read(Response::new(Body::from_stream(stream::iter(chunks)))).into_body();
        MemberStream {
            state: MemberStreamState::Opening(Box::pin(async { Some(body) })),
            marker: EventMarker::new(server, Source::Unrelated),
            blocks: Blocks::default(),
        }
    }

    fn without_a_stream() -> MemberStream {
        MemberStream {
            state: MemberStreamState::Opening(Box::pin(async { None })),
            ..lane("none", &[])
        }
    }

    fn lanes(lanes: Vec<MemberStream>) -> MemberStreams {
        MemberStreams {
            lanes,
            next: 0,
            _hold: None,
        }
    }

    async fn opens(lanes: &mut MemberStreams) -> bool {
        std::future::poll_fn(|context| lanes.poll_open(context)).await
    }

    #[tokio::test]
    async fn events_of_members_stand_behind_each_other_each_in_its_turn() {
        let mut merged = lanes(vec![
            lane("a", &["id: 1\n", "data: a1\n\n", "data: a2\n\n"]),
            without_a_stream(),
            lane(
                "b",
                &["data: b", "1\n\nid: 9\nda", "ta: b2\n\n", "data: cut"],
            ),
        ]);
        assert!(opens(&mut merged).await);
        let text = merged.collect().await.unwrap().to_bytes();
        assert_eq!(
            std::str::from_utf8(&text).unwrap(),
            "id: a/stream/1\ndata: a1\n\ndata: b1\n\ndata: a2\n\nid: b/stream/9\ndata: b2\n\n"
        );
    }

    #[tokio::test]
    async fn a_group_without_any_stream_says_so() {
        assert!(!opens(&mut lanes(vec![without_a_stream(), without_a_stream()])).await);
        assert!(!opens(&mut lanes(Vec::new())).await);
        let never = MemberStream {
            state: MemberStreamState::Opening(Box::pin(std::future::pending())),
            ..lane("never", &[])
        };
        let mut one_is_enough = lanes(vec![never, lane("a", &["data: a1\n\n"])]);
        assert!(opens(&mut one_is_enough).await);
        let first = one_is_enough.frame().await.unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), "data: a1\n\n");
    }
}
