//! Who may see a skill.

use std::fmt;

use serde::{Deserialize, Serialize};

use mooring_settings::SkillScope;

/// Longest name of a team or user, in bytes.
const NAME_BYTES_MAX: usize = 320;

/// Who may see a skill.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Scope {
    /// Everybody who may use the server.
    Server,
    /// Those of a team.
    Team(String),
    /// One principal.
    User(String),
}

impl Scope {
    /// Reads `server`, `team:<id>` or `user:<email>`; none for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let is_name = |name: &&str| {
            !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control)
        };
        match text.split_once(':') {
            None if text == "server" => Some(Self::Server),
            Some(("team", id)) => Some(id).filter(is_name).map(|id| Self::Team(id.to_owned())),
            Some(("user", name)) => Some(name)
                .filter(is_name)
                .map(|name| Self::User(name.to_owned())),
            _ => None,
        }
    }

    /// The scope of a server's settings.
    pub fn of_settings(scope: Option<&SkillScope>) -> Self {
        match scope {
            None => Self::Server,
            Some(SkillScope::Team(id)) => Self::Team(id.clone()),
            Some(SkillScope::User(name)) => Self::User(name.clone()),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server => formatter.write_str("server"),
            Self::Team(id) => write!(formatter, "team:{id}"),
            Self::User(name) => write!(formatter, "user:{name}"),
        }
    }
}

impl TryFrom<String> for Scope {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("a scope is server, team:<id> or user:<email>")
    }
}

impl From<Scope> for String {
    fn from(scope: Scope) -> Self {
        scope.to_string()
    }
}

/// The principal for whom skills are listed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Viewer {
    /// The principal.
    pub principal: String,
    /// The principal's teams.
    pub teams: Vec<String>,
}

impl Viewer {
    /// Whether what has this scope is to be seen.
    pub fn sees(&self, scope: &Scope) -> bool {
        match scope {
            Scope::Server => true,
            Scope::Team(id) => self.teams.contains(id),
            Scope::User(name) => self.principal == *name,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn scopes_are_read_as_they_are_written() {
        for text in ["server", "team:red", "user:ada@example.org", "user:a:b"] {
            assert_eq!(Scope::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "team",
            "team:",
            "user:",
            "servers",
            "role:x",
            "user:a\nb",
            "Server",
        ] {
            assert_eq!(Scope::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_scope_is_seen_by_those_it_names() {
        let ada = Viewer {
            principal: "ada".to_owned(),
            teams: vec!["red".to_owned()],
        };
        for (scope, is_seen) in [
            ("server", true),
            ("team:red", true),
            ("team:ada", false),
            ("team:blue", false),
            ("user:ada", true),
            ("user:red", false),
            ("user:eve", false),
        ] {
            assert_eq!(ada.sees(&Scope::parse(scope).unwrap()), is_seen, "{scope}");
        }
    }
}
