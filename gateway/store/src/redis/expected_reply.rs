//! What the reply to a command has to be, before anything of it is believed.
//!
//! Replies are assigned by their order. Where a proxy drops, repeats or swaps one, all later replies of the connection belong
//! to other requests, and those of other users' sessions look right in every field. Invariant: a reply of the module is
//! believed only if it names its request; a reply of the server itself is no refusal of a rule, and has the form that the
//! command's replies have.

use mooring_session::RequestDigest;
use mooring_session::request_digest::REQUEST_FIELD;
use redis::{Arg, Cmd, ServerError, Value};

/// What the reply to a command has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpectedReply {
    /// A map that begins with this digest, an error that ends with it, or where a map would repeat what the caller knows, the
    /// digest as an integer, alone or at the head of an array.
    Named(RequestDigest),
    /// A list that begins with this number.
    Numbered(i64),
    /// A list without a name, or an error that ends with this digest.
    List(RequestDigest),
    /// A reply of the server's own commands.
    Form(ReplyForm),
}

/// The form of a reply of the server's own commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyForm {
    /// `PONG`.
    Pong,
    /// `OK`.
    Done,
    /// A number.
    Number,
    /// A text, or null.
    Text,
    /// As many values as keys.
    Values(usize),
    /// The fields of a hash with their values.
    Fields,
    /// The replies to a transaction, or null if it was not executed.
    Results,
    /// A list of texts.
    Texts,
    /// Anything, where a connection has no other command in flight.
    Any,
}

impl ExpectedReply {
    /// The reply to this command.
    pub(super) fn to(command: &Cmd) -> Self {
        let words = || {
            command.args_iter().map(|word| match word {
                Arg::Simple(word) => word,
                // The gateway sends no other.
                _ => b"",
            })
        };
        let name = words().next().unwrap_or_default();
        match name {
            b"WORKER.WAIT" | b"WORKER.LIST" | b"SESSION.EXPLAIN" => {
                Self::List(RequestDigest::of(words()))
            }
            _ if name.starts_with(b"SESSION.") || name.starts_with(b"WORKER.") => {
                Self::Named(RequestDigest::of(words()))
            }
            b"EVALSHA" | b"EVAL" => {
                let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse().ok();
                let keys = words().nth(2).and_then(number).unwrap_or_default();
                let number = usize::try_from(keys)
                    .ok()
                    .and_then(|keys: usize| words().nth(keys.saturating_add(3)).and_then(number));
                Self::Numbered(number.unwrap_or_default())
            }
            b"PING" => Self::Form(ReplyForm::Pong),
            b"SET" | b"LTRIM" | b"AUTH" | b"SELECT" | b"ASKING" => Self::Form(ReplyForm::Done),
            b"DEL" | b"RPUSH" | b"PEXPIRE" => Self::Form(ReplyForm::Number),
            b"GET" | b"HGET" => Self::Form(ReplyForm::Text),
            b"HGETALL" => Self::Form(ReplyForm::Fields),
            b"EXEC" => Self::Form(ReplyForm::Results),
            b"LRANGE" => Self::Form(ReplyForm::Texts),
            b"MGET" => Self::Form(ReplyForm::Values(words().len().saturating_sub(1))),
            _ => Self::Form(ReplyForm::Any),
        }
    }

    /// Whether this reply can be the one to the command.
    pub(super) fn admits(self, reply: &Value) -> bool {
        if let Some(digest) = integer_in(reply) {
            return match self {
                Self::Named(request) => digest == request.to_integer(),
                Self::Numbered(number) => digest == number && matches!(reply, Value::Array(_)),
                Self::List(_) => false,
                Self::Form(ReplyForm::Results) => matches!(reply, Value::Array(_)),
                Self::Form(form) => form.admits(reply) && !matches!(reply, Value::Array(_)),
            };
        }
        let name = name_in(reply);
        let is_error = matches!(reply, Value::ServerError(_));
        match (self, name) {
            (Self::Named(request) | Self::List(request), Some(name)) => {
                name == request.to_hex() && (is_error || matches!(self, Self::Named(_)))
            }
            (Self::Form(_) | Self::Numbered(_), Some(_)) => false,
            // The server's own errors name no request.
            (_, None) if is_error => true,
            (Self::Named(_) | Self::Numbered(_), None) => false,
            (Self::List(_), None) => matches!(reply, Value::Array(_) | Value::Nil),
            (Self::Form(form), None) => form.admits(reply),
        }
    }
}

/// The integer that a reply is, or that an array begins with.
fn integer_in(reply: &Value) -> Option<i64> {
    match reply {
        Value::Int(integer) => Some(*integer),
        Value::Array(values) => match values.first() {
            Some(Value::Int(integer)) => Some(*integer),
            _ => None,
        },
        _ => None,
    }
}

impl ReplyForm {
    fn admits(self, reply: &Value) -> bool {
        match self {
            Self::Pong => match reply {
                Value::SimpleString(text) => text == "PONG",
                _ => false,
            },
            Self::Done => *reply == Value::Okay,
            Self::Number => matches!(reply, Value::Int(_)),
            Self::Text => matches!(reply, Value::BulkString(_) | Value::Nil),
            Self::Values(count) => {
                matches!(reply, Value::Array(values) if values.len() == count)
            }
            Self::Fields => match reply {
                Value::Map(_) => true,
                Value::Array(values) => values.len().is_multiple_of(2),
                _ => false,
            },
            Self::Results => matches!(reply, Value::Array(_) | Value::Nil),
            Self::Texts => match reply {
                Value::Array(values) => {
                    (values.iter()).all(|value| matches!(value, Value::BulkString(_)))
                }
                _ => false,
            },
            Self::Any => true,
        }
    }
}

/// The digest of the request that a reply names, if it names one: in RESP2 maps are flat.
fn name_in(reply: &Value) -> Option<&[u8]> {
    let (field, value) = match reply {
        Value::Map(fields) => fields.first().map(|(field, value)| (field, value))?,
        Value::Array(values) => (values.first()?, values.get(1)?),
        Value::ServerError(error) => return refusal_of(error)?.1.map(str::as_bytes),
        _ => return None,
    };
    match (field, value) {
        (Value::BulkString(field), Value::BulkString(digest))
            if field == REQUEST_FIELD.as_bytes() =>
        {
            Some(digest)
        }
        _ => None,
    }
}

/// The text of an error without its code, and the digest of the request at its end; none for an error without a text.
pub(super) fn refusal_of(error: &ServerError) -> Option<(&str, Option<&str>)> {
    let text = error.details()?;
    let named = || {
        let (text, name) = text.rsplit_once(" (")?;
        let digest = name.strip_suffix(')')?.strip_prefix(REQUEST_FIELD)?;
        Some((text, digest.strip_prefix(' ')?))
    };
    Some(match named() {
        Some((text, digest)) => (text, Some(digest)),
        None => (text, None),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn text(text: impl AsRef<[u8]>) -> Value {
        Value::BulkString(text.as_ref().to_vec())
    }

    fn command(words: &[&str]) -> Cmd {
        let mut command = Cmd::new();
        command.arg(words);
        command
    }

    fn replies_to(words: &[&str]) -> [Value; 5] {
        let digest = RequestDigest::of(words.iter().map(|word| word.as_bytes()));
        let pair = (text(REQUEST_FIELD), text(digest.to_hex()));
        let (field, value) = pair.clone();
        let error = format!("-NOSESSION no such session ({REQUEST_FIELD} {digest})\r\n");
        [
            Value::Map(vec![pair, (text("state"), text("unbound"))]),
            Value::Array(vec![field, value, text("state"), text("unbound")]),
            redis::parse_redis_value(error.as_bytes()).unwrap(),
            Value::Int(digest.to_integer()),
            Value::Array(vec![Value::Int(digest.to_integer()), Value::Int(1)]),
        ]
    }

    /// Every pair of replies that stand in for each other.
    #[test]
    fn no_reply_of_the_module_is_taken_for_that_of_another_request() {
        let requests: [&[&str]; 10] = [
            &[
                "SESSION.ENTER",
                "k1",
                "zoe",
                "tools",
                "w:1",
                "t1",
                "LEASE",
                "2000",
            ],
            &[
                "SESSION.ENTER",
                "k1",
                "zoe",
                "tools",
                "w:1",
                "t2",
                "LEASE",
                "2000",
            ],
            &[
                "SESSION.ENTER",
                "k2",
                "zoe",
                "tools",
                "w:1",
                "t1",
                "LEASE",
                "2000",
            ],
            &["SESSION.ROUTE", "k1", "zoe", "tools", "w:1"],
            &["SESSION.ROUTE", "k1", "zoe", "other", "w:1"],
            &["SESSION.GET", "k1"],
            &["SESSION.KILL", "k1"],
            &["WORKER.BEAT", "w:1", "127.0.0.1:1", "TTL", "2000"],
            &["PING"],
            &["MGET", "a", "b", "c", "d"],
        ];
        for (sent, words) in requests.iter().enumerate() {
            let expected = ExpectedReply::to(&command(words));
            for (answered, other) in requests.iter().enumerate().take(8) {
                for reply in replies_to(other) {
                    assert_eq!(
                        expected.admits(&reply),
                        sent == answered,
                        "{words:?}: {reply:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_reply_of_the_server_has_the_form_of_its_command() {
        let [ok, nothing, number] = [Value::Okay, Value::Nil, Value::Int(1)];
        let values = Value::Array(vec![Value::Nil, text("b")]);
        let pong = Value::SimpleString("PONG".to_owned());
        let texts = Value::Array(vec![text("a"), text("b"), text("c")]);
        let all = [ok, nothing, number, values, pong, text("a"), texts];
        for (words, admitted) in [
            (&["PING"][..], &[4][..]),
            (&["SET", "k", "v"], &[0]),
            (&["AUTH", "user", "password"], &[0]),
            (&["SELECT", "1"], &[0]),
            (&["DEL", "k"], &[2]),
            (&["GET", "k"], &[1, 5]),
            (&["HGET", "k", "f"], &[1, 5]),
            (&["HGETALL", "k"], &[3]),
            (&["EXEC"], &[1, 3, 6]),
            (&["MGET", "k", "l"], &[3]),
            (&["MGET", "k"], &[]),
            (&["LTRIM", "k", "-2", "-1"], &[0]),
            (&["RPUSH", "k", "v"], &[2]),
            (&["PEXPIRE", "k", "1"], &[2]),
            (&["LRANGE", "k", "0", "-1"], &[6]),
            (&["SESSION.GET", "k"], &[]),
        ] {
            let expected = ExpectedReply::to(&command(words));
            let seen: Vec<_> = (0..all.len())
                .filter(|at| all.get(*at).is_some_and(|reply| expected.admits(reply)))
                .collect();
            assert_eq!(seen, admitted, "{words:?}");
            let own = redis::parse_redis_value(b"-LOADING the dataset\r\n").unwrap();
            assert!(expected.admits(&own), "{words:?}");
        }
    }
}
