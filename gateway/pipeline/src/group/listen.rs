//! The GET stream of a group: the merged streams of all members.
//!
//! Invariant: a member without a stream, or an unreachable one, does not affect the others. No program is started for a
//! stream: that of a member joins in when the session has started it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, select_all};
use futures_util::stream::FuturesUnordered;
use futures_util::{Stream, StreamExt, future, stream};
use http::{HeaderValue, StatusCode};

use super::event_ids::{Resumption, Source, mark_event};
use super::known::KnownMembers;
use super::member_reply::relay_reply;
use super::members::Group;
use super::message::{GroupRequest, check_session, member_request};
use super::session_members::SessionMembers;
use crate::request::{Request, UpstreamRequest};
use crate::visible_tools::VisibleTools;
use crate::{answer, stateful};
use mooring_protocol::{ErrorKind, Event, EventStream, Reply, ReplyBody};
use mooring_router::affinity::{
    BindingWatch, InFlight, InFlightKind, Session, StreamHold, StreamKind,
};
use mooring_store::StoreError;
use mooring_upstream::Server;
use tokio::time::sleep;

/// The stream of a group looks at the session's record for programs that other gateways have started: after the first pause,
/// and while it finds none, after ever longer ones up to the second. Their messages wait until then. What this gateway starts
/// is seen at once.
const LOOK_FIRST: Duration = Duration::from_secs(2);
/// See [`LOOK_FIRST`]: a thousand idle streams read sixty records in a second.
const LOOK_MAX: Duration = Duration::from_secs(16);

/// What is wrong with a `Last-Event-ID` that no group has made.
const UNKNOWN_EVENT: &str = "Last-Event-ID is no event of this group";

/// The stream of messages that answer no request, or of those after an event.
pub(crate) async fn get(request: &GroupRequest<'_>) -> Reply {
    let session = match request.session() {
        Ok(session) => session,
        Err(kind) => return answer::plain(kind, None),
    };
    let resumption = match &request.fields.forwarded.last_event_id {
        None => None,
        Some(value) => match value.to_str().ok().and_then(Resumption::parse) {
            Some(resumption) if request.server.upstream(resumption.server).is_some() => {
                Some(resumption)
            }
            _ => return answer::detailed(ErrorKind::InvalidRequest, None, UNKNOWN_EVENT),
        },
    };
    if let Some(Resumption {
        server,
        source: Source::Call,
        id,
    }) = resumption
        && let Some(found) = request.server.upstream(server)
    {
        let member = member_stream(request, &session, Some(id));
        let member = member.at(found);
        let reply = with_visible_tools(&member, stateful::get(&member).await).await;
        return relay_reply(reply, server, &[]);
    }
    if let Err(cause) = check_session(request, &session).await {
        return answer::store(&cause, None);
    }
    let hold = match hold(request, &session).await {
        Ok(hold) => hold,
        Err(reply) => return *reply,
    };
    let unstarted = match unstarted(request, &session).await {
        Ok(unstarted) => unstarted,
        Err(cause) => return answer::store(&cause, None),
    };
    let started = |server: &&Arc<Server>| !unstarted.iter().any(|other| other.id == server.id);
    let opening = request.server.upstreams().filter(started).map(|server| {
        let after = resumption.filter(|resumption| resumption.server == server.id.as_str());
        let after = after.map(|resumption| resumption.id);
        let member = member_stream(request, &session, after);
        let known = Arc::clone(request.server.known());
        open(member, Arc::clone(server), session.clone(), known)
    });
    let opening: Vec<_> = opening.collect();
    let events = match unstarted.is_empty() {
        true => merge(opening).await,
        false => Some(merge_later(
            opening,
            started_later(request, &session, unstarted),
        )),
    };
    match events {
        Some(events) => {
            let body = ReplyBody::Events(events).guarded_by(hold);
            Reply::new(StatusCode::OK, body)
        }
        None => no_stream(),
    }
}

/// The members whose programs this session has not started. A stream is no reason to start them.
async fn unstarted(
    request: &GroupRequest<'_>,
    session: &Session,
) -> Result<Vec<Arc<Server>>, StoreError> {
    if !request.server.has_programs() {
        return Ok(Vec::new());
    }
    let store = request.core.session_router.store();
    let record = store.get(&session.key).await?;
    let members = SessionMembers::of(request.server.known(), &record);
    let upstreams = request.server.upstreams();
    Ok(upstreams
        .filter(|server| members.is_unstarted(server))
        .cloned()
        .collect())
}

/// The streams of these members, each once its program has been started, by whichever gateway. Ends with the session and
/// with the gateway.
fn started_later(
    request: &GroupRequest<'_>,
    session: &Session,
    waiting: Vec<Arc<Server>>,
) -> impl Stream<Item = EventStream> + Send + use<> {
    let router = &request.core.session_router;
    let watched = waiting.into_iter().map(|server| {
        let watch = router.watch_binding(session, &server.id);
        (server, watch)
    });
    let later = LaterMembers {
        request: request.request.clone(),
        group: Arc::clone(request.server),
        session: session.clone(),
        waiting: watched.collect(),
        look_after: LOOK_FIRST,
        _in_use: router
            .active_bindings()
            .begin(session, &request.server.id, InFlightKind::Stream),
    };
    let started = stream::unfold(later, |mut later| async move {
        let streams = later.next_streams().await?;
        Some((stream::iter(streams), later))
    });
    started.flatten()
}

/// The members of a stream whose programs the session has not started.
struct LaterMembers {
    request: Request,
    group: Arc<Group>,
    session: Session,
    waiting: Vec<(Arc<Server>, BindingWatch)>,
    /// The pause before the next look at the record.
    look_after: Duration,
    /// The session is in use for as long as its stream is read.
    _in_use: InFlight,
}

impl LaterMembers {
    /// The streams of the members that are started next; none at the end.
    async fn next_streams(&mut self) -> Option<Vec<EventStream>> {
        while !self.waiting.is_empty() {
            let made = self.waiting.iter_mut();
            let made = made.map(|(_, watch)| Box::pin(watch.may_be_made()));
            let draining = self.request.core.relay.departure.draining();
            tokio::select! {
                () = draining.cancelled() => return None,
                _ = select_all(made) => {}
                () = sleep(self.look_after) => self.look_after = next_pause(self.look_after),
            }
            let still = match unstarted(&self.request.at(&self.group), &self.session).await {
                Ok(still) => still,
                Err(StoreError::Refused(_)) => return None,
                // The store is away for a while.
                Err(_) => continue,
            };
            let waiting = std::mem::take(&mut self.waiting);
            let (still, started): (Vec<_>, Vec<_>) = waiting
                .into_iter()
                .partition(|(server, _)| still.iter().any(|other| other.id == server.id));
            self.waiting = still;
            if !started.is_empty() {
                self.look_after = LOOK_FIRST;
                let opening = started.iter().map(|(server, _)| {
                    let member = member_stream(&self.request, &self.session, None);
                    let known = Arc::clone(self.group.known());
                    open(member, Arc::clone(server), self.session.clone(), known)
                });
                let opened = join_all(opening.collect::<Vec<_>>()).await;
                return Some(opened.into_iter().flatten().collect());
            }
        }
        None
    }
}

/// The pause after a look that followed this pause, and found nothing new.
fn next_pause(pause: Duration) -> Duration {
    LOOK_MAX.min(pause * 2)
}

/// Claims the session's unrelated stream for this gateway, once for all members. A client that resumes already had it.
async fn hold(
    request: &GroupRequest<'_>,
    session: &Session,
) -> Result<Option<StreamHold>, Box<Reply>> {
    if request.fields.forwarded.last_event_id.is_some() {
        return Ok(None);
    }
    let held = request
        .core
        .session_router
        .hold_stream(session, StreamKind::Get);
    held.await
        .map_err(|cause| Box::new(answer::hold_error(&cause)))
}

fn no_stream() -> Reply {
    Reply {
        allow: Some("POST, DELETE"),
        ..answer::detailed(
            ErrorKind::MethodNotAllowed,
            None,
            "no server of this group has a GET stream that can be opened now",
        )
    }
}

/// The request for a member's stream, resumed after the member's own event.
fn member_stream(request: &Request, session: &Session, after: Option<&str>) -> Request {
    let mut member = member_request(request, session);
    member.fields.forwarded.last_event_id = after.and_then(|id| HeaderValue::from_str(id).ok());
    member
}

/// One member's events with marked ids; none if it has no stream.
async fn open(
    request: Request,
    member: Arc<Server>,
    session: Session,
    known: Arc<KnownMembers>,
) -> Option<EventStream> {
    let server = member.id.clone();
    let member = request.at(&member);
    let reply = match stateful::open_stream(&member, &session, None).await {
        Ok(reply) => with_visible_tools(&member, reply).await,
        Err(error) => {
            tracing::info!(session = %session.digest, %server, %error, "stream of a group's member could not be opened");
            return None;
        }
    };
    match reply.body {
        ReplyBody::Events(events) if reply.status == StatusCode::OK => {
            let marked = events.filter_map(move |event| {
                future::ready(match event {
                    Ok(event) => {
                        if tells_of_changed_list(&event) {
                            known.forget_lists(&server);
                        }
                        Some(Ok(mark_event(event, server.as_str(), Source::Unrelated)))
                    }
                    Err(error) => {
                        tracing::info!(%server, %error, "stream of a group's member was interrupted");
                        None
                    }
                })
            });
            Some(Box::pin(marked))
        }
        _ => {
            if reply.status != StatusCode::METHOD_NOT_ALLOWED {
                tracing::info!(session = %session.digest, %server, status = %reply.status, "member of a group refused its stream");
            }
            None
        }
    }
}

/// Whether an event is a notification that a list has changed.
fn tells_of_changed_list(event: &Event) -> bool {
    let data = event.data.as_deref().unwrap_or_default();
    std::str::from_utf8(data).is_ok_and(|text| text.contains("/list_changed\""))
}

/// The member's stream without the tools that the caller may not use: a client may resume the events of a list.
async fn with_visible_tools(member: &UpstreamRequest<'_>, reply: Reply) -> Reply {
    match VisibleTools::of(member).list_filter() {
        Some(filter) => filter.apply(reply).await,
        None => reply,
    }
}

/// Merges the events of all members into one stream, which ends when all have ended; none if no member has a stream. It
/// starts as soon as the first member's stream is open.
async fn merge<F>(opening: impl IntoIterator<Item = F>) -> Option<EventStream>
where
    F: Future<Output = Option<EventStream>> + Send + 'static,
{
    let opening: FuturesUnordered<F> = opening.into_iter().collect();
    let mut opened = opening.filter_map(future::ready).boxed();
    let first = opened.next().await?;
    let all = stream::once(future::ready(first)).chain(opened);
    Some(Box::pin(all.flatten_unordered(None)))
}

/// Merges the events of members whose streams are being opened, and of those that come later, into one stream, which is
/// there at once.
fn merge_later<F>(
    opening: Vec<F>,
    later: impl Stream<Item = EventStream> + Send + 'static,
) -> EventStream
where
    F: Future<Output = Option<EventStream>> + Send + 'static,
{
    let opening: FuturesUnordered<F> = opening.into_iter().collect();
    let opened = opening.filter_map(future::ready);
    Box::pin(stream::select(opened, later).flatten_unordered(None))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use futures_util::future::BoxFuture;
    use futures_util::{FutureExt, TryStreamExt};

    use super::*;

    /// A member whose stream has these events.
    async fn member(events: &'static [&'static str]) -> Option<EventStream> {
        let events = events.iter().map(|data| Ok(Event::message(*data)));
        Some(Box::pin(stream::iter(events)))
    }

    async fn without_a_stream() -> Option<EventStream> {
        None
    }

    #[test]
    fn a_stream_whose_programs_nobody_starts_looks_ever_less_often() {
        let (mut looks, mut passed, mut pause) = (0, Duration::ZERO, LOOK_FIRST);
        while passed < Duration::from_secs(3_600) {
            (looks, passed) = (looks + 1, passed + pause);
            pause = next_pause(pause);
        }
        assert!(looks <= 240, "{looks} in an hour");
    }

    #[tokio::test]
    async fn all_events_of_each_member_come_in_their_order() {
        let members: [BoxFuture<'static, Option<EventStream>>; 3] = [
            member(&["a1", "a2", "a3"]).boxed(),
            without_a_stream().boxed(),
            member(&["b1", "b2"]).boxed(),
        ];
        let merged: Vec<Event> = merge(members).await.unwrap().try_collect().await.unwrap();
        for (of, expected) in [(b'a', vec!["a1", "a2", "a3"]), (b'b', vec!["b1", "b2"])] {
            let data = merged.iter().filter_map(|event| event.data.as_ref());
            let its: Vec<_> = data.filter(|data| data.starts_with(&[of])).collect();
            assert_eq!(its, expected);
        }
        assert_eq!(merged.len(), 5);
    }

    #[tokio::test]
    async fn a_group_without_any_stream_says_so() {
        assert!(
            merge([without_a_stream(), without_a_stream()])
                .await
                .is_none()
        );
        assert!(merge(<[future::Ready<_>; 0]>::default()).await.is_none());
    }

    #[tokio::test]
    async fn a_member_that_does_not_open_holds_up_no_other() {
        let members: [BoxFuture<'static, Option<EventStream>>; 2] =
            [future::pending().boxed(), member(&["a1"]).boxed()];
        let mut merged = merge(members).await.unwrap();
        let first = merged.try_next().await.unwrap();
        assert_eq!(first, Some(Event::message("a1")));
    }
}
