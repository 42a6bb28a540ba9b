//! Which tools a `code` server offers, and how much the file tools answer.

use crate::reader::Reader;
use crate::rows::{settings, words};

/// A tool of a `code` server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeTool {
    /// Runs code.
    ShellExec,
    /// Lists a directory.
    FsBrowse,
    /// Reads a file.
    FsRead,
    /// Writes a file.
    FsWrite,
    /// Looks for a tool of another server.
    ToolSearch,
}

words! {
    /// How much the tools of a `code` server answer.
    pub enum AnswerForm {
        /// the requested data, for a run its output; metrics, calls and isolation are in `_meta`
        Brief = "brief",
        /// the whole object of ContextForge's ADR-0041, as structured content and as JSON text
        Full = "full",
    }
}

settings! {
    /// The rows that say which tools are offered.
    pub(super) const OFFER_ROWS {
        /// Whether `shell_exec` is offered.
        SHELL_EXEC = Switch("code.shell_exec_enabled", true).contextforge_name("CODE_EXECUTION_SHELL_EXEC_ENABLED"),
        /// Whether `fs_browse` is offered.
        FS_BROWSE = Switch("code.fs_browse_enabled", true).contextforge_name("CODE_EXECUTION_FS_BROWSE_ENABLED"),
        /// Whether `fs_read` is offered.
        FS_READ = Switch("code.fs_read_enabled", true).contextforge_name("CODE_EXECUTION_FS_READ_ENABLED"),
        /// Whether `fs_write` is offered.
        FS_WRITE = Switch("code.fs_write_enabled", true).contextforge_name("CODE_EXECUTION_FS_WRITE_ENABLED"),
        /// Whether `tool_search` is offered.
        TOOL_SEARCH = Switch("code.tool_search_enabled", true),
    }
}

settings! {
    /// Which tools a `code` server offers, and how much they answer.
    #[derive(Eq)]
    pub struct CodeToolSettings {
        /// The tools offered, each once.
        pub offered: Vec<CodeTool> => offered,
        /// How much the tools answer.
        pub answer: AnswerForm = Choice("code.answer"),
        /// Largest file that `fs_read` answers; a larger one is refused.
        pub read_bytes_max: u64 =
            Integer("code.fs_read_max_size_bytes", "bytes", 1024 * 1024, 1024..=10 * 1024 * 1024)
            .contextforge_name("CODE_EXECUTION_FS_READ_MAX_SIZE_BYTES"),
        /// Most entries that `fs_browse` lists where the call does not say; at most `code.fs_browse_max_entries`.
        pub browse_entries_default: usize =
            Integer("code.fs_browse_default_max_entries", "entries", 200, 1..=10_000)
            .contextforge_name("CODE_EXECUTION_FS_BROWSE_DEFAULT_MAX_ENTRIES"),
        /// Most entries that a call of `fs_browse` may ask for.
        pub browse_entries_max: usize = Integer("code.fs_browse_max_entries", "entries", 1000, 1..=10_000)
            .contextforge_name("CODE_EXECUTION_FS_BROWSE_MAX_ENTRIES"),
    }
}

fn offered(reader: &mut Reader<'_>) -> Vec<CodeTool> {
    let switches = [
        (&SHELL_EXEC, CodeTool::ShellExec),
        (&FS_BROWSE, CodeTool::FsBrowse),
        (&FS_READ, CodeTool::FsRead),
        (&FS_WRITE, CodeTool::FsWrite),
        (&TOOL_SEARCH, CodeTool::ToolSearch),
    ];
    let switches = switches.into_iter();
    switches
        .filter_map(|(row, tool)| reader.read::<bool>(row).then_some(tool))
        .collect()
}

impl CodeToolSettings {
    pub(super) fn parse(reader: &mut Reader<'_>) -> Self {
        let tools = Self::read(reader);
        let (default, most) = (tools.browse_entries_default, tools.browse_entries_max);
        if default > most && !reader.was_refused(&Self::browse_entries_max) {
            let (row, number) = match reader.is_written(&Self::browse_entries_default) {
                true => (&Self::browse_entries_default, default),
                false => (&Self::browse_entries_max, most),
            };
            let reason = format!(
                "a call that does not say would get {default} entries, and may ask for {most}"
            );
            let allowed =
                "code.fs_browse_default_max_entries at most as large as code.fs_browse_max_entries";
            reader.refuse(row, number.to_string(), reason, allowed);
        }
        tools
    }
}
