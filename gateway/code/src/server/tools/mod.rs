//! The tools of a code server: one file each, with what it takes, what it does and what it answers.

pub(super) mod fs_browse;
pub(super) mod fs_read;
pub(super) mod fs_write;
mod offer;
pub(super) mod shell_exec;
pub(super) mod tool_search;

use std::time::Duration;

pub(super) use self::offer::LanguageOffer;

use mooring_sandbox::tree::{Mount, VirtualPath};
use serde_json::{Value, json};

use crate::catalog::CatalogNeed;
use mooring_protocol::arguments::{ArgumentError, Arguments};
use mooring_settings::{CodePolicy, CodeTool, CodeToolSettings, Language};

/// The name of a tool on the wire.
pub(super) const fn name(tool: CodeTool) -> &'static str {
    match tool {
        CodeTool::ShellExec => "shell_exec",
        CodeTool::FsBrowse => "fs_browse",
        CodeTool::FsRead => "fs_read",
        CodeTool::FsWrite => "fs_write",
        CodeTool::ToolSearch => "tool_search",
    }
}

/// The tool of this name, if it is offered.
pub(super) fn named(tool_name: &str, settings: &CodeToolSettings) -> Option<CodeTool> {
    settings
        .offered
        .iter()
        .copied()
        .find(|tool| name(*tool) == tool_name)
}

/// The result of `tools/list`: the tools that are offered. A model reads it in every conversation: each word in it has to be
/// worth that.
pub(super) fn list_json(
    settings: &CodeToolSettings,
    policy: &CodePolicy,
    offer: &LanguageOffer,
) -> String {
    let definitions: Value = settings
        .offered
        .iter()
        .map(|tool| match tool {
            CodeTool::ShellExec => shell_exec::definition(policy, settings.answer, offer),
            CodeTool::FsBrowse => fs_browse::definition(policy, settings, offer),
            CodeTool::FsRead => fs_read::definition(settings, offer),
            CodeTool::FsWrite => fs_write::definition(policy, offer),
            CodeTool::ToolSearch => tool_search::definition(offer),
        })
        .collect();
    json!({ "tools": definitions }).to_string()
}

/// The argument `language`.
fn language(arguments: &mut Arguments) -> Result<Option<Language>, ArgumentError> {
    const ALLOWED: &str = "\"python\", \"typescript\" and \"javascript\"";
    arguments.choice_if_given("language", Language::parse, ALLOWED)
}

/// The argument of the file tools that selects the session by its language.
fn language_schema(offer: &LanguageOffer) -> Value {
    json!({ "type": "string", "enum": offer.names, "description": "Whose files; see shell_exec." })
}

/// How `content` holds a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileEncoding {
    Text,
    Base64,
}

/// The argument of the file tools that selects how they hold a file.
fn encoding(arguments: &mut Arguments) -> Result<Option<FileEncoding>, ArgumentError> {
    let parse = |name: &str| match name {
        "text" => Some(FileEncoding::Text),
        "base64" => Some(FileEncoding::Base64),
        _ => None,
    };
    arguments.choice_if_given("encoding", parse, "\"text\" and \"base64\"")
}

fn encoding_schema() -> Value {
    json!({ "type": "string", "enum": ["text", "base64"] })
}

/// What looking at this path needs of the lists of tools.
fn catalog_need(path: &VirtualPath) -> CatalogNeed {
    match path.mount() {
        Some(Mount::Tools) => CatalogNeed::Tools,
        _ => CatalogNeed::Files,
    }
}

/// What a tool does that only reads.
fn reading() -> Value {
    json!({ "readOnlyHint": true, "openWorldHint": false })
}

/// A duration as people say it.
fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    for (unit, length) in [("days", 86_400), ("hours", 3_600), ("minutes", 60)] {
        if seconds >= 2 * length && seconds.is_multiple_of(length) {
            return format!("{} {unit}", seconds / length);
        }
    }
    format!("{seconds} seconds")
}
