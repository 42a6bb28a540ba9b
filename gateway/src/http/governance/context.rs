//! The context of every request here: caller, code server and path.

use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;

use crate::http::app::App;
use crate::http::rest::{Code, Problem, Query, QueryParameter, identify};
use mooring_admin::OperatorIdentity;
use mooring_code::server::{CodeServer, GovernedServer};
use mooring_code::skills::Viewer;
use mooring_identity::Identity;
use mooring_pipeline::RefusalCause;
use mooring_pipeline::policy::AccessPolicy;
use mooring_settings::Right;

/// An authenticated request for an existing code server.
pub(in crate::http) struct GovernanceContext {
    pub(super) app: Arc<App>,
    pub(super) server: Arc<CodeServer>,
    pub(super) identity: Arc<Identity>,
    /// The id of the request, in audit lines.
    request_id: Box<str>,
    query: Option<String>,
    /// The part of the path after the server's id: a run, a skill, an approval.
    named: Option<String>,
}

impl FromRequestParts<Arc<App>> for GovernanceContext {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let caller = identify(parts, app).await?;
        let params = RawPathParams::from_request_parts(parts, app)
            .await
            .map_err(|_| Problem::new(Code::ServerNotFound, "the path is not UTF-8"))?;
        let named = params.iter().find(|(name, _)| *name != "id");
        let id = params.iter().find(|(name, _)| *name == "id");
        let path = RequestedItem {
            server: id.map_or("", |(_, id)| id),
            named: named.map(|(_, value)| value),
            query: parts.uri.query(),
        };
        let context = Self::of_item(app, caller.operator.clone(), path)?;
        caller.admit();
        Ok(context)
    }
}

/// What a request names: a server, something of it, and what the query asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::http) struct RequestedItem<'a> {
    pub(in crate::http) server: &'a str,
    pub(in crate::http) named: Option<&'a str>,
    pub(in crate::http) query: Option<&'a str>,
}

impl GovernanceContext {
    /// A request of this caller.
    pub(in crate::http) fn of_item(
        app: &Arc<App>,
        operator: OperatorIdentity,
        item: RequestedItem<'_>,
    ) -> Result<Self, Problem> {
        let OperatorIdentity {
            identity,
            request_id,
        } = operator;
        let server = app.directory.code.as_ref().and_then(|servers| {
            let server = servers.get(item.server)?;
            may_see(&app.core.policy, &identity, item.server).then(|| Arc::clone(server))
        });
        let server = server.ok_or_else(|| {
            Problem::new(Code::ServerNotFound, "no server of kind code has this id")
        })?;
        Ok(Self {
            named: item.named.map(str::to_owned),
            query: item.query.map(str::to_owned),
            app: Arc::clone(app),
            server,
            identity,
            request_id,
        })
    }
}

/// Whether the caller may know of the server: callers that may use it or have a right over its runs or skills.
fn may_see(policy: &AccessPolicy, caller: &Identity, server: &str) -> bool {
    let governing = [
        Right::ServersRead,
        Right::SkillsCreate,
        Right::SkillsApprove,
        Right::SkillsRevoke,
    ];
    let mut rights = governing.into_iter();
    policy.may_use(caller, server) || rights.any(|right| policy.has_right(caller, right))
}

impl GovernanceContext {
    /// Whether the caller is an administrator.
    pub(super) fn is_admin(&self) -> bool {
        self.may(Right::Admin)
    }

    /// Whether the caller has this right.
    pub(super) fn may(&self, right: Right) -> bool {
        self.app.core.policy.has_right(&self.identity, right)
    }

    /// Writes the audit line of an act on what the path names.
    pub(super) fn audit<T>(&self, act: &'static str, result: &Result<T, Problem>) {
        let outcome = match result {
            Ok(_) => "done",
            Err(_) => "refused",
        };
        let by = OperatorIdentity {
            identity: Arc::clone(&self.identity),
            request_id: self.request_id.clone(),
        };
        let subject = format!("{}/{}", self.server.id, self.path_id());
        self.app.operator().audit(&by, act, &subject, outcome);
    }

    /// Refuses a caller without this right.
    pub(super) fn require(&self, right: Right) -> Result<(), Problem> {
        if self.may(right) {
            return Ok(());
        }
        let name = right.name();
        let user = self
            .app
            .core
            .request_log
            .user_digest(&self.identity.principal);
        tracing::info!(server = %self.server.id, %user, right = name, "request refused: its user lacks the right");
        let cause = RefusalCause {
            server: Some(self.server.id.as_str().into()),
            tool: None,
            reason: format!("its user lacks the right {name}").into(),
        };
        self.app.core.request_log.note_refusal(&user, cause);
        Err(Problem::new(
            Code::Forbidden,
            format!("this needs the right {name}, or admin"),
        ))
    }

    /// The server's runs, events and skills.
    pub(super) fn governed(&self) -> Result<GovernedServer, Problem> {
        Ok(self.server.governed()?)
    }

    /// The id or name in the path.
    pub(super) fn path_id(&self) -> &str {
        self.named.as_deref().unwrap_or_default()
    }

    /// The query parameters; only those of `known` are accepted.
    pub(super) fn query(&self, known: &[QueryParameter]) -> Result<Query, Problem> {
        Query::parse(self.query.as_deref().unwrap_or_default(), known)
    }

    /// Whose items a list contains: those of `user` if given; otherwise everyone's for callers with the right to see
    /// them, and the caller's own for others.
    pub(super) fn list_owner(&self, user: Option<&str>) -> Result<Option<String>, Problem> {
        let own = self.identity.principal.as_str();
        match user {
            Some(user) if user == own => Ok(Some(user.to_owned())),
            Some(user) => {
                self.require(Right::ServersRead)?;
                Ok(Some(user.to_owned()))
            }
            None if self.may(Right::ServersRead) => Ok(None),
            None => Ok(Some(own.to_owned())),
        }
    }

    /// Whether the caller may see this user's items.
    pub(super) fn may_see_items_of(&self, user: &str) -> bool {
        self.identity.principal.as_str() == user || self.may(Right::ServersRead)
    }

    /// The caller as a viewer of skills.
    pub(super) fn viewer(&self) -> Viewer {
        Viewer {
            principal: self.identity.principal.as_str().to_owned(),
            teams: self.identity.teams.to_vec(),
        }
    }
}
