//! The meaning of each command argument, with its limits.
//!
//! Invariant: every argument of every command has a meaning here, and every meaning has an argument. Limits are the
//! constants that the parser checks.

use std::collections::{BTreeMap, BTreeSet};

use mooring_session::limits;
use mooring_session::time::Millis;

use super::text;
use crate::command_spec::{ArgumentSpec, CommandSpec};
use crate::commands::TABLE;

/// The meaning of an argument: the one specific to the command, or the general one.
pub(super) fn meaning(command: &CommandSpec, argument: &ArgumentSpec) -> String {
    let meanings = meanings();
    let [own, general] = keys(command, argument);
    meanings
        .get(&own)
        .or_else(|| meanings.get(&general))
        .unwrap_or_else(|| panic!("the glossary has neither {own:?} nor {general:?}"))
        .clone()
}

/// The keys of an argument in the glossary: its token or name, with and without the command.
fn keys(command: &CommandSpec, argument: &ArgumentSpec) -> [String; 2] {
    let head = text(argument.token.unwrap_or(argument.name)).to_owned();
    let own = format!("{} {head}", text(command.name).to_uppercase());
    [own, head]
}

fn meanings() -> BTreeMap<String, String> {
    let all = [names(), options(), turns(), lists(), own()];
    all.into_iter()
        .flatten()
        .map(|(key, meaning)| (key.to_owned(), meaning))
        .collect()
}

/// Visible ASCII of at most so many bytes.
fn visible(what: &str, most: usize) -> String {
    format!("{what}; 1 to {most} bytes of visible ASCII without spaces")
}

fn milliseconds(what: &str, least: Millis, most: Millis) -> String {
    format!("{what}; {least} to {most} milliseconds")
}

/// Positional arguments.
fn names() -> Vec<(&'static str, String)> {
    vec![
        (
            "key",
            format!(
                "the key of the session's record; 1 to {} bytes",
                limits::KEY_BYTES_MAX
            ),
        ),
        (
            "id",
            format!(
                "the session's id; 1 to {} letters, digits and `. _ : -`",
                limits::SESSION_ID_BYTES_MAX
            ),
        ),
        (
            "principal",
            format!(
                "the owner of the session; 1 to {} bytes of UTF-8 without control characters, and not `*`",
                limits::PRINCIPAL_BYTES_MAX
            ),
        ),
        (
            "server",
            visible("the upstream server", limits::SERVER_BYTES_MAX),
        ),
        (
            "worker",
            visible(
                "the calling worker, as `name:boot`; `-` is not a worker id",
                limits::WORKER_BYTES_MAX,
            ),
        ),
        (
            "token",
            visible(
                "identifies this attempt; random, and the same in a retry",
                limits::TOKEN_BYTES_MAX,
            ),
        ),
        (
            "epoch",
            "the epoch of the binding that the caller has seen".to_owned(),
        ),
        ("gen", "the generation that was cleaned up".to_owned()),
        (
            "ticket",
            visible(
                "identifies this wait for a turn; random, and the same in a retry",
                limits::TOKEN_BYTES_MAX,
            ),
        ),
        (
            "address",
            visible(
                "the address at which the worker's peers reach it",
                limits::ADDRESS_BYTES_MAX,
            ),
        ),
    ]
}

/// Options, by the word they begin with.
fn options() -> Vec<(&'static str, String)> {
    vec![
        (
            "TTL",
            milliseconds(
                "how long the session may be idle",
                limits::TTL_MIN,
                limits::TTL_MAX,
            ),
        ),
        (
            "LEASE",
            milliseconds(
                "how long the claim holds",
                limits::LEASE_MIN,
                limits::LEASE_MAX,
            ),
        ),
        (
            "HASH",
            visible(
                "a digest of the mounted content",
                limits::CONTENT_HASH_BYTES_MAX,
            ),
        ),
        (
            "LABEL",
            format!(
                "a name and value to store, at most {} of them; the name has 1 to {} letters, digits and `. _ : -`, the \
                 value up to {} bytes of UTF-8 without control characters",
                limits::LABELS_MAX,
                limits::LABEL_NAME_BYTES_MAX,
                limits::LABEL_VALUE_BYTES_MAX
            ),
        ),
        ("NOREVIVE", "keeps a tombstone".to_owned()),
        (
            "IFIDLE",
            "only if no live claim or turn holds the session".to_owned(),
        ),
        (
            "INSTANCES",
            visible(
                &format!(
                    "the number of instances, 1 to {}, and their names",
                    limits::INSTANCES_MAX
                ),
                limits::INSTANCE_BYTES_MAX,
            ),
        ),
        (
            "UPSTREAM",
            visible(
                "the session id that the upstream assigned",
                limits::UPSTREAM_SESSION_BYTES_MAX,
            ),
        ),
        (
            "OWNED",
            "only the caller's process can drive the binding".to_owned(),
        ),
        (
            "AVOID",
            "an instance not to choose, unless it is the only one".to_owned(),
        ),
        (
            "REPORTED",
            "a reply has reported to the client the loss with which this epoch of the server's binding began"
                .to_owned(),
        ),
        (
            "UNREPORTED",
            "the caller has no reply that reports the loss to the client; that of the next call must"
                .to_owned(),
        ),
        (
            "REASON",
            format!(
                "the reason, for people; 1 to {} bytes of UTF-8 without control characters",
                limits::REASON_BYTES_MAX
            ),
        ),
        ("DRAINING", "the worker is about to stop".to_owned()),
        (
            "CAP",
            format!(
                "how many active sessions the principal may hold, this one included; 1 to {}",
                limits::CAP_MAX
            ),
        ),
    ]
}

/// Options of turns, rates and waiting, by the word they begin with.
fn turns() -> Vec<(&'static str, String)> {
    vec![
        (
            "TURN",
            format!(
                "also asks for the turn: a ticket as in SESSION.ENTER, and how long the turn holds; {} milliseconds to \
                 `mooring.turn-lease-max-ms`",
                limits::LEASE_MIN
            ),
        ),
        (
            "EPOCH",
            "the caller knows the binding of this epoch, bound and driven by itself: its fields are not repeated".to_owned(),
        ),
        ("FIRST", "before all callers without FIRST".to_owned()),
        (
            "DELEGATE",
            format!(
                "also asks for the route to be delegated to the worker for so long; {} milliseconds to \
                 `mooring.turn-lease-max-ms`",
                limits::LEASE_MIN
            ),
        ),
        (
            "WAITING",
            "withdraws all waiting callers whose tickets have this prefix".to_owned(),
        ),
        (
            "TURNS",
            "also returns the turns of the session, and who cleans it up".to_owned(),
        ),
        (
            "HELD",
            "the number of the turn that this ticket had before a restart".to_owned(),
        ),
        (
            "LIMIT",
            format!(
                "how many requests may pass in a window; 1 to {}",
                limits::RATE_LIMIT_MAX
            ),
        ),
        (
            "WINDOW",
            milliseconds(
                "the window",
                limits::RATE_WINDOW_MIN,
                limits::RATE_WINDOW_MAX,
            ),
        ),
        (
            "COST",
            "how many requests this one counts as; default 1, at most LIMIT".to_owned(),
        ),
        (
            "TIMEOUT",
            milliseconds(
                "how long to wait",
                limits::WAIT_TIMEOUT_MIN,
                limits::WAIT_TIMEOUT_MAX,
            ),
        ),
    ]
}

/// Options of LIST, COUNT and REAP, by the word they begin with.
fn lists() -> Vec<(&'static str, String)> {
    let count = format!(
        "the highest number to return; 1 to {}",
        limits::LIST_COUNT_MAX
    );
    let fixed = [
        ("PRINCIPAL", "only sessions of this principal"),
        ("SERVER", "only sessions bound to this server"),
        ("INSTANCE", "only sessions bound to this instance"),
        (
            "OWNER",
            "only sessions with a binding that this worker owns",
        ),
        (
            "DRIVER",
            "only sessions with a binding that this worker used last",
        ),
        ("STATE", "`active`, `expired` or `ended`"),
        (
            "MATCH",
            "only keys that match this pattern, as in KEYS; at most 256 bytes",
        ),
        (
            "DIGEST",
            "only sessions whose digest begins with these 4 to 16 hexadecimal digits in lower case",
        ),
        (
            "TEXT",
            "only sessions with this part of a name, in any case; 1 to 512 bytes",
        ),
        (
            "PREFIX",
            "only groups whose names begin with this text; at most 1024 bytes",
        ),
        ("ORDER", "by creation: `newest` or `oldest` first"),
        (
            "CURSOR",
            "the cursor of the previous page; `0` for the first",
        ),
        ("COUNT", &count),
    ];
    fixed
        .map(|(word, meaning)| (word, meaning.to_owned()))
        .to_vec()
}

/// Meanings that are specific to one command.
fn own() -> Vec<(&'static str, String)> {
    vec![
        (
            "WORKER.BEAT TTL",
            milliseconds(
                "for how long this beat keeps the worker alive",
                limits::BEAT_TTL_MIN,
                limits::BEAT_TTL_MAX,
            ),
        ),
        (
            "SESSION.RATE key",
            format!(
                "the key of the rate limit, not of a session; 1 to {} bytes",
                limits::KEY_BYTES_MAX
            ),
        ),
        (
            "SESSION.ENTER DELEGATE",
            "also asks for the turn to be delegated to the worker, until the lease lapses"
                .to_owned(),
        ),
        (
            "SESSION.ENTER LEASE",
            format!(
                "how long the turn holds; {} milliseconds to `mooring.turn-lease-max-ms`",
                limits::LEASE_MIN
            ),
        ),
        (
            "SESSION.CLAIM LEASE",
            milliseconds(
                "for how long no other worker may clean up",
                limits::LEASE_MIN,
                limits::LEASE_MAX,
            ),
        ),
        (
            "SESSION.UNBIND token",
            visible(
                "the token of a live claim, to give it up",
                limits::TOKEN_BYTES_MAX,
            ),
        ),
    ]
}

#[test]
fn every_meaning_has_an_argument() {
    let meanings = meanings();
    let mut used = BTreeSet::new();
    for command in TABLE {
        let arguments = command.arguments.iter();
        for argument in arguments.flat_map(ArgumentSpec::alternatives) {
            let [own, general] = keys(command, argument);
            let is_own = meanings.contains_key(&own);
            used.insert(if is_own { own } else { general });
        }
    }
    let explained: BTreeSet<_> = meanings.into_keys().collect();
    let stray: Vec<_> = explained.difference(&used).collect();
    assert!(stray.is_empty(), "no command has {stray:?}");
}
