//! Selects the stream for a message of the server.
//!
//! Streamable HTTP has one stream per request and one for the rest. Over a pipe all messages share one channel, and
//! most do not name a request. Invariant: the choice depends only on the message and the in-flight calls.

use mooring_protocol::{Kind, Message, Method};

/// The destination of a server's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageRoute {
    /// The request that it answers.
    AnsweredRequest,
    /// The request with its progress token.
    ProgressToken,
    /// The connection, which answers pings itself. If pings were forwarded, a server would take a client without an
    /// open stream for dead.
    Connection,
    /// The earlier request of the server that it cancels.
    CancelledQuestion,
    /// An in-flight call, if there is one: for server-to-client requests and log messages.
    CausingCall,
    /// No request.
    General,
}

pub(super) fn route_of(message: &Message<'_>) -> MessageRoute {
    match (message.kind(), message.method()) {
        (Kind::Result | Kind::Error, _) => MessageRoute::AnsweredRequest,
        (Kind::Request, Method::Ping) => MessageRoute::Connection,
        (Kind::Request, _) | (Kind::Notification, Method::LogMessage) => MessageRoute::CausingCall,
        (Kind::Notification, Method::Progress) => MessageRoute::ProgressToken,
        (Kind::Notification, _) if message.cancelled_request().is_some() => {
            MessageRoute::CancelledQuestion
        }
        (Kind::Notification, _) => MessageRoute::General,
    }
}

/// The in-flight call, from pairs of number and method, that most likely caused a message which names none: the latest
/// `tools/call`, or without one the latest request.
pub(super) fn cause(calls: impl Iterator<Item = (u64, Method)>) -> Option<u64> {
    let rank = |method: Method| match method {
        // These cause no server-to-client requests, and their streams are short-lived.
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
    fn every_kind_of_message_has_a_route() {
        for (fields, expected) in [
            (
                r#""id":"c:0000000000000000000000000000000a:1","result":{}"#,
                MessageRoute::AnsweredRequest,
            ),
            (r#""id":null,"error":{}"#, MessageRoute::AnsweredRequest),
            (r#""id":1,"method":"ping""#, MessageRoute::Connection),
            (
                r#""id":1,"method":"elicitation/create""#,
                MessageRoute::CausingCall,
            ),
            (r#""id":1,"method":"vendor/ask""#, MessageRoute::CausingCall),
            (
                r#""method":"notifications/message""#,
                MessageRoute::CausingCall,
            ),
            (
                r#""method":"notifications/progress""#,
                MessageRoute::ProgressToken,
            ),
            (
                r#""method":"notifications/cancelled","params":{"requestId":1}"#,
                MessageRoute::CancelledQuestion,
            ),
            (
                r#""method":"notifications/cancelled""#,
                MessageRoute::General,
            ),
            (
                r#""method":"notifications/tools/list_changed""#,
                MessageRoute::General,
            ),
            (
                r#""method":"notifications/resources/updated""#,
                MessageRoute::General,
            ),
        ] {
            let text = format!(r#"{{"jsonrpc":"2.0",{fields}}}"#);
            let message = Message::parse(text.as_bytes(), Sender::Upstream).unwrap();
            assert_eq!(route_of(&message), expected, "{text}");
        }
    }

    #[test]
    fn the_latest_tool_call_is_the_cause() {
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
