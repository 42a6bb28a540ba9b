//! The rules of access to each server, and the rights beyond one server.
//!
//! Invariant: a rule without users, teams, roles and scopes matches every authenticated caller, and only a rule or a
//! right grants access.

use super::globs::{GLOB_BYTES_MAX, GLOBS_MAX, Globs};
use super::reader::{Reader, Reason};
use super::rows::settings;
use super::setting::List;

/// What an item of a list of patterns may be.
pub(super) const PATTERNS: &str = "patterns with *, ? and [...]";
/// Most rules of one server, and most grants.
const RULES_MAX: usize = 64;
/// Most scopes of one rule.
const SCOPES_MAX: usize = 16;
/// Longest scope in bytes.
const SCOPE_BYTES_MAX: usize = 128;

settings! {
    /// The callers that a rule is for: those whom every field that is set fits.
    pub struct CallerMatch {
        /// The users that the rule is for, by the names that authentication gives them.
        pub users: Globs = List("rule.users", GLOBS_MAX, GLOB_BYTES_MAX, PATTERNS)
            .unset("every user") => globs,
        /// The teams that the rule is for: a caller in one of them.
        pub teams: Globs = List("rule.teams", GLOBS_MAX, GLOB_BYTES_MAX, PATTERNS)
            .unset("every team, and callers without one") => globs,
        /// The roles that the rule is for: a caller with one of them.
        pub roles: Globs = List("rule.roles", GLOBS_MAX, GLOB_BYTES_MAX, PATTERNS)
            .unset("every role, and callers without one") => globs,
        /// The scopes that the caller's token must have, all of them.
        pub scopes: Vec<String> = List("rule.scopes", SCOPES_MAX, SCOPE_BYTES_MAX, "scopes as RFC 6749, section 3.3 writes them")
            .unset("none is needed") => scopes,
    }
}

settings! {
    /// The tools of a server that a rule lets its callers use.
    pub struct ToolMatch {
        /// The tools that these callers may see and call, by the names that the server lists.
        pub tools: Globs = List("rule.tools", GLOBS_MAX, GLOB_BYTES_MAX, PATTERNS)
            .unset("every tool") => globs,
        /// The tools among them that they may not.
        pub deny_tools: Globs = List("rule.deny_tools", GLOBS_MAX, GLOB_BYTES_MAX, PATTERNS)
            .unset("no tool") => globs,
    }
}

/// Lets some callers use a server, or some of its tools.
#[derive(Debug, Clone, PartialEq)]
pub struct AccessRule {
    /// Whom it lets in.
    pub callers: CallerMatch,
    /// What they may use.
    pub tools: ToolMatch,
}

/// Gives rights to some callers.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    /// Who gets them.
    pub callers: CallerMatch,
    /// The rights.
    pub rights: Vec<Right>,
}

/// A right that goes beyond one server. A role of the same name gives it too.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
pub enum Right {
    /// Use every server that has no rules of its own, except those of kind `code`, `agent` and `admin`.
    #[strum(serialize = "servers.use")]
    ServersUse,
    /// See the runs, sessions and events of others.
    #[strum(serialize = "servers.read")]
    ServersRead,
    /// Create skills.
    #[strum(serialize = "skills.create")]
    SkillsCreate,
    /// Approve and reject skills.
    #[strum(serialize = "skills.approve")]
    SkillsApprove,
    /// Revoke skills.
    #[strum(serialize = "skills.revoke")]
    SkillsRevoke,
    /// See the sessions of all users, who sends most, and what a caller may use.
    #[strum(serialize = "sessions.read")]
    SessionsRead,
    /// End and move the sessions of all users.
    #[strum(serialize = "sessions.manage")]
    SessionsManage,
    /// See the gateways, the servers, and how sessions are spread over them.
    #[strum(serialize = "fleet.read")]
    FleetRead,
    /// Drain gateways, and reload their settings.
    #[strum(serialize = "fleet.manage")]
    FleetManage,
    /// Park servers and their instances, and add, change and remove servers.
    #[strum(serialize = "servers.manage")]
    ServersManage,
    /// Every right above.
    #[strum(serialize = "admin")]
    Admin,
}

settings! {
    /// The row of every server with its rules.
    pub(crate) const SERVER_ROWS {
        /// Who may use the server, and which of its tools: a caller whom one of the rules fits. With `auth.mode = "none"`
        /// it has no effect.
        ALLOW = Tables("servers.allow", RULES_MAX, &[CallerMatch::ROWS, ToolMatch::ROWS])
            .unset("callers with the right `servers.use`; no caller at a server of kind `code` or `agent`; at a group, \
                    callers that may use one of its members"),
    }
}

settings! {
    /// The fields of a grant besides its callers.
    const GRANT_ROWS {
        /// The rights that these callers get.
        RIGHTS = List("rule.rights", 11, 32,
            "servers.use, servers.read, skills.create, skills.approve, skills.revoke, sessions.read, sessions.manage, \
             fleet.read, fleet.manage, servers.manage or admin")
            .unset("refused"),
    }
}

settings! {
    /// The rows of `[auth]` with the rights that callers get.
    pub(crate) const ROWS {
        /// The rights that callers get in addition to their roles: a role that is named like a right grants it.
        GRANTS = Tables("auth.grants", RULES_MAX, &[CallerMatch::ROWS, GRANT_ROWS]).unset("none"),
    }
}

impl Right {
    /// Its name in a grant, and the role that gives it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The rules of one server; none where it has none of its own.
pub(super) fn parse_rules(reader: &mut Reader<'_>) -> Option<Vec<AccessRule>> {
    reader.tables(&ALLOW, |reader| AccessRule {
        callers: CallerMatch::read(reader),
        tools: ToolMatch::read(reader),
    })
}

/// The grants of `[auth]`.
pub(super) fn parse_grants(reader: &mut Reader<'_>) -> Vec<Grant> {
    let grants = reader.tables(&GRANTS, |reader| Grant {
        callers: CallerMatch::read(reader),
        rights: reader.distinct(
            &RIGHTS,
            parse_right,
            "a grant without a right gives nothing",
            "the right",
        ),
    });
    grants.unwrap_or_default()
}

fn parse_right(text: &str) -> Result<Right, Reason> {
    text.parse().map_err(|_| Reason::new())
}

fn parse_scope(text: &str) -> Result<String, Reason> {
    let is_valid = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
    match text.bytes().all(is_valid) {
        true => Ok(text.to_owned()),
        false => Err("it has characters that no scope has".to_owned()),
    }
}

fn scopes(reader: &mut Reader<'_>, row: &'static List) -> Vec<String> {
    not_empty(reader, row, parse_scope)
}

/// Patterns, at least one.
pub(super) fn globs(reader: &mut Reader<'_>, row: &'static List) -> Globs {
    Globs::new(not_empty(reader, row, |pattern| Ok(pattern.to_owned())))
}

/// Refuses an empty list: it could be read as "no one", while a list that is left out means everyone.
fn not_empty<T>(
    reader: &mut Reader<'_>,
    row: &'static List,
    parse: impl Fn(&str) -> Result<T, Reason>,
) -> Vec<T> {
    let items = reader.list(row, parse);
    if items.as_ref().is_some_and(Vec::is_empty) && !reader.was_refused(row) {
        let reason = "an empty list fits nothing; leave it out if the rule does not depend on it";
        reader.refuse(row, "[]", reason, row.allowed());
    }
    items.unwrap_or_default()
}
