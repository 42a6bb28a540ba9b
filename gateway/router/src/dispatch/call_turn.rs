//! Turns of tool calls: the calls of one session at one server run one after another, unless the server's settings say
//! otherwise.
//!
//! A call holds its turn from before it is sent until its reply ends, or until shortly after it was cancelled. It releases
//! the turn while it waits for its client, which may have to finish other calls before it answers. Only tool calls wait.
//! Invariants: no answer, cancellation or progress ever waits for a turn, so no call waits for itself; a reply never waits
//! for a turn.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use mooring_session::rules::RouteReply;

use crate::affinity::{Session, SessionRouter, Turn, TurnError, Withdrawal};
use mooring_metrics as metrics;
use mooring_protocol::{Kind, Lane, Message, Method};
use mooring_settings::Concurrency;
use mooring_upstream::Server;

/// The turn of a tool call, held or released. Dropping it gives the turn to the next call.
#[derive(Debug)]
pub struct CallTurn {
    turn: Turn,
}

impl CallTurn {
    /// Waits for the turn that a client's message needs, for `wait_max` at most. Answers also where the session's calls
    /// go, which need not be asked for then. None where the message needs no turn, which costs nothing. `lane` tells the
    /// client from others of its session.
    ///
    /// # Errors
    /// See [`TurnError`]. Nothing of the call was done.
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

    /// The stream of the call's reply brought this message of the server's.
    pub fn saw(&self, message: &Message<'_>) {
        match Sign::of(message) {
            Sign::AsksItsClient => self.turn.release(),
            Sign::GoesOn => self.turn.resume(),
            Sign::SaysNothing => {}
        }
    }
}

/// What a server's message says about the call on whose stream it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// It waits for its client from now on.
    AsksItsClient,
    /// It does not wait any more. That a server says something while it still waits cannot be told from that.
    GoesOn,
    /// Nothing that is of use.
    SaysNothing,
}

impl Sign {
    fn of(message: &Message<'_>) -> Self {
        match (message.kind(), message.method()) {
            // A server asks at its intervals whether somebody is there, whatever its calls do.
            (Kind::Request, Method::Ping) => Self::SaysNothing,
            (Kind::Request, _) => Self::AsksItsClient,
            (Kind::Notification, _) => Self::GoesOn,
            // The call is over, and gives back its turn with its reply.
            (Kind::Result | Kind::Error, _) => Self::SaysNothing,
        }
    }
}

/// Takes a call out of its queue where a client's message cancels one that still waits for its turn, at whichever
/// worker. Everything else is [`NotWaiting`](Withdrawal::NotWaiting), and goes to the server; a cancelled call that has its
/// turn then keeps it for a grace, and no longer.
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
            router.withdraw(session, &server.id, &id).await
        }
        _ => Withdrawal::NotWaiting,
    }
}

/// What names a request among all of its session. Clients of one session may give the same id.
fn turn_id(id_json: &str, lane: Option<Lane>) -> Cow<'_, str> {
    match lane {
        None => Cow::Borrowed(id_json),
        // No id as JSON has a colon after digits.
        Some(Lane(lane)) => Cow::Owned(format!("{lane}:{id_json}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use mooring_protocol::envelope::Sender;

    fn sign(text: &str) -> Sign {
        Sign::of(&Message::parse(text.as_bytes(), Sender::Upstream).unwrap())
    }

    /// Two processes of one client may cancel each their own request 1.
    #[test]
    fn requests_of_one_id_and_two_clients_have_two_turns() {
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
            assert_eq!(sign(&asks), Sign::AsksItsClient, "{method}");
        }
        for (text, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
                Sign::SaysNothing,
            ),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, Sign::SaysNothing),
            (
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}"#,
                Sign::SaysNothing,
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#,
                Sign::GoesOn,
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/message"}"#,
                Sign::GoesOn,
            ),
        ] {
            assert_eq!(sign(text), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn the_turn_is_passed_on_while_the_call_waits_and_asked_for_again_after_that() {
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
