//! Who a request is from.

use std::sync::Arc;

use mooring_secrets::access_token::AccessToken;
use mooring_secrets::digest;
use mooring_session::names::Principal;

/// The identity of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Owner of the sessions of this request.
    pub principal: Principal,
    /// The principal's teams, without duplicates, in the order given.
    pub teams: Arc<[String]>,
    /// The principal's roles, without duplicates, in the order given.
    pub roles: Vec<String>,
    /// The scopes of the caller's token, without duplicates; empty where no token is checked.
    pub scopes: Vec<String>,
    /// The caller's token, where a server gets one in exchange for it.
    pub token: Option<Arc<AccessToken>>,
}

impl Identity {
    /// The identity of a principal without team, role or scope.
    #[must_use]
    pub fn of(principal: Principal) -> Self {
        Self {
            principal,
            teams: Arc::default(),
            roles: Vec::new(),
            scopes: Vec::new(),
            token: None,
        }
    }

    /// A digest of the teams, roles and scopes, in whatever order: with the same one, a principal has the same rights.
    #[must_use]
    pub fn rights_digest(&self) -> String {
        let lists = [&self.teams[..], &self.roles, &self.scopes].map(|names| {
            let mut names: Vec<&String> = names.iter().collect();
            names.sort_unstable();
            names
        });
        digest::hex(format!("{lists:?}").as_bytes())
    }
}
