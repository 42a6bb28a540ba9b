//! Whose skills a server has, and whether somebody has to approve them.

use crate::reader::{Reader, Reason};
use crate::setting::{Disclosure, Setting, SettingInfo, Switch, Text};

const SKILLS_SCOPE: Text = Text {
    about: SettingInfo::new("servers.skills_scope", "Whose skills the server has.")
        .unset("those that were made at this server"),
    default: None,
    shape: "team:<id> or user:<email>, the name at most 250 bytes without control characters",
    bytes_max: 255,
    disclosure: Disclosure::Open,
};

const SKILLS_REQUIRE_APPROVAL: Switch = Switch {
    about: SettingInfo::new(
        "servers.skills_require_approval",
        "Whether a new skill waits for somebody with the right to approve it. Otherwise it is there as soon as it is made.",
    ),
    default: false,
};

/// The rows of one server.
pub(super) const SETTINGS: &[Setting] = &[
    Setting::Text(&SKILLS_SCOPE),
    Setting::Switch(&SKILLS_REQUIRE_APPROVAL),
];

/// Whose skills a server has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkillScope {
    /// A team's, by its id.
    Team(String),
    /// A user's, by the name that requests carry.
    User(String),
}

/// What a server says of its skills.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkillSettings {
    /// Whose they are; the server's own where nobody is named.
    pub scope: Option<SkillScope>,
    /// Whether a new one waits for approval.
    pub require_approval: bool,
}

pub(super) fn parse(reader: &mut Reader<'_>) -> SkillSettings {
    SkillSettings {
        scope: reader.text(&SKILLS_SCOPE, parse_scope),
        require_approval: reader.switch(&SKILLS_REQUIRE_APPROVAL),
    }
}

fn parse_scope(text: &str) -> Result<SkillScope, Reason> {
    match text.split_once(':') {
        _ if text.contains(char::is_control) => Err("it has control characters".to_owned()),
        Some((_, "")) => Err("it names nobody".to_owned()),
        Some(("team", id)) => Ok(SkillScope::Team(id.to_owned())),
        Some(("user", name)) => Ok(SkillScope::User(name.to_owned())),
        _ => Err(String::new()),
    }
}
