//! `mooring sessions show|end`.
//!
//! Invariant: an agent's session is shown in full, because people resume it by hand. Of every other only digests are shown.

use mooring_session::Refusal;
use mooring_session::rules::{EndCondition, EndRequest};
use serde::Serialize;
use serde_json::Value;

use super::outcome::{Outcome, SessionsError};
use super::target::StoreTarget;
use crate::client::table::{cell, fields, printable, rows};
use mooring_admin::sessions::{AgentSessionId, SessionDetail, SessionName, find_session};
use mooring_store::StoreError;

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
    is_json: bool,
) -> Result<Outcome, SessionsError> {
    let store = target.open().await?;
    let found = find_session(&store, SessionName::parse(named)?).await?;
    let explanation = store.explain(&found.key).await?;
    let detail = SessionDetail::of(&found, AgentSessionId::Whole, explanation);
    let shown = to_json(&detail);
    Ok(Outcome::printed(if is_json {
        format!("{shown}\n")
    } else {
        text(&shown)
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
    let what = if ended.ended_now {
        "ended"
    } else {
        "had ended before"
    };
    Ok(Outcome::printed(format!(
        "session {} {what}\n",
        found.key.digest()
    )))
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
