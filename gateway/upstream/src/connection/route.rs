//! Which stream a message of the server goes to.
//!
//! Streamable HTTP has one stream for each request and one for the rest; over a pipe all messages come on one line and
//! most do not say what they belong to. Invariant: the choice is a function of the message and of the calls in flight.

use mooring_protocol::{Kind, Message, Method};

/// What a message of the server belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageRoute {
    /// The request that it answers.
    ItsRequest,
    /// The request that asked for progress under its token.
    ItsToken,
    /// The connection itself, which answers a ping: what the server asks is whether the connection lives. Who would have
    /// to pass it on to the client would call a server dead whose client merely listens to nothing at the time.
    TheConnection,
    /// The earlier request of the server that it withdraws.
    ItsQuestion,
    /// A call in flight, if there is one: the client is asked something, or told what a call logs.
    ACall,
    /// Nothing in particular.
    Nothing,
}

/// What `message` belongs to.
pub(super) fn belongs(message: &Message<'_>) -> MessageRoute {
    match (message.kind(), message.method()) {
        (Kind::Result | Kind::Error, _) => MessageRoute::ItsRequest,
        (Kind::Request, Method::Ping) => MessageRoute::TheConnection,
        (Kind::Request, _) | (Kind::Notification, Method::LogMessage) => MessageRoute::ACall,
        (Kind::Notification, Method::Progress) => MessageRoute::ItsToken,
        (Kind::Notification, Method::Cancelled) if message.params.request_id().is_some() => {
            MessageRoute::ItsQuestion
        }
        (Kind::Notification, _) => MessageRoute::Nothing,
    }
}

/// Which of the calls in flight, each with its number and method, caused a message that names none: the tools/call that
/// was begun last, or without one the request that was begun last.
pub(super) fn cause(calls: impl Iterator<Item = (u64, Method)>) -> Option<u64> {
    let rank = |method: Method| match method {
        // Neither asks the client anything, and their streams are gone as fast as they came.
        Method::Initialize | Method::Ping => None,
        Method::ToolsCall => Some(1),
        _ => Some(0),
    };
    calls
        .filter_map(|(number, method)| Some((rank(method)?, number)))
        .max()
        .map(|(_, number)| number)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code")]
    use super::*;
    use mooring_protocol::Sender;

    #[test]
    fn every_kind_of_message_has_its_place() {
        for (fields, expected) in [
            (r#""id":"c:1","result":{}"#, MessageRoute::ItsRequest),
            (r#""id":null,"error":{}"#, MessageRoute::ItsRequest),
            (r#""id":1,"method":"ping""#, MessageRoute::TheConnection),
            (
                r#""id":1,"method":"elicitation/create""#,
                MessageRoute::ACall,
            ),
            (r#""id":1,"method":"vendor/ask""#, MessageRoute::ACall),
            (r#""method":"notifications/message""#, MessageRoute::ACall),
            (
                r#""method":"notifications/progress""#,
                MessageRoute::ItsToken,
            ),
            (
                r#""method":"notifications/cancelled","params":{"requestId":1}"#,
                MessageRoute::ItsQuestion,
            ),
            (
                r#""method":"notifications/cancelled""#,
                MessageRoute::Nothing,
            ),
            (
                r#""method":"notifications/tools/list_changed""#,
                MessageRoute::Nothing,
            ),
            (
                r#""method":"notifications/resources/updated""#,
                MessageRoute::Nothing,
            ),
        ] {
            let text = format!(r#"{{"jsonrpc":"2.0",{fields}}}"#);
            let message = Message::parse(text.as_bytes(), Sender::Upstream).unwrap();
            assert_eq!(belongs(&message), expected, "{text}");
        }
    }

    #[test]
    fn the_last_tool_called_is_the_cause() {
        use Method::{Initialize, Ping, PromptsGet, ResourcesRead, ToolsCall};
        let of = |calls: &[(u64, Method)]| cause(calls.iter().copied());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(1, Initialize), (2, Ping)]), None);
        assert_eq!(of(&[(1, PromptsGet)]), Some(1));
        assert_eq!(of(&[(1, PromptsGet), (2, ResourcesRead)]), Some(2));
        assert_eq!(of(&[(1, ToolsCall), (2, PromptsGet)]), Some(1));
        assert_eq!(of(&[(4, ToolsCall), (3, ToolsCall), (5, Ping)]), Some(4));
    }
}
