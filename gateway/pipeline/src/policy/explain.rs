//! Describes the access of one caller: for `mooring config check --as`, and for operators.

use super::{Access, AccessPolicy};
use mooring_identity::Identity;
use mooring_settings::{Globs, Settings, ToolMatch};

/// What a caller may do at one server, and what decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedAccess {
    /// Whether the caller may use it at all.
    pub may_use: bool,
    /// The tools that the caller's rules let in, one text for each rule; empty for every tool, and for no access.
    pub tools: Vec<String>,
    /// The scopes with which a rule would fit; empty if no rule would.
    pub missing_scopes: Vec<String>,
    /// What decided, in words.
    pub basis: String,
}

impl AccessPolicy {
    /// Explains what the caller may do at this server.
    #[must_use]
    pub fn explain_access(&self, identity: &Identity, server: &str) -> ExplainedAccess {
        let decision = self.decide(identity, server);
        let (may_use, tools, missing_scopes) = match &decision.access {
            Access::Whole => (true, Vec::new(), Vec::new()),
            Access::Limited(filter) => {
                let rules = filter.rules().map(|rule| tools(&rule.tools));
                (true, rules.collect(), Vec::new())
            }
            Access::Denied(scopes) => (false, Vec::new(), scopes.to_vec()),
        };
        ExplainedAccess {
            may_use,
            tools,
            missing_scopes,
            basis: decision.basis.to_string(),
        }
    }
}

/// One line for each server, and one for the rights.
#[must_use]
pub fn explain(settings: &Settings, identity: &Identity) -> String {
    let policy = AccessPolicy::of(settings);
    let mut text = String::new();
    for server in &settings.servers {
        let (id, kind) = (server.id.as_str(), server.kind.name());
        let access = policy.explain_access(identity, id);
        let may = match (access.may_use, &*access.tools, &*access.missing_scopes) {
            (true, [], _) => "may use it".to_owned(),
            (true, tools, _) => format!("may use {}", tools.join("; and ")),
            (false, _, []) => "may not use it".to_owned(),
            (false, _, scopes) => {
                format!("may not use it without the scopes {}", scopes.join(" "))
            }
        };
        text.push_str(&format!("server {id} ({kind}): {may}: {}\n", access.basis));
    }
    let rights: Vec<&str> = policy.rights_of(identity).collect();
    let rights = match rights.is_empty() {
        true => "none".to_owned(),
        false => rights.join(", "),
    };
    text.push_str(&format!("rights: {rights}\n"));
    text
}

/// The tools that a rule lets in.
fn tools(rule: &ToolMatch) -> String {
    let list = |globs: &Globs| globs.patterns().collect::<Vec<_>>().join(", ");
    let tools = match rule.tools.is_empty() {
        true => "every tool".to_owned(),
        false => list(&rule.tools),
    };
    match rule.deny_tools.is_empty() {
        true => tools,
        false => format!("{tools} but not {}", list(&rule.deny_tools)),
    }
}
