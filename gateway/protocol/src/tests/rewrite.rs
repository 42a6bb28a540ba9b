//! Whole messages rewritten in both directions: only ids and tokens change, and each change is reverted.

use std::borrow::Cow;

use bytes::Bytes;
use proptest::prelude::*;

use super::{id_json, json, object_of, other_members, respell, space};
use crate::Marker;
use crate::envelope::{Message, Sender};
use crate::ids::{Epoch, IdError, RequestOrigin, RequestTag};
use crate::rewrite::{RewriteError, into_bytes, rewrite_down, rewrite_up};

const EPOCH: Epoch = Epoch(4);
const TAG: RequestTag = RequestTag(10);
/// The prefix that `TAG` gives an id.
const TAGGED: &str = "c:0000000000000000000000000000000a:";

fn up(text: &str) -> Result<(String, Option<Epoch>), RewriteError> {
    let message = Message::parse(text.as_bytes(), Sender::Client).unwrap();
    let up = rewrite_up(&message, Some(TAG))?;
    Ok((up.text.into_owned(), up.refers_to.map(|id| id.epoch)))
}

fn down(text: &str) -> Result<(String, Option<RequestOrigin<'static>>), RewriteError> {
    let message = Message::parse(text.as_bytes(), Sender::Upstream).unwrap();
    let down = rewrite_down(&message, &Marker::of(EPOCH))?;
    let answers = down.answers.map(owned);
    Ok((down.text.into_owned(), answers))
}

fn owned(origin: RequestOrigin<'_>) -> RequestOrigin<'static> {
    match origin {
        RequestOrigin::Client { id, tag } => RequestOrigin::Client {
            id: Cow::Owned(id.into_owned()),
            tag,
        },
        RequestOrigin::Gateway { boot, sequence } => RequestOrigin::Gateway {
            boot: Cow::Owned(boot.into_owned()),
            sequence,
        },
        RequestOrigin::Nobody => RequestOrigin::Nobody,
        RequestOrigin::Foreign => RequestOrigin::Foreign,
    }
}

fn of_client(id: &'static str) -> Option<RequestOrigin<'static>> {
    Some(RequestOrigin::Client {
        id: Cow::Borrowed(id),
        tag: Some(TAG),
    })
}

#[test]
fn requests_hide_the_senders_id_and_token() {
    let text = r#"{"jsonrpc":"2.0", "id" : 7,"method":"tools/call","params":{"_meta":{"progressToken":"p"},"x":{"id":1}}}"#;
    let expected = text
        .replace(" 7", r#" "PREFIX7""#)
        .replace(r#""p""#, r#""PREFIX\"p\"""#);
    assert_eq!(up(text), Ok((expected.replace("PREFIX", TAGGED), None)));
    assert_eq!(down(text), Ok((expected.replace("PREFIX", "s:4:"), None)));
}

#[test]
fn cancellations_name_the_senders_own_request() {
    let text = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        )
    };
    let sent = text(&format!(r#""{TAGGED}7""#));
    assert_eq!(up(&text("7")), Ok((sent, None)));
    let unknown = text("7");
    let unknown = Message::parse(unknown.as_bytes(), Sender::Client).unwrap();
    let sent = rewrite_up(&unknown, None).unwrap().text;
    assert_eq!(sent, text(r#""c::7""#));
    assert_eq!(down(&text("7")), Ok((text(r#""s:4:7""#), None)));
    let source = IdError::Type;
    let field = "requestId";
    assert_eq!(
        up(&text("null")),
        Err(RewriteError::Token { field, source })
    );
    // A task is cancelled without a request id.
    let bare = r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#;
    assert_eq!(up(bare), Ok((bare.to_owned(), None)));
}

#[test]
fn progress_names_the_receivers_request() {
    let text = |token: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#
        )
    };
    assert_eq!(
        up(&text(r#""s:3:\"t\"""#)),
        Ok((text(r#""t""#), Some(Epoch(3))))
    );
    assert_eq!(up(&text("7")), Err(RewriteError::UnknownProgressToken));
    let tagged = text(&format!(r#""{TAGGED}7""#));
    assert_eq!(down(&tagged), Ok((text("7"), of_client("7"))));
    assert_eq!(
        down(&text("7")),
        Ok((text("7"), Some(RequestOrigin::Foreign)))
    );
}

#[test]
fn responses_return_to_the_requester() {
    let text = |id: &str| format!(r#"{{"result":{{"id":1}},"jsonrpc":"2.0","id":{id}}}"#);
    assert_eq!(
        up(&text(r#""s:9:\"q\"""#)),
        Ok((text(r#""q""#), Some(Epoch(9))))
    );
    for id in ["7", r#""7""#, r#""c:7""#, r#""s:x:7""#] {
        assert_eq!(up(&text(id)), Err(RewriteError::UnknownRequest), "{id}");
    }
    let tagged = text(&format!(r#""{TAGGED}7""#));
    assert_eq!(down(&tagged), Ok((text("7"), of_client("7"))));
    let own = RequestOrigin::Gateway {
        boot: Cow::Borrowed("boot"),
        sequence: 2,
    };
    let raw = text(r#""boot:2""#);
    assert_eq!(down(&raw), Ok((raw.clone(), Some(own))));
    let raw = r#"{"error":{},"id":null}"#;
    assert_eq!(down(raw), Ok((raw.to_owned(), Some(RequestOrigin::Nobody))));
}

#[test]
fn a_token_that_is_no_token_is_refused() {
    let text = r#"{"jsonrpc":"2.0","id":7,"method":"m","params":{"_meta":{"progressToken":1.5}}}"#;
    let (field, source) = ("progressToken", IdError::Type);
    assert_eq!(up(text), Err(RewriteError::Token { field, source }));
}

#[test]
fn unchanged_messages_are_not_copied() {
    let text = "\u{feff}{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}";
    let body = Bytes::from_static(text.as_bytes());
    let message = Message::parse(&body, Sender::Client).unwrap();
    let sent = into_bytes(rewrite_up(&message, None).unwrap().text, &body);
    assert_eq!(sent, body.slice(3..));
    assert_eq!(sent.as_ptr(), body.slice(3..).as_ptr());
}

proptest! {
    #[test]
    fn a_call_and_its_answer_keep_every_other_byte(
        id in id_json(),
        token in prop::option::of(id_json()),
        others in other_members(),
        arguments in json(),
        tag in any::<u128>(),
        how in 0..3_usize,
        space in space(),
    ) {
        let tag = Some(RequestTag(tag));
        let request = |id: &str, token: Option<&str>| {
            let meta = token.map_or("{}".to_owned(), |token| format!(r#"{{"progressToken":{token}}}"#));
            let mut members = others.clone();
            for (key, value) in [
                ("jsonrpc", "\"2.0\""),
                ("params", &format!(r#"{{"arguments":{arguments},"_meta":{meta}}}"#)),
                ("id", id),
                ("method", "\"tools/call\""),
            ] {
                members.insert(members.len() / 2, (format!("\"{key}\""), value.to_owned()));
            }
            object_of(&members, space)
        };
        let sent = request(&id, token.as_deref());
        let message = Message::parse(sent.as_bytes(), Sender::Client).unwrap();
        let sent_up = rewrite_up(&message, tag).unwrap().text.into_owned();

        let seen = Message::parse(sent_up.as_bytes(), Sender::Client).unwrap();
        let seen_id = seen.id().unwrap().as_json();
        let seen_token = seen.params.meta_progress_token;
        prop_assert_eq!(&sent_up, &request(seen_id, seen_token));

        let respelled = respell(seen_id, how);
        let answer = |id: &str| format!(r#"{{"id":{id}{space},"result":{arguments}}}"#);
        let raw = answer(&respelled);
        let message = Message::parse(raw.as_bytes(), Sender::Upstream).unwrap();
        let received = rewrite_down(&message, &Marker::of(EPOCH)).unwrap();
        prop_assert_eq!(&received.text, &answer(&id));
        prop_assert_eq!(received.answers, Some(RequestOrigin::Client { id: id.as_str().into(), tag }));

        if let (Some(token), Some(seen)) = (token, seen_token) {
            let progress = |token: &str| format!(r#"{{"method":"notifications/progress","params":{{"progressToken":{token},"x":{arguments}}}}}"#);
            let raw = progress(&respell(seen, how));
            let message = Message::parse(raw.as_bytes(), Sender::Upstream).unwrap();
            prop_assert_eq!(&rewrite_down(&message, &Marker::of(EPOCH)).unwrap().text, &progress(&token));
        }
    }
}
