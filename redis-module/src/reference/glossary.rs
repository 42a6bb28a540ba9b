//! What the arguments of commands mean, with their limits.
//!
//! Invariant: every argument of every command has a meaning here, and nothing here is without one. Limits are the
//! constants that the parser checks by.

use std::collections::{BTreeMap, BTreeSet};

use mooring_session::limits;
use mooring_session::time::Millis;

use super::text;
use crate::commands::TABLE;
use crate::registrar::{ArgumentSpec, CommandSpec};

/// What an argument of a command means: its own meaning for that command, or the general one.
pub(super) fn meaning(command: &CommandSpec, argument: &ArgumentSpec) -> String {
    let meanings = meanings();
    let [own, general] = keys(command, argument);
    meanings
        .get(&own)
        .or_else(|| meanings.get(&general))
        .unwrap_or_else(|| panic!("the glossary has neither {own:?} nor {general:?}"))
        .clone()
}

/// Under which words an argument may stand: its token or name, with the command and without.
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
                "the session's id; 1 to {} of letters, digits and `. _ : -`",
                limits::SESSION_ID_BYTES_MAX
            ),
        ),
        (
            "principal",
            format!(
                "who owns the session; 1 to {} bytes of UTF-8 without control characters, and not `*`",
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
                "the worker that asks, as `name:boot`; `-` is none",
                limits::WORKER_BYTES_MAX,
            ),
        ),
        (
            "token",
            visible(
                "names this attempt; random, and the same again in a retry",
                limits::TOKEN_BYTES_MAX,
            ),
        ),
        (
            "epoch",
            "the epoch of the binding that the caller saw".to_owned(),
        ),
        ("gen", "the incarnation that was cleaned up".to_owned()),
        (
            "ticket",
            visible(
                "names this wait for a turn; random, and the same again in a retry",
                limits::TOKEN_BYTES_MAX,
            ),
        ),
        (
            "address",
            visible(
                "where the worker's peers reach it",
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
                "a digest of what is mounted",
                limits::CONTENT_HASH_BYTES_MAX,
            ),
        ),
        (
            "LABEL",
            format!(
                "something to remember, at most {} of them; the name 1 to {} of letters, digits and `. _ : -`, the \
                 value up to {} bytes of UTF-8 without control characters",
                limits::LABELS_MAX,
                limits::LABEL_NAME_BYTES_MAX,
                limits::LABEL_VALUE_BYTES_MAX
            ),
        ),
        ("NOREVIVE", "a tombstone is left standing".to_owned()),
        (
            "IFIDLE",
            "only if nothing live holds the session".to_owned(),
        ),
        (
            "INSTANCES",
            visible(
                &format!(
                    "how many instances follow, 1 to {}, and their names",
                    limits::INSTANCES_MAX
                ),
                limits::INSTANCE_BYTES_MAX,
            ),
        ),
        (
            "UPSTREAM",
            visible(
                "the session id that the upstream gave",
                limits::UPSTREAM_SESSION_BYTES_MAX,
            ),
        ),
        (
            "OWNED",
            "only the caller's process can drive the binding".to_owned(),
        ),
        (
            "AVOID",
            "an instance to leave, unless it is the only one".to_owned(),
        ),
        (
            "REPORTED",
            "a reply has told the client of the loss with which this epoch of the server's binding began"
                .to_owned(),
        ),
        (
            "UNREPORTED",
            "the caller has no reply that tells the client of the loss; the next call's is to"
                .to_owned(),
        ),
        (
            "REASON",
            format!(
                "why, for people; 1 to {} bytes of UTF-8 without control characters",
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
                "asks for the turn, too: a ticket as in SESSION.ENTER, and how long the turn holds; {} milliseconds to \
                 `mooring.turn-lease-max-ms`",
                limits::LEASE_MIN
            ),
        ),
        (
            "EPOCH",
            "the caller knows the binding of this epoch, in use and driven by itself: nothing of it is repeated".to_owned(),
        ),
        ("FIRST", "before everybody who does not say so".to_owned()),
        (
            "WAITING",
            "only who waits, and everybody whose ticket begins so".to_owned(),
        ),
        (
            "HELD",
            "the number of the turn that this ticket held before a restart".to_owned(),
        ),
        (
            "LIMIT",
            format!(
                "how many may pass in a window; 1 to {}",
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
            "for how many this one counts, 1 where it is left out; at most LIMIT".to_owned(),
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

/// Options of LIST and REAP, by the word they begin with.
fn lists() -> Vec<(&'static str, String)> {
    let count = format!("how many at most; 1 to {}", limits::LIST_COUNT_MAX);
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
            "only sessions with a binding that this worker has used last",
        ),
        ("STATE", "`active`, `expired` or `ended`"),
        (
            "MATCH",
            "only keys of this pattern, as in KEYS; at most 256 bytes",
        ),
        ("ORDER", "by creation: `newest` (first) or `oldest`"),
        ("CURSOR", "where the page before ended; `0` for the first"),
        ("COUNT", &count),
    ];
    fixed
        .map(|(word, meaning)| (word, meaning.to_owned()))
        .to_vec()
}

/// Meanings of one command's own.
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
                "the key of the limit, one of its own; 1 to {} bytes",
                limits::KEY_BYTES_MAX
            ),
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
                "for how long nobody else may clean up",
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
fn nothing_is_explained_that_is_not_there() {
    let meanings = meanings();
    let mut used = BTreeSet::new();
    for command in TABLE {
        for argument in command.arguments {
            let [own, general] = keys(command, argument);
            let is_own = meanings.contains_key(&own);
            used.insert(if is_own { own } else { general });
        }
    }
    let explained: BTreeSet<_> = meanings.into_keys().collect();
    let stray: Vec<_> = explained.difference(&used).collect();
    assert!(stray.is_empty(), "no command has {stray:?}");
}
