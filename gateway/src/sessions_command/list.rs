//! `mooring sessions list`

use std::cmp::Reverse;

use mooring_session::record::SessionState;
use serde_json::{Value, json};

use super::outcome::{Outcome, SessionsError};
use super::show::to_json;
use super::target::{StoreTarget, principal_name, server_name};
use crate::cli::SessionKind;
use crate::client::table::listing;
use mooring_admin::sessions::{Selection, SessionFilter, SessionSummary, select_sessions};
use mooring_store::{Family, Order, Store};

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
    filter: SessionFilter,
    kinds: Vec<Family>,
    limit: usize,
}

impl ListFilter {
    pub(super) fn parse(
        principal: Option<String>,
        server: Option<String>,
        kind: Option<SessionKind>,
        limit: u32,
    ) -> Result<Self, SessionsError> {
        let kinds = match kind {
            None => Family::ALL.to_vec(),
            Some(SessionKind::Mcp) => vec![Family::Mcp],
            Some(SessionKind::Code) => vec![Family::Code],
            Some(SessionKind::Agent) => vec![Family::Agent],
        };
        Ok(Self {
            filter: SessionFilter {
                principal: principal.as_deref().map(principal_name).transpose()?,
                server: server.as_deref().map(server_name).transpose()?,
                state: Some(SessionState::Active),
                ..SessionFilter::default()
            },
            kinds,
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
        })
    }

    async fn select(&self, store: &Store) -> Result<Selection, SessionsError> {
        let mut all = Selection {
            is_complete: true,
            ..Selection::default()
        };
        for family in &self.kinds {
            let query = self.filter.query(*family, Order::Newest);
            let of_family = select_sessions(store, query, usize::MAX, |_, _| true).await?;
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
    let summaries = selection.sessions.iter().map(SessionSummary::of);
    let shown: Vec<Value> = summaries.map(|summary| to_json(&summary)).collect();
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
