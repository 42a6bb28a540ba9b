//! The access policy: which servers and tools a caller may use, and which rights it has beyond one server.
//!
//! A pure function of the settings and an [`Identity`]. Invariant: while callers are authenticated, nothing is allowed
//! but by a rule or a right, and what is denied looks to the caller as if it did not exist.

mod explain;
mod tool_filter;

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use strum::VariantArray as _;

pub use self::explain::{ExplainedAccess, explain};
pub(crate) use self::tool_filter::ToolFilter;
use mooring_identity::Identity;
use mooring_settings::{
    AccessRule, AuthSettings, CallerMatch, Grant, Right, ServerKind, Settings, ToolMatch,
};

/// The rules and rights of the settings.
#[derive(Clone, Debug)]
pub struct AccessPolicy(Option<Rules>);

/// The rules while callers are authenticated.
#[derive(Clone, Debug)]
struct Rules {
    servers: HashMap<Box<str>, ServerRules>,
    grants: Vec<Grant>,
}

/// The rules of one server.
#[derive(Clone, Debug)]
struct ServerRules {
    /// None where the server has no rules of its own.
    allow: Option<Vec<AccessRule>>,
    kind: RuleKind,
}

/// What decides in addition to the rules.
#[derive(Clone, Debug)]
enum RuleKind {
    /// Without rules the right `servers.use`.
    Upstream,
    /// Without rules no caller.
    Program,
    /// With or without rules, a right of operators.
    Operators,
    /// One of these members has to be usable.
    Group(Vec<Box<str>>),
}

/// Whether a caller may use a server, and why.
#[derive(Debug)]
pub(crate) struct Decision<'a> {
    /// What the caller may do there.
    pub(crate) access: Access<'a>,
    /// What decided.
    pub(crate) basis: Basis,
}

/// What a caller may do at a server.
#[derive(Debug)]
pub(crate) enum Access<'a> {
    /// Use everything.
    Whole,
    /// Use everything but the tools that none of the caller's rules lets in.
    Limited(ToolFilter<'a>),
    /// Nothing. With these scopes in the token a rule would fit; empty if no rule would.
    Denied(&'a [String]),
}

/// The basis of a decision about a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Basis {
    /// `auth.mode` is `none`.
    NoAuthentication,
    /// The rule at this index of `servers.allow`; of several the first.
    Rule(usize),
    /// The caller has the right `servers.use`, or lacks it.
    Right,
    /// None of the server's rules fits the caller.
    NoRuleFits,
    /// The server needs rules and has none.
    NoRules,
    /// A member of the group that the caller may use, or that there is none.
    Members,
    /// The caller has a right of operators, or lacks one.
    OperatorRight,
    /// There is no such server.
    NoServer,
}

impl fmt::Display for Basis {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAuthentication => formatter.write_str("auth.mode is none"),
            Self::Rule(index) => write!(formatter, "servers.allow[{index}] fits"),
            Self::Right => formatter.write_str("without rules it needs the right servers.use"),
            Self::NoRuleFits => formatter.write_str("no rule of servers.allow fits"),
            Self::NoRules => formatter.write_str("it needs servers.allow and has none"),
            Self::Members => formatter.write_str("a group follows its members"),
            Self::OperatorRight => {
                formatter.write_str("a server of kind admin needs a right beyond servers.use")
            }
            Self::NoServer => formatter.write_str("no such server"),
        }
    }
}

impl AccessPolicy {
    /// The policy of these settings.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        if matches!(settings.auth, AuthSettings::None) {
            return Self::open();
        }
        let servers = settings.servers.iter().map(|server| {
            let kind = match &server.kind {
                ServerKind::Http(_) | ServerKind::Sse(_) | ServerKind::Stdio(_) => {
                    RuleKind::Upstream
                }
                ServerKind::Code(_) | ServerKind::Agent(_) => RuleKind::Program,
                ServerKind::Admin => RuleKind::Operators,
                ServerKind::Group(group) => {
                    RuleKind::Group(group.members.iter().map(|id| id.as_str().into()).collect())
                }
            };
            let rules = ServerRules {
                allow: server.allow.clone(),
                kind,
            };
            (server.id.as_str().into(), rules)
        });
        Self(Some(Rules {
            servers: servers.collect(),
            grants: settings.grants.clone(),
        }))
    }

    /// Every caller may do everything: `auth.mode` is `none`, or the only caller has started the process.
    #[must_use]
    pub const fn open() -> Self {
        Self(None)
    }

    /// Whether the caller has this right.
    #[must_use]
    pub fn has_right(&self, identity: &Identity, right: Right) -> bool {
        self.0
            .as_ref()
            .is_none_or(|rules| rules.has_right(identity, right))
    }

    /// What the caller may do at a server.
    pub(crate) fn decide<'a>(&'a self, identity: &'a Identity, server: &str) -> Decision<'a> {
        match &self.0 {
            None => Basis::NoAuthentication.whole(),
            Some(rules) => rules.decide(identity, server),
        }
    }

    /// The scopes that some rule or grant asks for, sorted.
    #[must_use]
    pub fn scopes(&self) -> BTreeSet<&str> {
        let rules = self.0.iter().flat_map(|rules| {
            let allow = rules
                .servers
                .values()
                .flat_map(|server| server.allow.iter().flatten());
            let allow = allow.map(|rule| &rule.callers);
            allow.chain(rules.grants.iter().map(|grant| &grant.callers))
        });
        rules
            .flat_map(|callers| &callers.scopes)
            .map(String::as_str)
            .collect()
    }

    /// The names of the caller's rights.
    pub fn rights_of(&self, identity: &Identity) -> impl Iterator<Item = &'static str> {
        let rights = Right::VARIANTS.iter();
        let rights = rights.filter(|right| self.has_right(identity, **right));
        rights.map(|right| right.name())
    }

    /// Whether the caller may use the server at all.
    #[must_use]
    pub fn may_use(&self, identity: &Identity, server: &str) -> bool {
        !matches!(self.decide(identity, server).access, Access::Denied(_))
    }

    /// Whether the caller may call this tool, by the name that the server lists.
    #[must_use]
    pub fn may_call(&self, identity: &Identity, server: &str, tool: &str) -> bool {
        match self.decide(identity, server).access {
            Access::Whole => true,
            Access::Limited(filter) => filter.allows(tool),
            Access::Denied(_) => false,
        }
    }
}

impl Rules {
    fn has_right(&self, identity: &Identity, right: Right) -> bool {
        let gives = |given: Right| given == right || given == Right::Admin;
        let of_role = Right::VARIANTS
            .iter()
            .any(|given| gives(*given) && identity.roles.iter().any(|role| role == given.name()));
        of_role
            || (self.grants.iter()).any(|grant| {
                grant.rights.iter().any(|given| gives(*given))
                    && fit(&grant.callers, identity) == Fit::Whole
            })
    }

    /// Whether the caller has a right with which some function for operators does something.
    fn is_operator(&self, identity: &Identity) -> bool {
        let mut rights = Right::VARIANTS.iter().copied();
        rights.any(|right| right != Right::ServersUse && self.has_right(identity, right))
    }

    fn decide<'a>(&'a self, identity: &'a Identity, server: &str) -> Decision<'a> {
        let Some(rules) = self.servers.get(server) else {
            return Basis::NoServer.denied(&[]);
        };
        if matches!(rules.kind, RuleKind::Operators) && !self.is_operator(identity) {
            return Basis::OperatorRight.denied(&[]);
        }
        let own = match (&rules.allow, &rules.kind) {
            (Some(allow), _) => decide_by_rules(allow, identity),
            (None, RuleKind::Program) => Basis::NoRules.denied(&[]),
            (None, RuleKind::Operators) => Basis::OperatorRight.whole(),
            (None, RuleKind::Group(_)) => Basis::Members.whole(),
            (None, RuleKind::Upstream) => match self.has_right(identity, Right::ServersUse) {
                true => Basis::Right.whole(),
                false => Basis::Right.denied(&[]),
            },
        };
        match (&own.access, &rules.kind) {
            (Access::Whole | Access::Limited(_), RuleKind::Group(members)) => {
                self.decide_by_members(own, members, identity)
            }
            _ => own,
        }
    }

    /// A group may be used by callers that may use one of its members. Settings refuse groups of groups, so this ends.
    fn decide_by_members<'a>(
        &'a self,
        own: Decision<'a>,
        members: &[Box<str>],
        identity: &'a Identity,
    ) -> Decision<'a> {
        let mut missing: &[String] = &[];
        for member in members {
            match self.decide(identity, member).access {
                Access::Whole | Access::Limited(_) => return own,
                Access::Denied(scopes) if missing.is_empty() => missing = scopes,
                Access::Denied(_) => {}
            }
        }
        Basis::Members.denied(missing)
    }
}

fn decide_by_rules<'a>(rules: &'a [AccessRule], identity: &'a Identity) -> Decision<'a> {
    let (mut first, mut missing): (Option<usize>, &[String]) = (None, &[]);
    for (index, rule) in rules.iter().enumerate() {
        match fit(&rule.callers, identity) {
            Fit::Whole if is_unlimited(&rule.tools) => return Basis::Rule(index).whole(),
            Fit::Whole => first = first.or(Some(index)),
            Fit::WithoutScopes if missing.is_empty() => missing = &rule.callers.scopes,
            Fit::WithoutScopes | Fit::Not => {}
        }
    }
    match first {
        Some(index) => Decision {
            access: Access::Limited(ToolFilter::new(rules, identity)),
            basis: Basis::Rule(index),
        },
        None => Basis::NoRuleFits.denied(missing),
    }
}

fn is_unlimited(tools: &ToolMatch) -> bool {
    tools.tools.is_empty() && tools.deny_tools.is_empty()
}

/// How a rule fits a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    /// In every field.
    Whole,
    /// In every field but the scopes.
    WithoutScopes,
    /// Not in user, team or role.
    Not,
}

fn fit(rule: &CallerMatch, identity: &Identity) -> Fit {
    let CallerMatch {
        users,
        teams,
        roles,
        scopes,
    } = rule;
    let has_one = |patterns: &mooring_settings::Globs, names: &[String]| {
        patterns.is_empty() || names.iter().any(|name| patterns.matches(name))
    };
    let is_caller = (users.is_empty() || users.matches(identity.principal.as_str()))
        && has_one(teams, &identity.teams)
        && has_one(roles, &identity.roles);
    match (
        is_caller,
        scopes.iter().all(|scope| identity.scopes.contains(scope)),
    ) {
        (false, _) => Fit::Not,
        (true, false) => Fit::WithoutScopes,
        (true, true) => Fit::Whole,
    }
}

impl Basis {
    const fn whole<'a>(self) -> Decision<'a> {
        Decision {
            access: Access::Whole,
            basis: self,
        }
    }

    const fn denied(self, missing_scopes: &[String]) -> Decision<'_> {
        Decision {
            access: Access::Denied(missing_scopes),
            basis: self,
        }
    }
}

#[cfg(test)]
mod tests;
