//! `mooring top`: the figures of several gateways, added up.

use http::StatusCode;
use serde_json::{Value, json};

use super::gateway::Gateway;
use super::output::{ClientError, CommandOutput, good, raw};
use super::table::{cell, printable, table};
use super::target::GatewayTarget;
use crate::cli::{CallerArguments, ClientArguments, TopArguments};
use mooring_pipeline::{SenderFigures, TopSenders};
use mooring_secrets::digest::SHORT_DIGITS;

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
        let target = GatewayTarget::find(&of_gateway)?;
        let url = target.gateway.clone();
        answers.push((url, Gateway::new(target)?.get_root(&path).await?));
    }
    if arguments.user.is_some() {
        let refusals = refusals_in(&answers);
        return Ok(match arguments.json {
            true => raw(&json!({ "refusals": refusals })),
            false => good(refusal_table(&refusals)),
        });
    }
    let mut all = Vec::new();
    for (gateway, answer) in answers {
        let senders: TopSenders =
            serde_json::from_value(answer).map_err(|_| ClientError::Answer {
                gateway,
                status: StatusCode::OK,
            })?;
        all.push(senders);
    }
    let all = TopSenders::add_up(all, arguments.limit);
    Ok(match arguments.json {
        true => raw(&as_json(&all)),
        false => good(as_text(&all)),
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

/// The refusals at all gateways, the last one first.
fn refusals_in(answers: &[(String, Value)]) -> Vec<&Value> {
    let mut refusals: Vec<_> = answers
        .iter()
        .filter_map(|(_, answer)| answer.get("refusals")?.as_array())
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

fn as_json(senders: &TopSenders) -> Value {
    let row = |names: &[(&str, &str)], figures: &SenderFigures| {
        let mut row = json!(figures);
        if let Some(row) = row.as_object_mut() {
            let names = names.iter();
            row.extend(names.map(|(name, value)| ((*name).to_owned(), (*value).into())));
        }
        row
    };
    let users = senders.users.iter();
    let users = users.map(|of| row(&[("user", &of.user)], &of.figures));
    let sessions = senders.sessions.iter().map(|of| {
        let names = [
            ("session", of.session.as_str()),
            ("server", &of.server),
            ("user", &of.user),
        ];
        row(&names, &of.figures)
    });
    json!({
        "seconds": senders.seconds,
        "users": users.collect::<Vec<_>>(),
        "sessions": sessions.collect::<Vec<_>>(),
    })
}

fn as_text(senders: &TopSenders) -> String {
    let users = senders.users.iter();
    let users = users.map(|of| row(&[&of.user], &of.figures));
    let sessions = senders.sessions.iter();
    let sessions = sessions.map(|of| row(&[&of.session, &of.server, &of.user], &of.figures));
    let titles = [
        "SESSION", "SERVER", "USER", "CALLS", "REFUSED", "BYTES", "IDLE",
    ];
    format!(
        "the last {} s\n\n{}\n{}",
        senders.seconds,
        table(
            &["USER", "CALLS", "REFUSED", "BYTES", "IDLE"],
            &users.collect::<Vec<_>>()
        ),
        table(&titles, &sessions.collect::<Vec<_>>()),
    )
}

fn row(names: &[&str], figures: &SenderFigures) -> Vec<String> {
    let calls = match figures.overcount {
        0 => figures.calls.to_string(),
        overcount => format!(
            "{} (at least {})",
            figures.calls,
            figures.calls.saturating_sub(overcount)
        ),
    };
    let idle = (figures.idle_ms).map_or_else(|| "-".to_owned(), |ms| format!("{} s", ms / 1000));
    let figures = [
        calls,
        figures.refused.to_string(),
        figures.bytes.to_string(),
        idle,
    ];
    let names = names.iter().map(|name| printable(name));
    names.chain(figures).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "tests fail by panicking")]
    use super::*;
    use mooring_pipeline::{TopSession, TopUser};

    #[test]
    fn refusals_at_all_gateways_are_listed_the_last_one_first() {
        let of = |reason: &str, ago_ms: u64| {
            json!({"refusals": [
                {"server": "tools", "tool": null, "reason": reason, "times": 2, "ago_ms": ago_ms}]})
        };
        let answers = [of("early", 9000), of("late", 2000)].map(|answer| (String::new(), answer));
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
    fn senders_are_listed_by_calls() {
        let figures = SenderFigures {
            calls: 5,
            refused: 2,
            bytes: 20,
            overcount: 1,
            idle_ms: Some(40),
        };
        let session = TopSession {
            session: "cc".to_owned(),
            user: "aa".to_owned(),
            server: "tools".to_owned(),
            figures,
        };
        let user = TopUser {
            user: "aa".to_owned(),
            figures,
        };
        let senders = TopSenders {
            seconds: 60,
            users: vec![user],
            sessions: vec![session],
        };
        assert_eq!(
            as_text(&senders),
            "the last 60 s\n\n\
             USER  CALLS           REFUSED  BYTES  IDLE\n\
             aa    5 (at least 4)  2        20     0 s\n\n\
             SESSION  SERVER  USER  CALLS           REFUSED  BYTES  IDLE\n\
             cc       tools   aa    5 (at least 4)  2        20     0 s\n"
        );
        assert_eq!(
            as_json(&senders)["users"],
            json!([{"user": "aa", "calls": 5, "refused": 2, "bytes": 20, "overcount": 1, "idle_ms": 40}])
        );
    }
}
