//! `mooring top`: the figures of several gateways, added up.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::gateway::Gateway;
use super::output::{ClientError, CommandOutput, good, raw};
use super::table::{cell, printable, table};
use super::target::GatewayTarget;
use crate::cli::{CallerArguments, ClientArguments, TopArguments};
use mooring_secrets::digest::SHORT_DIGITS;

/// The requests of one user or session, at all gateways.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SenderFigures {
    calls: u64,
    refused: u64,
    bytes: u64,
    overcount: u64,
    /// Since its last request, wherever that was.
    idle_ms: Option<u64>,
}

/// The names of a user or session: of its session, server and user, those that it has.
type SenderNames = Vec<String>;

pub(super) async fn run(arguments: &TopArguments) -> Result<CommandOutput, ClientError> {
    let path = match &arguments.user {
        Some(user) => format!("top?user={}", digest_of(user)?),
        None => "top".to_owned(),
    };
    let mut answers = Vec::new();
    for gateway in gateways(arguments) {
        let of_gateway = ClientArguments {
            caller: CallerArguments {
                gateway,
                ..CallerArguments::default()
            },
            config: arguments.config.clone(),
            ..ClientArguments::default()
        };
        let gateway = Gateway::new(GatewayTarget::find(&of_gateway)?)?;
        answers.push(gateway.get_root(&path).await?);
    }
    if arguments.user.is_some() {
        let refusals = refusals_in(&answers);
        return Ok(match arguments.json {
            true => raw(&json!({ "refusals": refusals })),
            false => good(refusal_table(&refusals)),
        });
    }
    let users = add_up(&answers, "users", &["user"]);
    let sessions = add_up(&answers, "sessions", &["session", "server", "user"]);
    let seconds = answers
        .iter()
        .filter_map(|answer| answer.get("seconds")?.as_u64());
    let seconds = seconds.max().unwrap_or_default();
    Ok(match arguments.json {
        true => raw(&json!({
            "seconds": seconds,
            "users": as_json(&users, &["user"], arguments.limit),
            "sessions": as_json(&sessions, &["session", "server", "user"], arguments.limit),
        })),
        false => good(format!(
            "the last {seconds} s\n\n{}\n{}",
            as_table(&users, &["USER"], arguments.limit),
            as_table(&sessions, &["SESSION", "SERVER", "USER"], arguments.limit),
        )),
    })
}

/// A digest as `mooring digest` prints it.
fn digest_of(user: &str) -> Result<&str, ClientError> {
    let is_digest = user.len() == SHORT_DIGITS && user.bytes().all(|byte| byte.is_ascii_hexdigit());
    match is_digest {
        true => Ok(user),
        false => Err(ClientError::Flag(format!(
            "--user is {user:?}: the digest of a user is expected, {SHORT_DIGITS} hexadecimal digits, as `mooring digest \
             NAME` prints it"
        ))),
    }
}

/// The gateways of the flags; none for the one of the settings.
fn gateways(arguments: &TopArguments) -> Vec<Option<String>> {
    match arguments.gateways.as_slice() {
        [] => vec![None],
        named => named.iter().cloned().map(Some).collect(),
    }
}

/// The figures of all answers by name, those with most calls first.
fn add_up(answers: &[Value], list: &str, names: &[&str]) -> Vec<(SenderNames, SenderFigures)> {
    let mut all: BTreeMap<SenderNames, SenderFigures> = BTreeMap::new();
    let rows = answers
        .iter()
        .filter_map(|answer| answer.get(list)?.as_array())
        .flatten();
    for row in rows {
        let name = |name: &&str| row.get(*name).and_then(Value::as_str).unwrap_or_default();
        let names = names.iter().map(|of| printable(name(of))).collect();
        let figure = |name: &str| row.get("figures").and_then(|of| of.get(name)?.as_u64());
        let figures = all.entry(names).or_default();
        let add = |sum: &mut u64, name: &str| {
            *sum = sum.saturating_add(figure(name).unwrap_or_default());
        };
        add(&mut figures.calls, "calls");
        add(&mut figures.refused, "refused");
        add(&mut figures.bytes, "bytes");
        add(&mut figures.overcount, "overcount");
        let idle = [figures.idle_ms, figure("idle_ms")];
        figures.idle_ms = idle.into_iter().flatten().min();
    }
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by_key(|(_, figures)| std::cmp::Reverse(figures.calls));
    all
}

/// The refusals at all gateways, the last one first.
fn refusals_in(answers: &[Value]) -> Vec<&Value> {
    let mut refusals: Vec<_> = answers
        .iter()
        .filter_map(|answer| answer.get("refusals")?.as_array())
        .flatten()
        .collect();
    refusals.sort_by_key(|refusal| refusal.get("ago_ms").and_then(Value::as_u64));
    refusals
}

fn refusal_table(refusals: &[&Value]) -> String {
    if refusals.is_empty() {
        return "no refusals\n".to_owned();
    }
    let row = |refusal: &&Value| {
        let ago_ms = refusal.get("ago_ms").and_then(Value::as_u64);
        let ago = ago_ms.map_or_else(|| "-".to_owned(), |ms| format!("{} s", ms / 1000));
        let [server, tool, times, reason] =
            ["/server", "/tool", "/times", "/reason"].map(|at| printable(&cell(refusal, at)));
        vec![ago, server, tool, times, reason]
    };
    let titles = ["AGO", "SERVER", "TOOL", "TIMES", "REASON"];
    table(&titles, &refusals.iter().map(row).collect::<Vec<_>>())
}

fn as_json(rows: &[(SenderNames, SenderFigures)], names: &[&str], limit: usize) -> Vec<Value> {
    let row = |(values, figures): &(SenderNames, SenderFigures)| {
        let mut row = json!({
            "calls": figures.calls,
            "refused": figures.refused,
            "bytes": figures.bytes,
            "overcount": figures.overcount,
            "idle_ms": figures.idle_ms,
        });
        if let Some(row) = row.as_object_mut() {
            let named = names.iter().zip(values);
            row.extend(named.map(|(name, value)| ((*name).to_owned(), value.as_str().into())));
        }
        row
    };
    rows.iter().take(limit).map(row).collect()
}

fn as_table(rows: &[(SenderNames, SenderFigures)], names: &[&str], limit: usize) -> String {
    let titles = [names, &["CALLS", "REFUSED", "BYTES", "IDLE"]].concat();
    let row = |(names, figures): &(SenderNames, SenderFigures)| {
        let calls = match figures.overcount {
            0 => figures.calls.to_string(),
            overcount => format!(
                "{} (at least {})",
                figures.calls,
                figures.calls.saturating_sub(overcount)
            ),
        };
        let idle =
            (figures.idle_ms).map_or_else(|| "-".to_owned(), |ms| format!("{} s", ms / 1000));
        let figures = [
            calls,
            figures.refused.to_string(),
            figures.bytes.to_string(),
            idle,
        ];
        [names.as_slice(), &figures].concat()
    };
    let rows: Vec<Vec<String>> = rows.iter().take(limit).map(row).collect();
    table(&titles, &rows)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn refusals_at_all_gateways_are_listed_the_last_one_first() {
        let of = |reason: &str, ago_ms: u64| {
            json!({"refusals": [
                {"server": "tools", "tool": null, "reason": reason, "times": 2, "ago_ms": ago_ms}]})
        };
        let answers = [of("early", 9000), of("late", 2000)];
        assert_eq!(
            refusal_table(&refusals_in(&answers)),
            "AGO  SERVER  TOOL  TIMES  REASON\n\
             2 s  tools   -     2      late\n\
             9 s  tools   -     2      early\n"
        );
        assert_eq!(refusal_table(&[]), "no refusals\n");
    }

    #[test]
    fn a_user_is_named_by_a_digest() {
        assert!(digest_of("0123456789abcdef").is_ok());
        for other in ["zoe", "", "0123456789abcdef&x=1"] {
            assert!(digest_of(other).is_err(), "{other}");
        }
    }

    #[test]
    fn one_users_figures_at_several_gateways_are_one_row() {
        let answer = |user: &str, calls: u64, idle_ms: u64| {
            json!({"users": [{"user": user, "figures": {"calls": calls, "refused": 1, "bytes": 10,
                "overcount": 0, "idle_ms": idle_ms}}]})
        };
        let answers = [
            answer("aa", 2, 5000),
            answer("bb", 4, 10),
            answer("aa", 3, 40),
        ];
        let users = add_up(&answers, "users", &["user"]);
        let (names, figures) = users.first().unwrap();
        assert_eq!(names, &["aa".to_owned()]);
        let expected = SenderFigures {
            calls: 5,
            refused: 2,
            bytes: 20,
            overcount: 0,
            idle_ms: Some(40),
        };
        assert_eq!(figures, &expected);
        let shown = as_table(&users, &["USER"], 1);
        assert_eq!(
            shown,
            "USER  CALLS  REFUSED  BYTES  IDLE\naa    5      2        20     0 s\n"
        );
    }
}
