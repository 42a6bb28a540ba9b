//! `mooring sessions show|end`, and the fields that are shown of a session.
//!
//! Invariant: the id of a client's session and upstream session ids are secrets, of which only digests are shown. An
//! agent's session is shown in full, because people resume it by hand.

use mooring_session::Refusal;
use mooring_session::rules::{EndCondition, EndRequest};
use mooring_session::view::BindingView;
use serde_json::{Map, Value, json};

use super::outcome::{Outcome, SessionsError};
use super::select::{StoredSession, find_one};
use super::target::StoreTarget;
use crate::client::table::{cell, fields, printable, rows};
use mooring_secrets::digest;
use mooring_store::rfc3339;
use mooring_store::{Family, SessionKey, StoreError};

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
    let found = find_one(&store, named).await?;
    let shown = whole(target.key_prefix(), &found);
    Ok(Outcome::printed(if is_json {
        format!("{shown}\n")
    } else {
        text(&shown)
    }))
}

/// Ends the session. Gateways over the store clean up what it leaves at servers and on volumes.
pub(super) async fn end(target: &StoreTarget, named: &str) -> Result<Outcome, SessionsError> {
    let store = target.open().await?;
    let found = find_one(&store, named).await?;
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

/// A session as `list` shows it.
pub(super) fn summary(prefix: &str, found: &StoredSession) -> Value {
    let StoredSession { key, record } = found;
    let servers: Vec<&str> = record
        .bindings
        .iter()
        .map(|binding| binding.server.as_str())
        .collect();
    json!({
        "session": &*key.digest(),
        "kind": kind(key.family()),
        "place": place(prefix, key),
        "principal": record.principal.as_str(),
        "state": record.state.as_str(),
        "created_at": rfc3339(record.created_at.unix_ms()),
        "last_used_at": rfc3339(record.last_used_at.unix_ms()),
        "expires_at": rfc3339(record.expires_at.unix_ms()),
        "ttl_seconds": record.ttl.get() / 1_000,
        "servers": servers,
    })
}

fn whole(prefix: &str, found: &StoredSession) -> Value {
    let mut shown = summary(prefix, found);
    let labels: Map<String, Value> = found
        .record
        .labels
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), value.as_str().into()))
        .collect();
    let family = found.key.family();
    let bindings: Vec<Value> = found
        .record
        .bindings
        .iter()
        .map(|of| binding(family, of))
        .collect();
    if let Some(shown) = shown.as_object_mut() {
        shown.insert("labels".to_owned(), labels.into());
        shown.insert("bindings".to_owned(), bindings.into());
    }
    shown
}

fn binding(family: Family, binding: &BindingView) -> Value {
    let upstream_session = binding
        .upstream_session
        .as_ref()
        .map(|session| match family {
            Family::Agent => session.as_str().to_owned(),
            Family::Mcp | Family::Code => format!("#{}", digest::short(session.as_str())),
        });
    json!({
        "server": binding.server.as_str(),
        "state": binding.state.as_str(),
        "instance": binding.instance.as_str(),
        "upstream_session": upstream_session,
        "driver": binding.driver.as_str(),
        "epoch": binding.epoch,
        "rebinds": binding.rebinds,
        "last_reason": binding.last_reason.as_ref().map(|reason| reason.as_str().to_owned()),
    })
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

const fn kind(family: Family) -> &'static str {
    match family {
        Family::Mcp => "mcp",
        Family::Code => "code",
        Family::Agent => "agent",
    }
}

/// Server, user and language or parent; none for a client's session, whose key is secret.
fn place<'k>(prefix: &str, key: &'k SessionKey) -> Option<&'k str> {
    if key.family() == Family::Mcp {
        return None;
    }
    let (_, place) = key.secret().strip_prefix(prefix)?.split_once(':')?;
    Some(place)
}
