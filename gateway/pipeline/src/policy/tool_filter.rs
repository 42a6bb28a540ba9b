//! The tools that a caller may see and call at a server.

use super::{Fit, fit};
use mooring_identity::Identity;
use mooring_settings::AccessRule;

/// The tools that a caller's rules let in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToolFilter<'a> {
    rules: &'a [AccessRule],
    identity: &'a Identity,
}

impl<'a> ToolFilter<'a> {
    pub(super) const fn new(rules: &'a [AccessRule], identity: &'a Identity) -> Self {
        Self { rules, identity }
    }

    /// The rules that fit the caller.
    pub(super) fn rules(&self) -> impl Iterator<Item = &'a AccessRule> {
        let identity = self.identity;
        let fits = move |rule: &&AccessRule| fit(&rule.callers, identity) == Fit::Whole;
        self.rules.iter().filter(fits)
    }

    /// Whether one of the caller's rules lets this tool in.
    pub(crate) fn allows(&self, tool: &str) -> bool {
        self.rules().any(|rule| {
            let tools = &rule.tools;
            (tools.tools.is_empty() || tools.tools.matches(tool)) && !tools.deny_tools.matches(tool)
        })
    }
}
