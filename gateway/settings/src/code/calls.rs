//! Which tools of other servers code may call, and how often. A tool is named `server/tool`; what denies wins over what
//! allows.

use crate::globs::{GLOB_BYTES_MAX, GLOBS_MAX, Globs};
use crate::reader::{Reader, Reason};
use crate::rows::inherited;
use crate::setting::List;

const SHAPE: &str = "patterns for server/tool, with *, ? and [...], such as github/* or */delete_*";

inherited! {
    /// Which tools of other servers code may call, and how often.
    #[derive(Eq)]
    pub struct CallPolicy {
        /// Whether code may call the tools of other servers.
        pub are_allowed: bool = Switch(
            "code.default_allow_tool_calls" / "sandbox_policy.allow_tool_calls"
                / "sandbox_policy.permissions.network.allow_tool_calls",
            true,
        ).contextforge_name("CODE_EXECUTION_DEFAULT_ALLOW_TOOL_CALLS"),
        /// Which tools of other servers code may call, out of those that are mounted. An empty list allows every one of
        /// them.
        pub allow: Globs = List(
            "code.default_tool_allow_patterns" / "sandbox_policy.tool_allow_patterns"
                / "sandbox_policy.permissions.tools.allow",
            GLOBS_MAX, GLOB_BYTES_MAX, SHAPE,
        ).contextforge_name("CODE_EXECUTION_DEFAULT_TOOL_ALLOW_PATTERNS").unset("every tool") => parse_globs,
        /// Which tools of other servers code may not call, whatever is allowed.
        pub deny: Globs = List(
            "code.default_tool_deny_patterns" / "sandbox_policy.tool_deny_patterns"
                / "sandbox_policy.permissions.tools.deny",
            GLOBS_MAX, GLOB_BYTES_MAX, SHAPE,
        ).contextforge_name("CODE_EXECUTION_DEFAULT_TOOL_DENY_PATTERNS").unset("no tool") => parse_globs,
        /// Maximum tool calls of one run; further ones fail with an error.
        pub calls_max: u64 = Integer("code.calls_per_run", "calls", 1000, 1..=100_000),
        /// Maximum concurrent tool calls of one run; further ones are queued.
        pub at_once_max: usize = Integer("code.calls_at_once", "calls", 16, 1..=256),
    }
}

impl CallPolicy {
    /// Whether code may call this tool, if it is mounted. What denies wins.
    #[must_use]
    pub fn verdict(&self, server: &str, tool: &str) -> CallVerdict {
        let name = format!("{server}/{tool}");
        if !self.are_allowed {
            CallVerdict::NoneAllowed
        } else if self.deny.matches(&name) {
            CallVerdict::Denied
        } else if self.allow.is_empty() || self.allow.matches(&name) {
            CallVerdict::Allowed
        } else {
            CallVerdict::NotAllowed
        }
    }
}

/// What a policy says of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallVerdict {
    /// It may be made.
    Allowed,
    /// Code may call no tool at all.
    NoneAllowed,
    /// A pattern denies it.
    Denied,
    /// There are patterns that allow, and none of them is for it.
    NotAllowed,
}

fn parse_globs(reader: &mut Reader<'_>, row: &'static List) -> Globs {
    Globs::new(reader.list(row, for_tools).unwrap_or_default())
}

/// A pattern without a slash, and without anything that could stand for one, would silently match no tool.
fn for_tools(pattern: &str) -> Result<String, Reason> {
    if !pattern.contains(['/', '*', '?', '[']) {
        return Err("it can match no tool: their names here are server/tool".to_owned());
    }
    Ok(pattern.to_owned())
}
