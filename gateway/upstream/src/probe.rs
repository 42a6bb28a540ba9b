//! Health probe of an upstream session: a ping over a new connection.
//!
//! Neither a reset of a reused connection nor a timeout proves a loss. A session is lost if the instance refuses
//! connections, or answers that it does not know the session.

use std::time::Duration;

use http::StatusCode;

use super::exchange::{Answer, within};
use super::request::Outgoing;
use super::{Client, ExchangeError, Instance, SendError, read_answer};

/// Most pings of one probe. A process that is exiting accepts connections for a moment and resets them; the next ping
/// finds it alive or gone.
const ATTEMPTS_MAX: usize = 3;
/// Pause between the pings of a probe.
const RETRY_PAUSE: Duration = Duration::from_millis(40);

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// The instance answers and knows the session.
    Alive,
    /// The instance refuses connections.
    InstanceLost,
    /// The instance answers and does not know the session: it was restarted or has dropped it.
    SessionLost,
    /// Unclear: a timeout or a server error.
    Unclear,
}

/// Sends `ping` (a POST with the stored upstream session id) and evaluates the answer. If the connection breaks, the
/// ping is repeated a few times.
pub async fn probe(
    client: &Client,
    instance: &Instance,
    ping: &Outgoing,
    limit: Duration,
) -> ProbeResult {
    let exchange = async {
        let mut attempts_left = ATTEMPTS_MAX;
        loop {
            attempts_left -= 1;
            match client.send_fresh(instance, ping).await {
                Ok(response) => return read_answer(response, ping).await,
                Err(SendError::Broken(_)) if attempts_left > 0 => {
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    };
    match within(limit, exchange).await {
        Ok(answer) if is_session_unknown(&answer) => ProbeResult::SessionLost,
        Ok(answer) if answer.status.is_success() => ProbeResult::Alive,
        Err(ExchangeError::Send(SendError::Refused)) => ProbeResult::InstanceLost,
        Ok(_) | Err(_) => ProbeResult::Unclear,
    }
}

/// Whether the answer to a request with a session id means that the session is unknown: 404 by the protocol, 400 in
/// practice, unless the body is an error of a revision without sessions.
#[must_use]
pub fn is_session_unknown(answer: &Answer) -> bool {
    match answer.status {
        StatusCode::NOT_FOUND => true,
        StatusCode::BAD_REQUEST => !is_modern_error(answer),
        _ => false,
    }
}

/// The error codes that MCP 2026-07-28 reserves concern the message, not the session.
fn is_modern_error(answer: &Answer) -> bool {
    #[derive(serde::Deserialize)]
    struct Error {
        code: i64,
    }
    answer
        .message()
        .and_then(|message| message.outcome().map(str::to_owned))
        .and_then(|error| serde_json::from_str::<Error>(&error).ok())
        .is_some_and(|error| (-32099..=-32020).contains(&error.code))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn unknown_session_answers() {
        let modern = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32020,"message":"header"}}"#;
        let legacy =
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no session"}}"#;
        for (status, text, unknown) in [
            (StatusCode::NOT_FOUND, "session not found", true),
            (StatusCode::NOT_FOUND, legacy, true),
            (StatusCode::BAD_REQUEST, legacy, true),
            (StatusCode::BAD_REQUEST, "", true),
            (StatusCode::BAD_REQUEST, modern, false),
            (StatusCode::OK, legacy, false),
            (StatusCode::INTERNAL_SERVER_ERROR, "", false),
            (StatusCode::UNAUTHORIZED, "", false),
        ] {
            let answer = Answer {
                status,
                upstream_session: None,
                text: Bytes::copy_from_slice(text.as_bytes()),
            };
            assert_eq!(is_session_unknown(&answer), unknown, "{status} {text}");
        }
    }
}
