//! Which tools of other servers are mounted in `/tools`. What excludes wins over what includes.

use super::globs::Globs;
use super::pair::patterns;
use crate::reader::{Reader, Reason};
use crate::setting::{Disclosure, List, Setting, SettingInfo};

const TAG_SHAPE: &str = "tags of servers or of tools, at most 64 bytes each";
const SERVER_SHAPE: &str = "patterns for ids of servers, with *, ? and [...]";
const TOOL_SHAPE: &str = "patterns for names of tools, or for server/tool, with *, ? and [...], such as get_* or github/*";

const INCLUDE_TAGS: List = tags(
    SettingInfo::new(
        "servers.mount_rules.include_tags",
        "Only tools with one of these tags are mounted. A tool has its server's `tags` and its own.",
    )
    .unset("tools with any tags, or none"),
);

const EXCLUDE_TAGS: List = tags(
    SettingInfo::new(
        "servers.mount_rules.exclude_tags",
        "Tools with one of these tags are not mounted. A tool has its server's `tags` and its own.",
    )
    .unset("none is left out"),
);

const INCLUDE_SERVERS: List = patterns(
    SettingInfo::new(
        "servers.mount_rules.include_servers",
        "Only tools of these servers are mounted.",
    )
    .unset("those of every server of kind `http`, `stdio` or `sse`; no others are ever mounted"),
    SERVER_SHAPE,
);

const EXCLUDE_SERVERS: List = patterns(
    SettingInfo::new(
        "servers.mount_rules.exclude_servers",
        "Tools of these servers are not mounted.",
    )
    .unset("none is left out"),
    SERVER_SHAPE,
);

const INCLUDE_TOOLS: List = patterns(
    SettingInfo::new(
        "servers.mount_rules.include_tools",
        "Only these tools are mounted. A pattern with a slash is held against `server/tool`, one without against the \
         tool's own name.",
    )
    .unset("every one"),
    TOOL_SHAPE,
);

const EXCLUDE_TOOLS: List = patterns(
    SettingInfo::new(
        "servers.mount_rules.exclude_tools",
        "These tools are not mounted. A pattern with a slash is held against `server/tool`, one without against the \
         tool's own name.",
    )
    .unset("none is left out"),
    TOOL_SHAPE,
);

const fn tags(about: SettingInfo) -> List {
    List {
        about,
        shape: TAG_SHAPE,
        items_max: 64,
        item_bytes_max: 64,
        disclosure: Disclosure::Open,
    }
}

/// The rows of a server's `mount_rules`.
pub(super) const SETTINGS: &[Setting] = &[
    Setting::List(&INCLUDE_TAGS),
    Setting::List(&EXCLUDE_TAGS),
    Setting::List(&INCLUDE_SERVERS),
    Setting::List(&EXCLUDE_SERVERS),
    Setting::List(&INCLUDE_TOOLS),
    Setting::List(&EXCLUDE_TOOLS),
];

/// Which tools of other servers are mounted. An empty list that includes, includes everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountRules {
    /// Tags, of which a tool has one.
    pub include_tags: Vec<String>,
    /// Tags, of which it has none.
    pub exclude_tags: Vec<String>,
    /// Its server.
    pub include_servers: Globs,
    /// Not its server.
    pub exclude_servers: Globs,
    /// The tool: [`Globs::matches_tool`].
    pub include_tools: Globs,
    /// Not the tool: [`Globs::matches_tool`].
    pub exclude_tools: Globs,
}

impl MountRules {
    /// Whether any tool of a server may be mounted.
    #[must_use]
    pub fn mounts_of(&self, server: &str) -> bool {
        (self.include_servers.is_empty() || self.include_servers.matches(server))
            && !self.exclude_servers.matches(server)
    }

    /// Whether a tool is mounted; `tags` are its server's and its own.
    #[must_use]
    pub fn mounts(&self, server: &str, tool: &str, tags: &[String]) -> bool {
        let has_one = |of: &[String]| tags.iter().any(|tag| of.contains(tag));
        let is_included = (self.include_tags.is_empty() || has_one(&self.include_tags))
            && self.mounts_of(server)
            && (self.include_tools.is_empty() || self.include_tools.matches_tool(server, tool));
        let is_excluded =
            has_one(&self.exclude_tags) || self.exclude_tools.matches_tool(server, tool);
        is_included && !is_excluded
    }
}

pub(super) fn parse(reader: &mut Reader<'_>) -> MountRules {
    let include_tags = reader.list(&INCLUDE_TAGS, parse_tag).unwrap_or_default();
    let exclude_tags = reader.list(&EXCLUDE_TAGS, parse_tag).unwrap_or_default();
    let mut globs = |setting: &'static List| {
        let patterns = reader.list(setting, |text| Ok(text.to_owned()));
        Globs::new(patterns.unwrap_or_default())
    };
    MountRules {
        include_tags,
        exclude_tags,
        include_servers: globs(&INCLUDE_SERVERS),
        exclude_servers: globs(&EXCLUDE_SERVERS),
        include_tools: globs(&INCLUDE_TOOLS),
        exclude_tools: globs(&EXCLUDE_TOOLS),
    }
}

/// A word that servers and tools go by.
pub(crate) fn parse_tag(text: &str) -> Result<String, Reason> {
    if text.contains(|letter: char| letter.is_whitespace() || letter.is_control() || letter == ',')
    {
        return Err(String::new());
    }
    Ok(text.to_owned())
}
