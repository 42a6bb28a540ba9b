//! `[calls]`: hooks that check each tool call.
//!
//! Invariant: a hook without `servers` and `tools` is asked about every call.

use std::time::Duration;

use http::Uri;

use super::access::{PATTERNS, globs};
use super::globs::{GLOB_BYTES_MAX, GLOBS_MAX, Globs};
use super::reader::Reader;
use super::rows::{settings, words};
use super::servers::{Instance, UpstreamHeaders, parse_headers};
use super::setting::Text;

/// Most hooks.
const HOOKS_MAX: usize = 16;

words! {
    /// What happens to a call where a hook gives no valid answer.
    pub enum OnHookFailure {
        /// the call is refused, or its result is withheld
        Refuse = "refuse",
        /// the call continues without this hook
        Allow = "allow",
    }
}

/// When a hook is asked.
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
#[strum(serialize_all = "snake_case")]
pub enum HookPhase {
    /// Before the call is sent to the server.
    Before,
    /// After the server has answered.
    After,
}

settings! {
    /// One service that is asked about tool calls.
    pub struct HookSettings {
        /// Where it is asked, with a POST. A redirect counts as a failure.
        pub url: Uri = Text("hook.url", 128, "an http or https URL, without credentials and without a fragment", None)
            .unset("refused") => parse_url,
        /// When it is asked: before a call is sent to the server, after the server has answered, or both.
        pub phases: Vec<HookPhase> = List("hook.when", 2, 8, "before or after").unset("refused") => |reader, row| {
            let empty = "a hook that is never asked has no effect";
            reader.distinct(row, |text| text.parse().map_err(|_| String::new()), empty, "the word")
        },
        /// The servers about whose calls it is asked. Calls of a group are those of its members.
        pub servers: Globs = List("hook.servers", GLOBS_MAX, GLOB_BYTES_MAX, PATTERNS)
            .unset("every server") => globs,
        /// The tools about whose calls it is asked, by the names that their server lists.
        pub tools: Globs = List("hook.tools", GLOBS_MAX, GLOB_BYTES_MAX, PATTERNS)
            .unset("every tool") => globs,
        /// Headers that every request to it carries, such as its credentials. A value `env:NAME` is taken from the
        /// environment variable NAME. Values are never logged.
        pub headers: UpstreamHeaders = Map("hook.headers", 32,
            "a table of header names, each with a text of printable characters or \"env:NAME\"")
            .unset("none") => parse_headers,
        /// How long it may take to answer.
        pub timeout: Duration = Integer("hook.timeout_ms", "milliseconds", 1000, 10..=60_000),
        /// What happens to a call where it gives no valid answer in time.
        pub on_failure: OnHookFailure = Choice("hook.on_failure"),
    }
}

settings! {
    /// The rows of `[calls]`.
    pub(crate) const ROWS {
        /// Services that check each tool call, one after another in this order: each allows, changes or refuses it.
        /// hooks.md describes requests and answers.
        HOOKS = Tables("calls.hooks", HOOKS_MAX, &[HookSettings::ROWS]).unset("none"),
    }
}

impl HookSettings {
    /// Whether it is asked about calls of this tool.
    #[must_use]
    pub fn is_for_tool(&self, server: &str, tool: &str) -> bool {
        self.is_for_server(server)
            && (self.tools.is_empty() || self.tools.matches_tool(server, tool))
    }

    /// Whether it is asked about calls at this server.
    #[must_use]
    pub fn is_for_server(&self, server: &str) -> bool {
        self.servers.is_empty() || self.servers.matches(server)
    }
}

pub(super) fn parse(reader: &mut Reader<'_>) -> Vec<HookSettings> {
    let hooks = reader.tables(&HOOKS, HookSettings::read);
    hooks.unwrap_or_default()
}

fn parse_url(reader: &mut Reader<'_>, row: &'static Text) -> Uri {
    let parsed = reader.text(row, |text| Ok(Instance::parse(text)?.uri().clone()));
    if parsed.is_none() && !reader.was_refused(row) {
        reader.refuse(row, "", "it is missing", row.shape);
    }
    // The stand-in is never used: a missing URL means that a problem was noted.
    parsed.unwrap_or_default()
}
