//! Which tools of other servers code may call, and how often. A tool is named `server/tool`; what denies wins over what
//! allows.

use super::globs::Globs;
use super::pair::{Pair, lists, switches};
use crate::reader::{Reader, Reason};
use crate::setting::{Integer, List, Setting, SettingInfo, Switch};

const SHAPE: &str = "patterns for server/tool, with *, ? and [...], such as github/* or */delete_*";

const ALLOWED: &str = "Whether code may call the tools of other servers.";

const ALLOW_TOOL_CALLS: Pair<Switch> = switches(
    SettingInfo::new("code.default_allow_tool_calls", ALLOWED)
        .seed("CODE_EXECUTION_DEFAULT_ALLOW_TOOL_CALLS"),
    SettingInfo::new("servers.sandbox_policy.allow_tool_calls", ALLOWED)
        .aliases(&["sandbox_policy.permissions.network.allow_tool_calls"])
        .unset("as `code.default_allow_tool_calls` says"),
    true,
);

const ALLOW: &str = "Which tools of other servers code may call, out of those that are mounted. An empty list allows every \
                     one of them.";

const TOOL_ALLOW_PATTERNS: Pair<List> = lists(
    SettingInfo::new("code.default_tool_allow_patterns", ALLOW)
        .seed("CODE_EXECUTION_DEFAULT_TOOL_ALLOW_PATTERNS")
        .unset("every tool"),
    SettingInfo::new("servers.sandbox_policy.tool_allow_patterns", ALLOW)
        .aliases(&["sandbox_policy.permissions.tools.allow"])
        .unset("as `code.default_tool_allow_patterns` says"),
    SHAPE,
);

const DENY: &str = "Which tools of other servers code may not call, whatever is allowed.";

const TOOL_DENY_PATTERNS: Pair<List> = lists(
    SettingInfo::new("code.default_tool_deny_patterns", DENY)
        .seed("CODE_EXECUTION_DEFAULT_TOOL_DENY_PATTERNS")
        .unset("no tool"),
    SettingInfo::new("servers.sandbox_policy.tool_deny_patterns", DENY)
        .aliases(&["sandbox_policy.permissions.tools.deny"])
        .unset("as `code.default_tool_deny_patterns` says"),
    SHAPE,
);

const CALLS_PER_RUN: Integer = Integer {
    about: SettingInfo::new(
        "code.calls_per_run",
        "How many calls of tools one run may make; the next one is answered with an error.",
    ),
    unit: "calls",
    default: 1000,
    least: 1,
    most: 100_000,
};

const CALLS_AT_ONCE: Integer = Integer {
    about: SettingInfo::new(
        "code.calls_at_once",
        "How many calls of one run go to tools at the same time; more wait their turn.",
    ),
    unit: "calls",
    default: 16,
    least: 1,
    most: 256,
};

/// The rows of `[code]`.
pub(super) const INHERITED_SETTINGS: &[Setting] = &[
    Setting::Switch(&ALLOW_TOOL_CALLS.standard),
    Setting::List(&TOOL_ALLOW_PATTERNS.standard),
    Setting::List(&TOOL_DENY_PATTERNS.standard),
    Setting::Integer(&CALLS_PER_RUN),
    Setting::Integer(&CALLS_AT_ONCE),
];

/// The rows of `sandbox_policy`.
pub(super) const OWN_SETTINGS: &[Setting] = &[
    Setting::Switch(&ALLOW_TOOL_CALLS.own),
    Setting::List(&TOOL_ALLOW_PATTERNS.own),
    Setting::List(&TOOL_DENY_PATTERNS.own),
];

/// Which tools of other servers code may call, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallPolicy {
    /// Whether it may call any.
    pub are_allowed: bool,
    /// Those it may call, as `server/tool`; where there is none, all.
    pub allow: Globs,
    /// Those it may not call, whatever is allowed.
    pub deny: Globs,
    /// Most calls of one run.
    pub calls_max: u64,
    /// Most calls of one run at the same time.
    pub at_once_max: usize,
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

/// What `[code]` says for every server.
pub(super) fn parse_defaults(reader: &mut Reader<'_>) -> CallPolicy {
    let globs = |reader: &mut Reader<'_>, setting| parse_globs(reader, setting).unwrap_or_default();
    CallPolicy {
        are_allowed: reader.switch(&ALLOW_TOOL_CALLS.standard),
        allow: globs(reader, &TOOL_ALLOW_PATTERNS.standard),
        deny: globs(reader, &TOOL_DENY_PATTERNS.standard),
        calls_max: reader.integer(&CALLS_PER_RUN),
        at_once_max: usize::try_from(reader.integer(&CALLS_AT_ONCE)).unwrap_or(usize::MAX),
    }
}

/// What a server says, and the standard where it says nothing.
pub(super) fn parse_overrides(reader: &mut Reader<'_>, standard: &CallPolicy) -> CallPolicy {
    let mut globs = |setting, standard: &Globs| {
        parse_globs(reader, setting).unwrap_or_else(|| standard.clone())
    };
    let allow = globs(&TOOL_ALLOW_PATTERNS.own, &standard.allow);
    let deny = globs(&TOOL_DENY_PATTERNS.own, &standard.deny);
    CallPolicy {
        are_allowed: reader.switch_or(&ALLOW_TOOL_CALLS.own, standard.are_allowed),
        allow,
        deny,
        ..*standard
    }
}

fn parse_globs(reader: &mut Reader<'_>, setting: &'static List) -> Option<Globs> {
    Some(Globs::new(reader.list(setting, for_tools)?))
}

/// A pattern without a slash, and without anything that could stand for one, would silently match no tool.
fn for_tools(pattern: &str) -> Result<String, Reason> {
    if !pattern.contains(['/', '*', '?', '[']) {
        return Err("it can match no tool: their names here are server/tool".to_owned());
    }
    Ok(pattern.to_owned())
}
