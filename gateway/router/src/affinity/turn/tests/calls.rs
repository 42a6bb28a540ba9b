//! The messages of a call: what they mean for its turn, and the names of turns.

use mooring_protocol::envelope::Sender;

use super::super::{Turn, TurnSignal, turn_id};
use mooring_protocol::{Lane, Message};

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
        turn.saw(&Message::parse(text.as_bytes(), Sender::Upstream).unwrap());
        assert_eq!(is_passed_on(), expected, "{text}");
    }
}
