//! `mooring sessions show|end`.
//!
//! Invariant: an agent's session is shown in full, because people resume it by hand. Of every other only digests are shown.

use mooring_session::Refusal;
use mooring_session::record::SessionState;
use mooring_session::rules::{EndCondition, EndRequest};
use serde::Serialize;
use serde_json::{Value, json};

use super::history;
use super::outcome::{Outcome, SessionsError};
use super::target::StoreTarget;
use crate::client::table::{cell, fields, printable, rows};
use mooring_admin::sessions::{
    AgentSessionId, SessionDetail, SessionFindError, SessionName, StoredSession, find_session,
};
use mooring_store::{EndCause, HistoryEvent, StoreError, unix_now_ms};

/// The fields that are shown of a session.
const SHOWN: [(&str, &str); 9] = [
    ("session", "/session"),
    ("kind", "/kind"),
    ("place", "/place"),
    ("principal", "/principal"),
    ("state", "/state"),
    ("created", "/created_at"),
    ("last used", "/last_used_at"),
    ("expires", "/expires_at"),
    ("time to live (s)", "/ttl_seconds"),
];

pub(super) async fn show(
    target: &StoreTarget,
    named: &str,
    with_history: bool,
    is_json: bool,
) -> Result<Outcome, SessionsError> {
    let store = target.open().await?;
    let name = SessionName::parse(named)?;
    let found = match (find_session(&store, name).await, name) {
        (Ok(found), _) => Some(found),
        // Its history outlives it.
        (Err(SessionFindError::NoSuchSession), SessionName::Digest(_)) if with_history => None,
        (Err(error), _) => return Err(error.into()),
    };
    let (mut shown, mut printed) = match &found {
        Some(found) => {
            let explanation = store.explain(&found.key).await?;
            let detail = SessionDetail::of(found, AgentSessionId::Whole, explanation);
            let shown = to_json(&detail);
            let printed = text(&shown);
            (shown, printed)
        }
        None => (
            json!({"session": named, "state": "forgotten"}),
            "the store has forgotten the session\n".to_owned(),
        ),
    };
    if with_history {
        let is_expired = |found: &&StoredSession| found.record.state == SessionState::Expired;
        let expired_ms =
            (found.as_ref().filter(is_expired)).map(|found| found.record.expires_at.unix_ms());
        let digest = found
            .as_ref()
            .map_or_else(|| named.into(), |found| found.key.digest());
        let entries = store.history_of(&digest).await?;
        if entries.is_empty() && found.is_none() {
            return Err(SessionsError::NoSuchSession);
        }
        printed.push_str(&history::text(&entries, expired_ms, unix_now_ms()));
        if let Some(shown) = shown.as_object_mut() {
            shown.insert("history".to_owned(), history::json(&entries)?);
        }
    }
    Ok(Outcome::printed(match is_json {
        true => format!("{shown}\n"),
        false => printed,
    }))
}

/// Ends the session. Gateways over the store clean up what it leaves at servers and on volumes.
pub(super) async fn end(target: &StoreTarget, named: &str) -> Result<Outcome, SessionsError> {
    let store = target.open().await?;
    let found = find_session(&store, SessionName::parse(named)?).await?;
    let request = EndRequest {
        principal: None,
        when: EndCondition::Always,
    };
    let ended = match store.end(&found.key, &request).await {
        Err(StoreError::Refused(Refusal::NoSession)) => return Err(SessionsError::NoSuchSession),
        ended => ended?,
    };
    target.check(&store)?;
    let mut remarks = Vec::new();
    if ended.ended_now {
        let event = HistoryEvent::Ended {
            cause: EndCause::Operator,
        };
        if let Err(error) = store.append_history(&found.key, "operator", event).await {
            remarks.push(format!("its history was not written: {error}"));
        }
    }
    let what = if ended.ended_now {
        "ended"
    } else {
        "had ended before"
    };
    Ok(Outcome {
        remarks,
        ..Outcome::printed(format!("session {} {what}\n", found.key.digest()))
    })
}

/// The value of a view as JSON.
pub(super) fn to_json(view: &impl Serialize) -> Value {
    // A view has only text keys.
    serde_json::to_value(view).unwrap_or_default()
}

fn text(shown: &Value) -> String {
    let mut text = fields(shown, &SHOWN);
    for (name, value) in shown
        .get("labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let line = format!("label {name}: {}", value.as_str().unwrap_or_default());
        text.push_str(&one_line(&line));
    }
    for binding in rows(shown, "bindings") {
        let parts = [
            "/server",
            "/state",
            "/instance",
            "/upstream_session",
            "/epoch",
            "/rebinds",
        ];
        let [server, state, instance, session, epoch, rebinds] = parts.map(|at| cell(binding, at));
        let line = format!(
            "at {server}: {state} to {instance}, upstream session {session}, epoch {epoch}, moved {rebinds} times"
        );
        text.push_str(&one_line(&line));
    }
    text
}

fn one_line(line: &str) -> String {
    printable(line).replace(['\n', '\t'], " ") + "\n"
}
