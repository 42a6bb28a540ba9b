//! Maps error replies of the server to the refusals of the rules.
//!
//! An error that names no request is the server's own and no refusal. Of the others the code decides. The text is parsed only for details: which thing was stale or busy, who owns a binding,
//! which cap was reached.

use mooring_session::codec::CorruptRecord;
use mooring_session::names::WorkerId;
use mooring_session::refusal::{Busy, Refusal, Stale};
use redis::{ServerError, Value};

use super::expected_reply;
use super::reply::Problem;
use crate::error::{NotReady, StoreError};

/// The module's error for a CAP on keys that it does not index.
const NO_PREFIX: [&str; 2] = [
    "CAP needs a key under one of mooring.prefixes",
    "the key is under none of mooring.prefixes",
];

/// The quantities that are limited.
const LIMITS: [&str; 7] = [
    "bindings",
    "labels",
    "workers",
    "sessions",
    "turn-queue",
    "turn-queues",
    "turn-waiters",
];

/// Longest text of Redis that is repeated.
const DETAILS_CHARACTERS_MAX: usize = 200;

/// The reply to a command, unless it is an error of the server.
pub(super) fn accepted(reply: Value, command: &'static str) -> Result<Value, StoreError> {
    match reply {
        Value::ServerError(error) => Err(of_reply(command, &error)),
        value => Ok(value),
    }
}

/// The error for a reply that is not as expected.
pub(super) fn invalid_reply(command: &'static str) -> impl FnOnce(Problem) -> StoreError {
    move |problem| StoreError::Reply {
        command,
        problem: problem.into(),
    }
}

/// Maps an error reply to `command`, which has been checked to be its own.
pub(super) fn of_reply(command: &'static str, error: &ServerError) -> StoreError {
    match expected_reply::refusal_of(error) {
        Some((text, Some(_))) => of_module(command, error.code(), text),
        Some((text, None)) if text.starts_with("unknown command") => StoreError::NoModule,
        Some((_, None)) if error.code() == "ERR" => StoreError::Reply {
            command,
            problem: in_its_words("ERR", error.details()).into(),
        },
        _ => StoreError::NotReady(NotReady::Answered(
            in_its_words(error.code(), error.details()).into(),
        )),
    }
}

/// The code of an error and Redis' own text, which names the command or key that was refused: one line, and cut.
pub(super) fn in_its_words(code: &str, details: Option<&str>) -> String {
    let details = details.unwrap_or_default();
    let printable = details.chars().filter(|character| !character.is_control());
    let cut: String = printable.take(DETAILS_CHARACTERS_MAX).collect();
    format!("{code} {cut}").trim_end().to_owned()
}

/// Maps an error of the module.
fn of_module(command: &'static str, code: &str, text: &str) -> StoreError {
    let refusal = match code {
        "NOSESSION" => Some(Refusal::NoSession),
        "ENDED" => Some(Refusal::Ended),
        "DENIED" => Some(Refusal::Denied),
        "STALE" => Some(Refusal::Stale(stale(text))),
        "OWNED" => owner(text).map(Refusal::Owned),
        "BUSY" => busy(text).map(Refusal::Busy),
        "LIMIT" => limit(text),
        "WRONGTYPE" => Some(Refusal::Corrupt(CorruptRecord::field(b"(not a hash)"))),
        "ERR" => return error(command, text),
        _ => None,
    };
    match refusal {
        Some(refusal) => StoreError::Refused(refusal),
        None if matches!(code, "OWNED" | "LIMIT") => unreadable(command, code),
        None => StoreError::NotReady(NotReady::Answered(code.into())),
    }
}

fn error(command: &'static str, text: &str) -> StoreError {
    if NO_PREFIX.contains(&text) {
        return StoreError::NotIndexed;
    }
    if text == without_code(&Refusal::OtherId) {
        return StoreError::Refused(Refusal::OtherId);
    }
    if let Some(field) = text.strip_prefix("corrupt session record: ") {
        return StoreError::Refused(Refusal::Corrupt(CorruptRecord::Field(field.into())));
    }
    unreadable(command, "ERR")
}

fn unreadable(command: &'static str, code: &str) -> StoreError {
    StoreError::Reply {
        command,
        problem: format!("an error answer {code} that this version does not know").into(),
    }
}

fn stale(text: &str) -> Stale {
    [Stale::Generation, Stale::Boot, Stale::Turn, Stale::Worker]
        .into_iter()
        .find(|stale| stale.to_string() == text)
        .unwrap_or(Stale::Binding)
}

fn busy(text: &str) -> Option<Busy> {
    [
        Busy::Claim,
        Busy::Cleaning,
        Busy::Turn,
        Busy::Active,
        Busy::Draining,
        Busy::Address,
    ]
    .into_iter()
    .find(|busy| busy.to_string() == text)
}

fn owner(text: &str) -> Option<WorkerId> {
    let (_, owner) = text.rsplit_once(' ')?;
    WorkerId::parse(owner.as_bytes()).ok()
}

/// Parses `<what> <value>` for a limit of the rules, and `<value> <key>` for the cap in CREATE.
fn limit(text: &str) -> Option<Refusal> {
    // A cap comes without the key of the session to end where the caller may not read that.
    let (what, value) = text.split_once(' ').unwrap_or((text, ""));
    if let Ok(cap) = what.parse() {
        return Some(Refusal::Cap {
            cap,
            least_recently_used: unescaped(value)?,
        });
    }
    let what = LIMITS.into_iter().find(|known| *known == what)?;
    Some(Refusal::Limit {
        what,
        value: value.parse().ok()?,
    })
}

/// The bytes that `escape_ascii` has escaped. Keys that this project makes contain none.
fn unescaped(text: &str) -> Option<Box<[u8]>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next()? {
                b'x' => {
                    let mut digit = || char::from(rest.next()?).to_digit(16);
                    let (high, low) = (digit()?, digit()?);
                    u8::try_from(high * 16 + low).ok()?
                }
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                literal => literal,
            },
            plain => plain,
        });
    }
    Some(bytes.into())
}

fn without_code(refusal: &Refusal) -> String {
    let text = refusal.to_string();
    match text.split_once(' ') {
        Some((_, rest)) => rest.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn of_server(code: &str, text: &str) -> StoreError {
        let line = format!("-{code} {text}\r\n");
        let redis::Value::ServerError(error) = redis::parse_redis_value(line.as_bytes()).unwrap()
        else {
            unreachable!("{line} is an error");
        };
        of_reply("SESSION.ROUTE", &error)
    }

    #[test]
    fn every_refusal_survives_its_way_over_the_wire() {
        let refusals = [
            Refusal::NoSession,
            Refusal::Ended,
            Refusal::Denied,
            Refusal::Stale(Stale::Binding),
            Refusal::Stale(Stale::Generation),
            Refusal::Stale(Stale::Boot),
            Refusal::Stale(Stale::Turn),
            Refusal::Stale(Stale::Worker),
            Refusal::Owned(WorkerId::parse(b"host:4444:boot").unwrap()),
            Refusal::Busy(Busy::Claim),
            Refusal::Busy(Busy::Cleaning),
            Refusal::Busy(Busy::Turn),
            Refusal::Busy(Busy::Active),
            Refusal::Busy(Busy::Draining),
            Refusal::Busy(Busy::Address),
            Refusal::Limit {
                what: "bindings",
                value: 64,
            },
            Refusal::Limit {
                what: "turn-queue",
                value: 256,
            },
            Refusal::Limit {
                what: "turn-waiters",
                value: 262_144,
            },
            Refusal::Cap {
                cap: 100,
                least_recently_used: b"mcpgw:session_affinity:s1".as_slice().into(),
            },
            Refusal::Cap {
                cap: 1,
                least_recently_used: b"\x00a b\\\"\'\n\t\r\xff".as_slice().into(),
            },
            Refusal::OtherId,
            Refusal::Corrupt(CorruptRecord::Field("b:tools".into())),
        ];
        let hidden = Refusal::Cap {
            cap: 100,
            least_recently_used: [].into(),
        };
        assert_eq!(
            of_module("SESSION.CREATE", "LIMIT", "100"),
            StoreError::Refused(hidden)
        );
        for refusal in refusals {
            let message = refusal.to_string();
            let (code, text) = message.split_once(' ').unwrap();
            assert_eq!(
                of_module("SESSION.ROUTE", code, text),
                StoreError::Refused(refusal)
            );
        }
    }

    #[test]
    fn what_the_server_says_of_itself_is_no_refusal() {
        for (code, text) in [
            ("LOADING", "Redis is loading the dataset in memory"),
            ("READONLY", "You can't write against a read only replica."),
            ("OOM", "command not allowed when used memory > 'maxmemory'."),
            ("MISCONF", "Redis is configured to save RDB snapshots"),
            ("CLUSTERDOWN", "Hash slot not served"),
            ("BUSY", "Redis is busy running a script."),
            ("NOSESSION", "as a module answers that names no request"),
            ("NOAUTH", "Authentication required."),
        ] {
            assert_eq!(
                of_server(code, text),
                StoreError::NotReady(NotReady::Answered(format!("{code} {text}").into()))
            );
        }
        assert_eq!(
            of_server("ERR", "unknown command 'SESSION.ROUTE'"),
            StoreError::NoModule
        );
        for text in NO_PREFIX {
            assert_eq!(
                of_module("SESSION.CREATE", "ERR", text),
                StoreError::NotIndexed
            );
        }
        assert!(matches!(
            of_module("SESSION.ROUTE", "ERR", "internal error"),
            StoreError::Reply { .. }
        ));
    }
}
