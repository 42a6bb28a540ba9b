//! Messages to the server, in their order.
//!
//! The protocol has no order but that of the server's answers: two POSTs travel over two connections, and either may
//! arrive first. So a message is sent when the one before it was answered, which every SDK's server does at once, with
//! a 202. A server that answers only when it is done with a message would make the others wait for that, and a call
//! that waits for its client's answer would wait for ever; so nobody waits for an earlier message longer than
//! [`ORDER_WITHIN`].
//!
//! Invariant: a request that the server did not take is answered here with an error that says so; it is never silence.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::FuturesUnordered;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::post::{PostOutcome, Poster};
use crate::connection::link::LinkEnd;
use mooring_protocol::ErrorKind;

/// How long a message waits for the server to take the one before it.
const ORDER_WITHIN: Duration = Duration::from_millis(250);
/// Most messages that the server has not answered yet; at the limit the next one waits ...
const UNANSWERED_MAX: usize = 64;
/// ... this long, and then the server counts as one that takes nothing any more.
const UNANSWERED_WITHIN: Duration = Duration::from_secs(30);

/// A POST under way, with its place in the order.
type Posting<'p> = BoxFuture<'p, (u64, Bytes, PostOutcome)>;

/// What of a message decides how its failure is told.
#[derive(Deserialize)]
struct Head<'m> {
    #[serde(borrow, default)]
    id: Option<&'m RawValue>,
    #[serde(borrow, default)]
    method: Option<&'m RawValue>,
}

/// Sends until the link is down, or until there is nothing more to send and all of it was answered. What the server did
/// not take is answered over `incoming`.
pub(super) async fn send_all(
    poster: &Poster,
    outgoing: &mut mpsc::Receiver<Bytes>,
    incoming: &mpsc::Sender<Bytes>,
) -> LinkEnd {
    let mut sending = Sending {
        poster,
        under_way: FuturesUnordered::new(),
        begun: 0,
        waits: Waits::Nothing,
    };
    let mut is_over = false;
    loop {
        let may_begin = !is_over && sending.may_begin();
        let waits_until = sending.waits_until();
        tokio::select! {
            biased;
            Some((place, message, posted)) = sending.under_way.next() => {
                sending.answered(place);
                if let Some(end) = tell(poster, &message, posted, incoming).await {
                    return end;
                }
            }
            message = outgoing.recv(), if may_begin => match message {
                Some(message) => sending.begin(message),
                None => is_over = true,
            },
            () = sleep_until(waits_until), if !may_begin && !is_over => {
                if sending.is_full() {
                    let reason = format!("the server has left {UNANSWERED_MAX} messages unanswered");
                    return LinkEnd::Broken(reason.into());
                }
                sending.waits = Waits::Nothing;
            }
            else => return LinkEnd::Closed,
        }
    }
}

/// What the next message waits for.
#[derive(Clone, Copy, Debug)]
enum Waits {
    Nothing,
    /// For the message in this place to be answered, or until then.
    Answer(u64, Instant),
    /// For any message to be answered: too many are not.
    Room(Instant),
}

struct Sending<'p> {
    poster: &'p Poster,
    under_way: FuturesUnordered<Posting<'p>>,
    begun: u64,
    waits: Waits,
}

impl<'p> Sending<'p> {
    fn may_begin(&self) -> bool {
        matches!(self.waits, Waits::Nothing)
    }

    fn is_full(&self) -> bool {
        matches!(self.waits, Waits::Room(_))
    }

    fn waits_until(&self) -> Instant {
        match self.waits {
            Waits::Nothing => Instant::now(),
            Waits::Answer(_, until) | Waits::Room(until) => until,
        }
    }

    fn begin(&mut self, message: Bytes) {
        let (poster, place) = (self.poster, self.begun);
        self.begun = self.begun.wrapping_add(1);
        self.under_way.push(
            async move {
                let posted = poster.post(message.clone()).await;
                (place, message, posted)
            }
            .boxed(),
        );
        self.waits = if self.under_way.len() >= UNANSWERED_MAX {
            Waits::Room(Instant::now() + UNANSWERED_WITHIN)
        } else {
            Waits::Answer(place, Instant::now() + ORDER_WITHIN)
        };
    }

    fn answered(&mut self, place: u64) {
        match self.waits {
            Waits::Answer(awaited, _) if awaited != place => {}
            _ => self.waits = Waits::Nothing,
        }
    }
}

/// Tells what became of a message that was not simply taken, and whether the link is down with it.
async fn tell(
    poster: &Poster,
    message: &[u8],
    posted: PostOutcome,
    incoming: &mpsc::Sender<Bytes>,
) -> Option<LinkEnd> {
    let gone = |reason: String| Some(LinkEnd::Broken(reason.into()));
    let (kind, detail, end) = match posted {
        PostOutcome::Taken => return None,
        PostOutcome::Refused(status) => (ErrorKind::UpstreamInvalid, refusal(status), None),
        PostOutcome::SessionGone(status) => {
            let detail = refusal(status);
            let end = gone(format!("{detail}: its session is gone"));
            (ErrorKind::UpstreamUnavailable, detail, end)
        }
        PostOutcome::ServerGone => {
            let detail = "the server refuses connections".to_owned();
            let end = gone(detail.clone());
            (ErrorKind::UpstreamUnavailable, detail, end)
        }
        PostOutcome::Undelivered(cause) => {
            (ErrorKind::UpstreamUnavailable, cause.to_string(), None)
        }
        PostOutcome::Unknown(cause) => {
            let detail = format!("{cause}; the message may have been delivered");
            (ErrorKind::OutcomeUnknown, detail, None)
        }
    };
    tracing::warn!(instance = %poster.instance.name, %detail, "a message was not taken by its server");
    if let Some(error) = error_of(message, kind, &detail) {
        // Nobody there to read it: the link is going down.
        let _ = incoming.send(error).await;
    }
    end
}

fn refusal(status: http::StatusCode) -> String {
    format!(
        "the server refused the message with HTTP status {}",
        status.as_u16()
    )
}

/// The answer to a request; none for what has no answer. The request's id may be in a rewritten form, which is longer
/// than one that a peer may choose, so it is taken as it is.
fn error_of(message: &[u8], kind: ErrorKind, detail: &str) -> Option<Bytes> {
    let Head {
        id: Some(id),
        method: Some(_),
    } = serde_json::from_slice(message).ok()?
    else {
        return None;
    };
    let (code, text) = (kind.code(), serde_json::Value::from(detail));
    Some(Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{text}}}}}"#
    )))
}
