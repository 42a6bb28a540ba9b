//! A member's reply on its way to the group's client, and the group's own replies.
//!
//! Invariant: event ids are marked with their member, and a loss of state that was met on the way is told.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Collected};
use serde_json::Value;

use crate::group::event_ids::{EventMarker, Source};
use crate::http::answer;
use mooring_protocol::header::X_ACCEL_BUFFERING;
use mooring_protocol::{Event, Id, call, mark};
use mooring_router::affinity::RebindNotice;
use mooring_upstream::is_event_stream;

/// The reply of the member `server` to the client's own message, which is a success. `moved` is what was met before it was sent.
pub(super) fn passed(reply: Response, server: &str, moved: &[RebindNotice]) -> Response {
    let is_events = is_event_stream(&reply);
    if !is_events && moved.is_empty() {
        return reply;
    }
    let (mut head, inner) = reply.into_parts();
    let form = if is_events {
        Form::Events(EventMarker::new(server, Source::Call))
    } else {
        event_headers(&mut head.headers);
        Form::Json(Json::Begins)
    };
    let first = warnings(moved);
    let body = MemberReply {
        first: (!first.is_empty()).then_some(first),
        inner,
        form,
    };
    Response::from_parts(head, Body::new(body))
}

/// Names the member in a JSON-RPC error: its own, or the gateway's on its behalf. An error of the whole session stays as
/// it is.
pub(super) async fn name_member(reply: Response, server: &str) -> Response {
    if reply.status() == StatusCode::NOT_FOUND {
        return reply;
    }
    let (mut head, body) = reply.into_parts();
    // The body of a refusal was read whole before it was passed on.
    let Ok(text) = body.collect().await.map(Collected::to_bytes) else {
        return Response::from_parts(head, Body::empty());
    };
    let text = member_named_in(&text, server).unwrap_or(text);
    head.headers.remove(CONTENT_LENGTH);
    Response::from_parts(head, Body::from(text))
}

/// The JSON-RPC error with the member before its message; none where the text is no such error.
fn member_named_in(text: &[u8], server: &str) -> Option<Bytes> {
    let mut body: Value = serde_json::from_slice(text).ok()?;
    let message = body.pointer_mut("/error/message")?;
    let named = format!("{server}: {}", message.as_str()?);
    *message = Value::String(named);
    Some(Bytes::from(body.to_string()))
}

/// A result of the group's own, which tells of the moves that were met while it was made.
pub(super) fn own_result(id: Option<Id<'_>>, result: &str, moved: &[RebindNotice]) -> Response {
    let id = id.map_or("null", |id| id.as_json());
    let text = call::result(id, result);
    let Some(first) = moved.first() else {
        return answer::json(StatusCode::OK, Bytes::from(text));
    };
    // A result has one mark; the warnings tell of every move.
    let text = mark::mark_result(&text, &first.told()).unwrap_or(text);
    let mut body = BytesMut::from(&*warnings(moved));
    body.extend_from_slice(&Event::message(&text).encode());
    let mut reply = answer::json(StatusCode::OK, body.freeze());
    event_headers(reply.headers_mut());
    reply
}

/// What an event stream's head says: that nothing on the way may hold it back or keep it.
pub(super) fn event_headers(headers: &mut HeaderMap) {
    headers.remove(CONTENT_LENGTH);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    headers.insert(
        CACHE_CONTROL,
        HeaderValue::from_static("no-cache, no-transform"),
    );
}

fn warnings(moved: &[RebindNotice]) -> Bytes {
    let mut text = BytesMut::new();
    for moved in moved {
        text.extend_from_slice(&moved.told().warning_event());
    }
    text.freeze()
}

/// A reply that is changed while it arrives.
struct MemberReply {
    /// What goes out before anything of the member's.
    first: Option<Bytes>,
    inner: Body,
    form: Form,
}

/// What the member's reply is.
enum Form {
    /// Events, whose ids are marked.
    Events(EventMarker),
    /// JSON, which becomes the data of one event.
    Json(Json),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Json {
    Begins,
    Goes,
    Ended,
}

impl Form {
    fn push(&mut self, chunk: &Bytes) -> Bytes {
        match self {
            Self::Events(marker) => marker.push(chunk),
            Self::Json(state) => {
                let mut out = BytesMut::with_capacity(chunk.len().saturating_add(8));
                if std::mem::replace(state, Json::Goes) == Json::Begins {
                    out.extend_from_slice(b"data: ");
                }
                // A line break in JSON is white space between tokens, which a blank is as well; in an event it would
                // end the data.
                out.extend(chunk.iter().map(|byte| match byte {
                    b'\r' | b'\n' => b' ',
                    other => *other,
                }));
                out.freeze()
            }
        }
    }

    /// What ends the reply.
    fn end(&mut self) -> Bytes {
        match self {
            Self::Json(state @ Json::Goes) => {
                *state = Json::Ended;
                Bytes::from_static(b"\n\n")
            }
            Self::Events(_) | Self::Json(_) => Bytes::new(),
        }
    }
}

impl http_body::Body for MemberReply {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if let Some(first) = this.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        while !matches!(this.form, Form::Json(Json::Ended)) {
            let data = match std::task::ready!(Pin::new(&mut this.inner).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(chunk) => this.form.push(&chunk),
                    Err(_trailers) => continue,
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => match this.form.end() {
                    end if end.is_empty() => return Poll::Ready(None),
                    end => end,
                },
            };
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
        }
        Poll::Ready(None)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use mooring_router::affinity::Loss;

    fn moved(to: &str) -> RebindNotice {
        RebindNotice {
            from: "instance-1".into(),
            to: to.into(),
            epoch: 7,
            reason: Loss::InstanceRefuses.as_str().into(),
            is_recorded: false,
        }
    }

    async fn text(reply: Response) -> (String, Option<String>) {
        let content_type = reply.headers().get(CONTENT_TYPE).cloned();
        let body = reply.into_body().collect().await.unwrap().to_bytes();
        let content_type = content_type.map(|value| value.to_str().unwrap().to_owned());
        (String::from_utf8(body.to_vec()).unwrap(), content_type)
    }

    fn json(body: &'static str) -> Response {
        answer::json(StatusCode::OK, Bytes::from_static(body.as_bytes()))
    }

    #[tokio::test]
    async fn a_reply_without_a_move_stays_what_it_is() {
        let (body, content_type) = text(passed(json("{\n}"), "tools", &[])).await;
        assert_eq!(
            (body.as_str(), content_type.as_deref()),
            ("{\n}", Some("application/json"))
        );
    }

    #[tokio::test]
    async fn a_move_is_told_before_the_members_reply_in_whichever_form_that_comes() {
        let moves = [moved("http://new/")];
        let warning = String::from_utf8(warnings(&moves).to_vec()).unwrap();
        let (body, content_type) = text(passed(json("{\r\n \"id\":1}"), "tools", &moves)).await;
        assert_eq!(content_type.as_deref(), Some("text/event-stream"));
        assert_eq!(body, format!("{warning}data: {{   \"id\":1}}\n\n"));

        let mut events = json("id: 3\ndata: {}\n\n");
        event_headers(events.headers_mut());
        let (body, _) = text(passed(events, "tools", &moves)).await;
        assert_eq!(body, format!("{warning}id: tools/call/3\ndata: {{}}\n\n"));
    }

    #[tokio::test]
    async fn an_error_names_its_member_unless_it_is_of_the_session() {
        let error = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32009,"message":"away"}}"#;
        for (status, text_sent, expected) in [
            (503, error, r#""message":"tools: away""#),
            (404, error, r#""message":"away""#),
            (200, error, r#""message":"tools: away""#),
            (502, "<html>", "<html>"),
        ] {
            let reply = answer::json(StatusCode::from_u16(status).unwrap(), text_sent.into());
            let (body, _) = text(name_member(reply, "tools").await).await;
            assert!(body.contains(expected), "{status}: {body}");
        }
    }

    #[tokio::test]
    async fn a_result_of_the_groups_own_tells_of_every_move_and_bears_one_mark() {
        let moves = [moved("http://a/"), moved("http://b/")];
        let (body, _) = text(own_result(None, "{\"tools\":[]}", &moves)).await;
        let events: Vec<serde_json::Value> = body
            .split_terminator("\n\n")
            .map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap())
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
