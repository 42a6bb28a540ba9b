//! Sends messages to the server in order.
//!
//! Two POSTs use two connections and may overtake each other, so a message is sent after the response to the one before
//! it, which every SDK's server sends at once, with 202. A server that responds only after processing would block later
//! messages, among them the client's answer that the processing may wait for. So no message waits longer than
//! [`ORDER_WITHIN`].
//!
//! Invariant: every request that the server did not accept gets an error response.

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
use crate::answer_in_place::error_response;
use crate::connection::link::LinkEnd;
use mooring_protocol::ErrorKind;

/// How long a message waits for the response to the one before it.
const ORDER_WITHIN: Duration = Duration::from_millis(250);
/// Most messages without a response. At the limit the next message waits ...
const UNANSWERED_MAX: usize = 64;
/// ... this long, after which the server counts as broken.
const UNANSWERED_WITHIN: Duration = Duration::from_secs(30);

/// A running POST, with its sequence number.
type Posting<'p> = BoxFuture<'p, (u64, Bytes, PostOutcome)>;

/// The parts of a message that decide how its failure is reported.
#[derive(Deserialize)]
struct Head<'m> {
    #[serde(borrow, default)]
    id: Option<&'m RawValue>,
    #[serde(borrow, default)]
    method: Option<&'m RawValue>,
}

/// Sends until the link is down, or until all messages are sent and have a response. Requests that the server did not
/// accept get an error over `incoming`.
pub(super) async fn send_all(
    poster: &Poster,
    outgoing: &mut mpsc::Receiver<Bytes>,
    incoming: &mpsc::Sender<Bytes>,
) -> LinkEnd {
    let mut sending = Sending {
        poster,
        in_flight: FuturesUnordered::new(),
        begun: 0,
        waits: NextSendWait::Nothing,
    };
    let mut is_closed = false;
    loop {
        let can_send = !is_closed && sending.can_send();
        let waits_until = sending.waits_until();
        tokio::select! {
            biased;
            Some((number, message, posted)) = sending.in_flight.next() => {
                sending.on_response(number);
                if let Some(end) = report_failure(poster, &message, posted, incoming).await {
                    return end;
                }
            }
            message = outgoing.recv(), if can_send => match message {
                Some(message) => sending.begin(message),
                None => is_closed = true,
            },
            () = sleep_until(waits_until), if !can_send && !is_closed => {
                if sending.is_full() {
                    let reason = format!("the server has left {UNANSWERED_MAX} messages unanswered");
                    return LinkEnd::Broken(reason.into());
                }
                sending.waits = NextSendWait::Nothing;
            }
            else => return LinkEnd::Closed,
        }
    }
}

/// What the next message waits for.
#[derive(Clone, Copy, Debug)]
enum NextSendWait {
    Nothing,
    /// The response to the message with this number, or the deadline.
    Answer(u64, Instant),
    /// Any response, because the limit is reached; or the deadline.
    Room(Instant),
}

struct Sending<'p> {
    poster: &'p Poster,
    in_flight: FuturesUnordered<Posting<'p>>,
    begun: u64,
    waits: NextSendWait,
}

impl<'p> Sending<'p> {
    fn can_send(&self) -> bool {
        matches!(self.waits, NextSendWait::Nothing)
    }

    fn is_full(&self) -> bool {
        matches!(self.waits, NextSendWait::Room(_))
    }

    fn waits_until(&self) -> Instant {
        match self.waits {
            NextSendWait::Nothing => Instant::now(),
            NextSendWait::Answer(_, until) | NextSendWait::Room(until) => until,
        }
    }

    fn begin(&mut self, message: Bytes) {
        let (poster, number) = (self.poster, self.begun);
        self.begun = self.begun.wrapping_add(1);
        self.in_flight.push(
            async move {
                let posted = poster.post(message.clone()).await;
                (number, message, posted)
            }
            .boxed(),
        );
        self.waits = if self.in_flight.len() >= UNANSWERED_MAX {
            NextSendWait::Room(Instant::now() + UNANSWERED_WITHIN)
        } else {
            NextSendWait::Answer(number, Instant::now() + ORDER_WITHIN)
        };
    }

    fn on_response(&mut self, number: u64) {
        match self.waits {
            NextSendWait::Answer(expected, _) if expected != number => {}
            _ => self.waits = NextSendWait::Nothing,
        }
    }
}

/// Reports a message that was not accepted. Returns the reason if the link is down.
async fn report_failure(
    poster: &Poster,
    message: &[u8],
    posted: PostOutcome,
    incoming: &mpsc::Sender<Bytes>,
) -> Option<LinkEnd> {
    let gone = |reason: String| Some(LinkEnd::Broken(reason.into()));
    let (kind, detail, end) = match posted {
        PostOutcome::Accepted => return None,
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
    tracing::warn!(instance = %poster.instance.name, %detail, "the server did not accept a message");
    if let Some(error) = error_of(message, kind, &detail) {
        // A closed queue means that the link is going down.
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

/// The error response to a request; `None` for a notification or a response. The id is copied as it is: rewritten, it
/// may exceed the limit for ids.
fn error_of(message: &[u8], kind: ErrorKind, detail: &str) -> Option<Bytes> {
    let Head {
        id: Some(id),
        method: Some(_),
    } = serde_json::from_slice(message).ok()?
    else {
        return None;
    };
    Some(error_response(id.get(), kind.code(), detail))
}
