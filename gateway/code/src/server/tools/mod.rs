//! The tools of a code server: one file each, with what it takes, what it does and what it answers.

mod arguments;
pub(super) mod fs_browse;
pub(super) mod fs_read;
pub(super) mod fs_write;
pub(super) mod shell_exec;
pub(super) mod tool_search;

use serde_json::{Value, json};

use crate::server::offer::LanguageOffer;
use mooring_settings::{CodePolicy, CodeTool, CodeToolSettings};

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
