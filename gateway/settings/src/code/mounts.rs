//! Which tools of other servers are mounted in `/tools`. What excludes wins over what includes.

use crate::globs::{GLOB_BYTES_MAX, GLOBS_MAX, Globs};
use crate::reader::{Reader, Reason, list};
use crate::rows::settings;
use crate::setting::List;

/// Most tags of a server, and of a rule.
pub(crate) const TAGS_MAX: usize = 64;
/// Longest tag in bytes.
pub(crate) const TAG_BYTES_MAX: usize = 64;

const TAG_SHAPE: &str = "tags of servers or of tools, at most 64 bytes each";
const SERVER_SHAPE: &str = "patterns for ids of servers, with *, ? and [...]";
const TOOL_SHAPE: &str = "patterns for names of tools, or for server/tool, with *, ? and [...], such as get_* or github/*";

settings! {
    /// Which tools of other servers are mounted. An empty list that includes, includes everything.
    #[derive(Default, Eq)]
    pub struct MountRules {
        /// Only tools with one of these tags are mounted. A tool has its server's `tags` and its own.
        pub include_tags: Vec<String> = List("servers.mount_rules.include_tags", TAGS_MAX, TAG_BYTES_MAX, TAG_SHAPE)
            .unset("tools with any tags, or none") => list(parse_tag),
        /// Tools with one of these tags are not mounted. A tool has its server's `tags` and its own.
        pub exclude_tags: Vec<String> = List("servers.mount_rules.exclude_tags", TAGS_MAX, TAG_BYTES_MAX, TAG_SHAPE)
            .unset("none is left out") => list(parse_tag),
        /// Only tools of these servers are mounted.
        pub include_servers: Globs =
            List("servers.mount_rules.include_servers", GLOBS_MAX, GLOB_BYTES_MAX, SERVER_SHAPE)
            .unset("those of every server of kind `http`, `stdio` or `sse`; no others are ever mounted") => parse_globs,
        /// Tools of these servers are not mounted.
        pub exclude_servers: Globs =
            List("servers.mount_rules.exclude_servers", GLOBS_MAX, GLOB_BYTES_MAX, SERVER_SHAPE)
            .unset("none is left out") => parse_globs,
        /// Only these tools are mounted. A pattern with a slash is matched against `server/tool`, one without against
        /// the tool's own name.
        pub include_tools: Globs = List("servers.mount_rules.include_tools", GLOBS_MAX, GLOB_BYTES_MAX, TOOL_SHAPE)
            .unset("every one") => parse_globs,
        /// These tools are not mounted. A pattern with a slash is matched against `server/tool`, one without against
        /// the tool's own name.
        pub exclude_tools: Globs = List("servers.mount_rules.exclude_tools", GLOBS_MAX, GLOB_BYTES_MAX, TOOL_SHAPE)
            .unset("none is left out") => parse_globs,
    }
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

fn parse_globs(reader: &mut Reader<'_>, row: &'static List) -> Globs {
    let patterns = reader.list(row, |text| Ok(text.to_owned()));
    Globs::new(patterns.unwrap_or_default())
}

/// A word that servers and tools go by.
pub(crate) fn parse_tag(text: &str) -> Result<String, Reason> {
    if text.contains(|letter: char| letter.is_whitespace() || letter.is_control() || letter == ',')
    {
        return Err(String::new());
    }
    Ok(text.to_owned())
}
