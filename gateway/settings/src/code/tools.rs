//! Which tools a `code` server offers, and how much the file tools answer.

use crate::reader::Reader;
use crate::setting::{Choice, ChoiceOption, Integer, Setting, SettingInfo, Switch};

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

/// How much the tools of a `code` server answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AnswerForm {
    /// What was asked for: metrics, calls and isolation of a run are in `_meta` alone.
    #[default]
    Brief,
    /// The object of ADR-0041, as structured content and as JSON text.
    Full,
}

const ANSWER: Choice<AnswerForm> = Choice {
    about: SettingInfo::new("code.answer", "How much the tools answer."),
    default: ChoiceOption {
        name: "brief",
        value: AnswerForm::Brief,
        meaning: "what was asked for, which of a run is what it printed; metrics, calls and isolation are in `_meta`",
    },
    others: &[ChoiceOption {
        name: "full",
        value: AnswerForm::Full,
        meaning: "the whole object of ADR-0041, as structured content and as JSON text",
    }],
    later: &[],
};

const SHELL_EXEC_ENABLED: Switch = Switch {
    about: SettingInfo::new(
        "code.shell_exec_enabled",
        "Whether `shell_exec` is offered.",
    )
    .seed("CODE_EXECUTION_SHELL_EXEC_ENABLED"),
    default: true,
};

const FS_BROWSE_ENABLED: Switch = Switch {
    about: SettingInfo::new("code.fs_browse_enabled", "Whether `fs_browse` is offered.")
        .seed("CODE_EXECUTION_FS_BROWSE_ENABLED"),
    default: true,
};

const FS_READ_ENABLED: Switch = Switch {
    about: SettingInfo::new("code.fs_read_enabled", "Whether `fs_read` is offered.")
        .seed("CODE_EXECUTION_FS_READ_ENABLED"),
    default: true,
};

const FS_WRITE_ENABLED: Switch = Switch {
    about: SettingInfo::new("code.fs_write_enabled", "Whether `fs_write` is offered.")
        .seed("CODE_EXECUTION_FS_WRITE_ENABLED"),
    default: true,
};

const TOOL_SEARCH_ENABLED: Switch = Switch {
    about: SettingInfo::new(
        "code.tool_search_enabled",
        "Whether `tool_search` is offered.",
    ),
    default: true,
};

const FS_READ_MAX_SIZE_BYTES: Integer = Integer {
    about: SettingInfo::new(
        "code.fs_read_max_size_bytes",
        "Largest file that `fs_read` answers; a larger one is refused.",
    )
    .seed("CODE_EXECUTION_FS_READ_MAX_SIZE_BYTES"),
    unit: "bytes",
    default: 1024 * 1024,
    least: 1024,
    most: 10 * 1024 * 1024,
};

const FS_BROWSE_DEFAULT_MAX_ENTRIES: Integer = Integer {
    about: SettingInfo::new(
        "code.fs_browse_default_max_entries",
        "Most entries that `fs_browse` lists where the call does not say; at most `code.fs_browse_max_entries`.",
    )
    .seed("CODE_EXECUTION_FS_BROWSE_DEFAULT_MAX_ENTRIES"),
    unit: "entries",
    default: 200,
    least: 1,
    most: 10_000,
};

const FS_BROWSE_MAX_ENTRIES: Integer = Integer {
    about: SettingInfo::new(
        "code.fs_browse_max_entries",
        "Most entries that a call of `fs_browse` may ask for.",
    )
    .seed("CODE_EXECUTION_FS_BROWSE_MAX_ENTRIES"),
    unit: "entries",
    default: 1000,
    least: 1,
    most: 10_000,
};

/// The rows of `[code]` about tools.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting::Switch(&SHELL_EXEC_ENABLED),
    Setting::Switch(&FS_BROWSE_ENABLED),
    Setting::Switch(&FS_READ_ENABLED),
    Setting::Switch(&FS_WRITE_ENABLED),
    Setting::Switch(&TOOL_SEARCH_ENABLED),
    Setting::Choice(&ANSWER),
    Setting::Integer(&FS_READ_MAX_SIZE_BYTES),
    Setting::Integer(&FS_BROWSE_DEFAULT_MAX_ENTRIES),
    Setting::Integer(&FS_BROWSE_MAX_ENTRIES),
];

/// Which tools a `code` server offers, and how much they answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeToolSettings {
    /// The tools offered, each once.
    pub offered: Vec<CodeTool>,
    /// How much they answer.
    pub answer: AnswerForm,
    /// Largest file that `fs_read` answers.
    pub read_bytes_max: u64,
    /// Most entries of `fs_browse` where the call does not say; at most `browse_entries_max`.
    pub browse_entries_default: usize,
    /// Most entries that a call of `fs_browse` may ask for.
    pub browse_entries_max: usize,
}

impl CodeToolSettings {
    /// Whether this tool is offered.
    #[must_use]
    pub fn offers(&self, tool: CodeTool) -> bool {
        self.offered.contains(&tool)
    }
}

pub(super) fn parse(reader: &mut Reader<'_>) -> CodeToolSettings {
    let switches = [
        (&SHELL_EXEC_ENABLED, CodeTool::ShellExec),
        (&FS_BROWSE_ENABLED, CodeTool::FsBrowse),
        (&FS_READ_ENABLED, CodeTool::FsRead),
        (&FS_WRITE_ENABLED, CodeTool::FsWrite),
        (&TOOL_SEARCH_ENABLED, CodeTool::ToolSearch),
    ];
    let offered: Vec<CodeTool> = switches
        .into_iter()
        .filter_map(|(switch, tool)| reader.switch(switch).then_some(tool))
        .collect();
    let answer = reader.choice(&ANSWER);
    let read_bytes_max = reader.integer(&FS_READ_MAX_SIZE_BYTES);
    let default = reader.integer(&FS_BROWSE_DEFAULT_MAX_ENTRIES);
    let most = reader.integer(&FS_BROWSE_MAX_ENTRIES);
    if default > most && !reader.was_refused(&FS_BROWSE_MAX_ENTRIES.about) {
        let (about, number) = if reader.is_written(&FS_BROWSE_DEFAULT_MAX_ENTRIES.about) {
            (&FS_BROWSE_DEFAULT_MAX_ENTRIES.about, default)
        } else {
            (&FS_BROWSE_MAX_ENTRIES.about, most)
        };
        reader.refuse(
            about,
            number.to_string(),
            format!("a call that does not say would get {default} entries, and may ask for {most}"),
            "code.fs_browse_default_max_entries at most as large as code.fs_browse_max_entries"
                .to_owned(),
        );
    }
    let entries = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    CodeToolSettings {
        offered,
        answer,
        read_bytes_max,
        browse_entries_default: entries(default),
        browse_entries_max: entries(most),
    }
}
