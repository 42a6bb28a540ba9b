//! What a caller may use and do, and by which rule: `mooring config check --as` for operators.

use schemars::JsonSchema;
use serde::Serialize;

use super::operator::{Operator, OperatorIdentity};
use super::operator_error::OperatorError;
use mooring_identity::Identity;
use mooring_pipeline::RequestServer as _;
use mooring_settings::Right;

/// What a caller may use and do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CallerRights {
    /// The user.
    pub user: String,
    /// The user's digest in logs and metrics.
    pub digest: String,
    /// The teams that were assumed.
    pub teams: Vec<String>,
    /// The roles that were assumed.
    pub roles: Vec<String>,
    /// The scopes that were assumed.
    pub scopes: Vec<String>,
    /// The rights beyond one server.
    pub rights: Vec<String>,
    /// What the caller may do at each server.
    pub servers: Vec<ServerAccess>,
}

/// What a caller may do at one server, and what decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ServerAccess {
    /// The server.
    pub server: String,
    /// Whether the caller may use it at all.
    pub may_use: bool,
    /// The tools that the caller's rules let in, one text for each rule; empty for every tool, and for no access.
    pub tools: Vec<String>,
    /// The scopes with which a rule would fit; empty if no rule would.
    pub missing_scopes: Vec<String>,
    /// What decided, in words.
    pub basis: String,
}

impl Operator {
    /// What this caller may use and do. Needs `sessions.read`.
    ///
    /// # Errors
    /// [`OperatorError::Forbidden`].
    pub fn rights_of(
        &self,
        operator: &OperatorIdentity,
        caller: &Identity,
    ) -> Result<CallerRights, OperatorError> {
        self.require(operator, Right::SessionsRead)?;
        let core = &self.directory.core;
        let targets = self.directory.targets();
        let servers = targets.iter().map(|target| {
            let server = target.id().as_str();
            let access = core.policy.explain_access(caller, server);
            ServerAccess {
                server: server.to_owned(),
                may_use: access.may_use,
                tools: access.tools,
                missing_scopes: access.missing_scopes,
                basis: access.basis,
            }
        });
        Ok(CallerRights {
            user: caller.principal.as_str().to_owned(),
            digest: core.request_log.user_digest(&caller.principal).into(),
            teams: caller.teams.to_vec(),
            roles: caller.roles.clone(),
            scopes: caller.scopes.clone(),
            rights: core.policy.rights_of(caller).map(str::to_owned).collect(),
            servers: servers.collect(),
        })
    }
}
