//! `mooring sessions list`

use std::cmp::Reverse;

use mooring_session::names::{Principal, ServerName};
use mooring_session::record::SessionState;
use serde_json::{Value, json};

use super::outcome::{Outcome, SessionsError};
use super::select::{Selection, StoredSession, select};
use super::show::summary;
use super::target::{StoreTarget, principal_name, server_name};
use crate::cli::SessionKind;
use crate::client::table::listing;
use mooring_store::{Family, SessionQuery, Store, literal_pattern};

/// The columns of the list.
const COLUMNS: [(&str, &str); 6] = [
    ("SESSION", "/session"),
    ("KIND", "/kind"),
    ("PRINCIPAL", "/principal"),
    ("LAST USED", "/last_used_at"),
    ("EXPIRES", "/expires_at"),
    ("PLACE", "/place"),
];

/// Selects the sessions to list.
#[derive(Clone, Debug)]
pub(super) struct ListFilter {
    principal: Option<Principal>,
    server: Option<ServerName>,
    families: Vec<Family>,
    limit: usize,
}

impl ListFilter {
    pub(super) fn parse(
        principal: Option<String>,
        server: Option<String>,
        kind: Option<SessionKind>,
        limit: u32,
    ) -> Result<Self, SessionsError> {
        let families = match kind {
            None => Family::ALL.to_vec(),
            Some(SessionKind::Mcp) => vec![Family::Mcp],
            Some(SessionKind::Code) => vec![Family::Code],
            Some(SessionKind::Agent) => vec![Family::Agent],
        };
        Ok(Self {
            principal: principal.as_deref().map(principal_name).transpose()?,
            server: server.as_deref().map(server_name).transpose()?,
            families,
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
        })
    }

    /// A client's session is listed at the servers that it is bound to; any other at the one in its key.
    fn query(&self, family: Family) -> SessionQuery {
        let server = self.server.as_ref();
        let named = |server: &ServerName| format!("{}:*", literal_pattern(server.as_str())).into();
        SessionQuery {
            family,
            principal: self.principal.clone(),
            state: Some(SessionState::Active),
            server: server.filter(|_| family == Family::Mcp).cloned(),
            id_pattern: server.filter(|_| family != Family::Mcp).map(named),
            ..SessionQuery::default()
        }
    }

    async fn select(&self, store: &Store) -> Result<Selection, SessionsError> {
        let mut all = Selection {
            is_complete: true,
            ..Selection::default()
        };
        for family in &self.families {
            let of_family = select(store, self.query(*family), usize::MAX, |_, _| true).await?;
            all.is_complete &= of_family.is_complete;
            all.sessions.extend(of_family.sessions);
        }
        all.sessions
            .sort_by_key(|found| Reverse(found.record.last_used_at));
        Ok(all)
    }
}

pub(super) async fn run(
    target: &StoreTarget,
    wanted: &ListFilter,
    is_json: bool,
) -> Result<Outcome, SessionsError> {
    let store = target.open().await?;
    let mut selection = wanted.select(&store).await?;
    let left_out = selection.sessions.len().saturating_sub(wanted.limit);
    selection.sessions.truncate(wanted.limit);
    let prefix = target.key_prefix();
    let shown: Vec<Value> = selection
        .sessions
        .iter()
        .map(|found: &StoredSession| summary(prefix, found))
        .collect();
    if is_json {
        let answer = json!({"sessions": shown, "complete": selection.is_complete});
        return Ok(Outcome::printed(format!("{answer}\n")));
    }
    let mut outcome = Outcome::printed(listing(&shown, &COLUMNS));
    if left_out > 0 {
        let remark =
            format!("{left_out} more, used before these; --limit says how many are listed");
        outcome.remarks.push(remark);
    }
    if !selection.is_complete {
        let remark = "the store is still looking through its sessions: there may be more";
        outcome.remarks.push(remark.to_owned());
    }
    Ok(outcome)
}
