//! Relaying a member's reply to the group's client, and the group's own replies.
//!
//! Invariant: event ids are marked with their member, and every rebind on the way is reported.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt, future, stream};
use http::StatusCode;
use serde_json::Value;

use super::event_ids::{Source, mark_event};
use mooring_protocol::held::held_bytes;
use mooring_protocol::mark::MarkPlace;
use mooring_protocol::{Event, HeldText, Id, Reply, ReplyBody, ReplyError, call, mark};
use mooring_router::affinity::RebindNotice;
use mooring_upstream::ANSWER_BYTES_MAX;
use mooring_usage::HeldMemory;

/// The successful reply of the member `server` to the client's own message. `moved` are the rebinds before it was sent.
pub(super) fn relay_reply(reply: Reply, server: &str, moved: &[RebindNotice]) -> Reply {
    let body = match reply.body {
        ReplyBody::Events(events) => {
            let server: Box<str> = server.into();
            let marked = events.map_ok(move |event| mark_event(event, &server, Source::Call));
            ReplyBody::Events(Box::pin(warnings(moved).chain(marked)))
        }
        body if moved.is_empty() => body,
        // Rebinds are reported as events before the response.
        body => {
            let answer = Reply {
                memory: reply.memory.clone(),
                ..Reply::new(reply.status, body)
            };
            let answer = async move {
                let HeldText { text, held } = answer.read_text(ANSWER_BYTES_MAX).await?;
                Ok((!text.is_empty()).then(|| Event {
                    held,
                    ..Event::message(text)
                }))
            };
            let answer = stream::once(answer).try_filter_map(future::ok);
            ReplyBody::Events(Box::pin(warnings(moved).chain(answer)))
        }
    };
    Reply { body, ..reply }
}

/// Adds the member's id to a JSON-RPC error: the member's, or the gateway's on its behalf. Errors of the whole session
/// are unchanged.
pub(super) fn name_member(reply: Reply, server: &str) -> Reply {
    if reply.status == StatusCode::NOT_FOUND {
        return reply;
    }
    // Refusals have been read completely.
    let body = match reply.body {
        ReplyBody::Json(text) => ReplyBody::Json(member_named_in(&text, server).unwrap_or(text)),
        body => body,
    };
    Reply { body, ..reply }
}

/// The JSON-RPC error with the member's id before its message; none if the text is no such error.
fn member_named_in(text: &[u8], server: &str) -> Option<Bytes> {
    let mut body: Value = serde_json::from_slice(text).ok()?;
    let message = body.pointer_mut("/error/message")?;
    let named = format!("{server}: {}", message.as_str()?);
    *message = Value::String(named);
    Some(Bytes::from(body.to_string()))
}

/// A result of the group itself, with reports of the rebinds that happened meanwhile.
pub(super) fn own_result(id: Option<Id<'_>>, result: &str, moved: &[RebindNotice]) -> Reply {
    let id = id.map_or("null", |id| id.as_json());
    let text = call::result(id, result);
    let Some(first) = moved.first() else {
        return Reply::json(StatusCode::OK, text);
    };
    // A result has one mark; there is a warning for every rebind.
    let text = mark::mark_result(&text, &first.to_mark(), MarkPlace::Meta).unwrap_or(text);
    let answer = stream::iter([Ok(Event::message(text))]);
    Reply::events(warnings(moved).chain(answer))
}

/// The same reply, whose text keeps the memory that it takes. So does a stream of events until it is read.
pub(super) fn holding(reply: Reply, held: Option<Arc<HeldMemory>>) -> Reply {
    let body = match reply.body {
        ReplyBody::Json(text) => ReplyBody::Json(held_bytes(text, held.as_ref())),
        ReplyBody::Events(events) => ReplyBody::Events(events).guarded_by(held),
        body => body,
    };
    Reply { body, ..reply }
}

fn warnings(
    moved: &[RebindNotice],
) -> impl Stream<Item = Result<Event, ReplyError>> + Send + Unpin + use<> {
    let warnings: Vec<_> = moved
        .iter()
        .map(|moved| moved.to_mark().warning_event())
        .collect();
    stream::iter(warnings.into_iter().map(Ok))
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        clippy::indexing_slicing,
        reason = "tests fail by panicking"
    )]

    use super::*;
    use mooring_router::affinity::Loss;

    fn moved(to: &str) -> RebindNotice {
        RebindNotice {
            from: "instance-1".into(),
            to: to.into(),
            epoch: 7,
            reason: Loss::InstanceRefuses.as_str().into(),
        }
    }

    fn json(body: &'static str) -> Reply {
        Reply::json(StatusCode::OK, body)
    }

    async fn events(reply: Reply) -> Vec<Event> {
        match reply.body {
            ReplyBody::Events(events) => events.try_collect().await.unwrap(),
            other => panic!("{other:?} instead of events"),
        }
    }

    #[test]
    fn a_reply_without_a_move_stays_what_it_is() {
        let reply = relay_reply(json("{\n}"), "tools", &[]);
        assert!(matches!(reply.body, ReplyBody::Json(text) if text == "{\n}"));
    }

    #[tokio::test]
    async fn a_move_is_told_before_the_members_reply_in_whichever_form_that_comes() {
        let moves = [moved("http://new/")];
        let warning = moves[0].to_mark().warning_event();
        let answer = Event::message("{\r\n \"id\":1}");
        let passed_json = relay_reply(json("{\r\n \"id\":1}"), "tools", &moves);
        assert_eq!(events(passed_json).await, [warning.clone(), answer]);

        let event = |id: &str| Event {
            id: Some(id.into()),
            ..Event::message("{}")
        };
        let reply = Reply::events(stream::iter([Ok(event("3"))]));
        let expected = [warning, event("tools/call/3")];
        assert_eq!(events(relay_reply(reply, "tools", &moves)).await, expected);
    }

    #[tokio::test]
    async fn an_error_names_its_member_unless_it_is_of_the_session() {
        let error = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32009,"message":"away"}}"#;
        for (status, text_sent, expected) in [
            (503, error, r#""message":"tools: away""#),
            (404, error, r#""message":"away""#),
            (200, error, r#""message":"tools: away""#),
        ] {
            let reply = Reply::json(StatusCode::from_u16(status).unwrap(), text_sent);
            let body = name_member(reply, "tools").body;
            let text = body.read_text(1_000).await.unwrap();
            let text = std::str::from_utf8(&text).unwrap();
            assert!(text.contains(expected), "{status}: {text}");
        }
    }

    #[tokio::test]
    async fn a_result_of_the_groups_own_tells_of_every_move_and_bears_one_mark() {
        let moves = [moved("http://a/"), moved("http://b/")];
        let own = own_result(None, "{\"tools\":[]}", &moves);
        let events: Vec<serde_json::Value> = events(own)
            .await
            .iter()
            .map(|event| serde_json::from_slice(event.data.as_ref().unwrap()).unwrap())
            .collect();
        let to = |at: usize, pointer: &str| {
            events
                .get(at)
                .and_then(|event| event.pointer(pointer))
                .and_then(|to| to.as_str())
        };
        let warned = "/params/data/mooring~1rebound/to";
        assert_eq!(to(0, warned), Some("http://a/"));
        assert_eq!(to(1, warned), Some("http://b/"));
        assert_eq!(
            to(2, "/result/_meta/mooring~1rebound/to"),
            Some("http://a/")
        );
    }
}
