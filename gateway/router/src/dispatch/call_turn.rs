//! Turns of tool calls: the calls of a session at a server run one after another, unless the server's settings allow
//! concurrency.
//!
//! A call has its turn from before it is sent until its reply ends, or until shortly after its cancellation. It
//! releases the turn while it waits for its client, which may have to finish other calls before it answers. Only tool
//! calls take turns. Invariants: answers, cancellations and progress never wait for a turn, so no call blocks itself; a
//! reply never waits for a turn.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use mooring_session::rules::RouteReply;

use crate::affinity::{Session, SessionRouter, Turn, TurnError, Withdrawal};
use mooring_metrics as metrics;
use mooring_protocol::{Kind, Lane, Message, Method};
use mooring_settings::Concurrency;
use mooring_upstream::Server;

/// The turn of a tool call, held or released. Dropping it passes the turn to the next call.
#[derive(Debug)]
pub struct CallTurn {
    turn: Turn,
}

impl CallTurn {
    /// Waits up to `wait_max` for the turn that a client's message needs. Also returns the route of the session's
    /// calls, which saves a ROUTE. `None` if the message needs no turn. `lane` distinguishes several clients of one
    /// session.
    ///
    /// # Errors
    /// See [`TurnError`]. The call was not sent.
    pub async fn begin(
        router: &SessionRouter,
        session: &Session,
        server: &Server,
        message: &Message<'_>,
        lane: Option<Lane>,
        wait_max: Duration,
    ) -> Result<Option<(Self, RouteReply)>, TurnError> {
        let is_call = message.kind() == Kind::Request && message.method() == Method::ToolsCall;
        let Some(id) = message.id().filter(|_| is_call) else {
            return Ok(None);
        };
        if server.concurrency == Concurrency::Parallel {
            return Ok(None);
        }
        let started = Instant::now();
        let taken = router
            .take_turn_routed(session, &server.id, &turn_id(id.as_json(), lane), wait_max)
            .await;
        metrics::turn_wait(started.elapsed());
        let (turn, routed) = taken?;
        Ok(Some((Self { turn }, routed)))
    }

    /// Handles a message of the server on the stream of the call's reply.
    pub fn saw(&self, message: &Message<'_>) {
        match TurnSignal::of(message) {
            TurnSignal::AsksClient => self.turn.release(),
            TurnSignal::Continues => self.turn.resume(),
            TurnSignal::None => {}
        }
    }
}

/// What a server's message means for the turn of the call on whose stream it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TurnSignal {
    /// The call waits for its client from now on.
    AsksClient,
    /// The call continues. It may still be waiting for its client: the message does not tell.
    Continues,
    /// No effect.
    None,
}

impl TurnSignal {
    fn of(message: &Message<'_>) -> Self {
        match (message.kind(), message.method()) {
            // Servers ping at intervals, whatever their calls do.
            (Kind::Request, Method::Ping) => Self::None,
            (Kind::Request, _) => Self::AsksClient,
            (Kind::Notification, _) => Self::Continues,
            // The call ends, and its turn ends with its reply.
            (Kind::Result | Kind::Error, _) => Self::None,
        }
    }
}

/// Removes a call from its queue if the client's message cancels one that waits for its turn, at any gateway.
/// Everything else is [`NotWaiting`](Withdrawal::NotWaiting) and goes to the server; a cancelled call that has its turn
/// keeps it for a limited grace.
pub async fn withdraw(
    router: &SessionRouter,
    session: &Session,
    server: &Server,
    message: &Message<'_>,
    lane: Option<Lane>,
) -> Withdrawal {
    let is_cancellation =
        message.kind() == Kind::Notification && message.method() == Method::Cancelled;
    match message.params.request_id() {
        Some(id) if is_cancellation && server.concurrency == Concurrency::Serial => {
            let id = turn_id(id, lane);
            Box::pin(router.withdraw(session, &server.id, &id)).await
        }
        _ => Withdrawal::NotWaiting,
    }
}

/// A request's name within its session. Several clients of one session may use the same id.
fn turn_id(id_json: &str, lane: Option<Lane>) -> Cow<'_, str> {
    match lane {
        None => Cow::Borrowed(id_json),
        // JSON ids never have a colon after digits.
        Some(Lane(lane)) => Cow::Owned(format!("{lane}:{id_json}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use mooring_protocol::envelope::Sender;

    fn signal(text: &str) -> TurnSignal {
        TurnSignal::of(&Message::parse(text.as_bytes(), Sender::Upstream).unwrap())
    }

    /// Two processes of one client may each cancel their own request 1.
    #[test]
    fn requests_of_two_clients_with_one_id_have_two_turns() {
        let of = |lane: Option<u64>| turn_id("1", lane.map(Lane));
        assert_eq!(of(None), "1");
        assert_eq!(of(Some(7)), of(Some(7)));
        assert_ne!(of(Some(7)), of(Some(8)));
        assert_ne!(of(Some(7)), of(None));
    }

    #[test]
    fn a_call_waits_from_a_request_to_its_client_until_its_server_says_something_else() {
        for method in [
            "elicitation/create",
            "sampling/createMessage",
            "roots/list",
            "x/ask",
        ] {
            let asks = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
            assert_eq!(signal(&asks), TurnSignal::AsksClient, "{method}");
        }
        for (text, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
                TurnSignal::None,
            ),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, TurnSignal::None),
            (
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}"#,
                TurnSignal::None,
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#,
                TurnSignal::Continues,
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/message"}"#,
                TurnSignal::Continues,
            ),
        ] {
            assert_eq!(signal(text), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn the_turn_is_released_while_the_call_waits_for_its_client() {
        let (turn, is_passed_on) = Turn::watched();
        let call = CallTurn { turn };
        for (text, expected) in [
            (
                r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#,
                false,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create"}"#,
                true,
            ),
            (r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#, true),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/message"}"#,
                false,
            ),
            (r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#, false),
            (r#"{"jsonrpc":"2.0","id":4,"method":"roots/list"}"#, true),
            (r#"{"jsonrpc":"2.0","id":"c:1","result":{}}"#, true),
        ] {
            call.saw(&Message::parse(text.as_bytes(), Sender::Upstream).unwrap());
            assert_eq!(is_passed_on(), expected, "{text}");
        }
    }
}
