//! Describes the access of one caller, for `mooring config check --as`.

use super::{Access, AccessPolicy};
use mooring_identity::Identity;
use mooring_settings::{Globs, Settings, ToolMatch};

/// One line for each server, and one for the rights.
#[must_use]
pub fn explain(settings: &Settings, identity: &Identity) -> String {
    let policy = AccessPolicy::of(settings);
    let mut text = String::new();
    for server in &settings.servers {
        let id = server.id.as_str();
        let decision = policy.decide(identity, id);
        let (basis, kind) = (decision.basis, server.kind.name());
        let may = match decision.access {
            Access::Whole => "may use it".to_owned(),
            Access::Limited(filter) => {
                let tools: Vec<String> = filter.rules().map(|rule| tools(&rule.tools)).collect();
                format!("may use {}", tools.join("; and "))
            }
            Access::Denied([]) => "may not use it".to_owned(),
            Access::Denied(scopes) => {
                format!("may not use it without the scopes {}", scopes.join(" "))
            }
        };
        text.push_str(&format!("server {id} ({kind}): {may}: {basis}\n"));
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
