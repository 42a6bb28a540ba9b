//! `[code]`: how servers of kind `code` run what agents write. Names and defaults are those of ContextForge's
//! `CODE_EXECUTION_*` variables.

mod allowed_runtimes;
mod calls;
mod language;
mod mounts;
mod network;
mod patterns;
mod policy;
mod records;
mod runtime;
mod skills;
mod tokens;
mod tools;
mod trees;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use mooring_run_policy::tier::Tier;

use super::paths::{
    ABSOLUTE_DIRECTORY, ABSOLUTE_FILE, PATH_BYTES_MAX, absolute, absolute_file, state_home,
};
use super::reader::{Reader, Reason, text};
use super::rows::settings;
use super::setting::{Setting, Word, Words};
use super::store::StoreSettings;

pub use allowed_runtimes::CodeRuntime;
pub use calls::{CallPolicy, CallVerdict};
pub use language::{Language, StubFormat};
pub use mounts::MountRules;
pub use network::NetworkPolicy;
pub use patterns::{DangerousPatterns, TextPattern};
pub use policy::{CodePolicy, CodeSessionOwner};
pub use records::RecordSettings;
pub use runtime::{OnDenoAbsent, RuntimeSettings};
pub use skills::{SkillScope, SkillSettings};
pub use tokens::{PersonalDataType, TokenizationSettings};
pub use tools::{AnswerForm, CodeTool, CodeToolSettings};

pub(crate) use mounts::{TAG_BYTES_MAX, TAGS_MAX, parse_tag};

use policy::PolicyDraft;
use tokens::TokensDraft;
use trees::NamedTrees;

settings! {
    /// How servers of kind `code` run what agents write.
    pub struct CodeSettings {
        /// Whether servers of kind `code` are served; otherwise they are skipped, with a log line. If no server is
        /// configured at all, there is one, named `sandbox`.
        pub(crate) is_enabled: bool = Switch("code.enabled", true).contextforge_name("CODE_EXECUTION_ENABLED"),
        /// The directory of the sessions' files. All gateways of a fleet share it: one volume, mounted at each. It is
        /// created if it does not exist.
        pub base_dir: PathBuf = Text("code.base_dir", PATH_BYTES_MAX, ABSOLUTE_DIRECTORY, None)
            .contextforge_name("CODE_EXECUTION_BASE_DIR")
            .unset("`$XDG_STATE_HOME/mooring/code`, or `~/.local/state/mooring/code`")
            => |reader, row| match reader.text(row, parse_base_dir) {
                None if !reader.was_refused(row) => {
                    state_home(reader.environment).map(|home| home.join("mooring/code")).unwrap_or_default()
                }
                written => written.unwrap_or_default(),
            },
        /// The file with the key that encrypts the sessions' token maps, the same at every gateway: 32 bytes, as 64
        /// hexadecimal digits or in base64. Only the gateway's user may be able to read it.
        pub tokens_key_file: Option<PathBuf> = Text("code.tokens_key_file", PATH_BYTES_MAX, ABSOLUTE_FILE, None)
            .unset("maps are not encrypted; only the gateway's user can read them") => text(absolute_file),
        /// Which isolation layers a run needs.
        pub isolation: Tier = Choice("code.isolation"),
        /// Maximum concurrent runs in this process; further ones are queued.
        pub runs_at_once: NonZeroUsize = Integer("code.runs_at_once", "runs", 16, 1..=1024),
        /// Sandbox helpers that this process starts in advance. Each waits for one run, which then starts sooner, and is
        /// replaced once the run has started; a run that finds none starts its own. 0 turns it off, as does
        /// `code.isolation = "degraded"`.
        pub warm_helpers: usize = Integer("code.warm_helpers", "helpers", 2, 0..=64),
        /// Where the runtimes are found.
        pub runtimes: RuntimeSettings => RuntimeSettings::read,
        /// Which tools are offered, and how much they answer.
        pub tools: CodeToolSettings => CodeToolSettings::parse,
        /// The patterns of code that is refused before it runs.
        pub patterns: DangerousPatterns => DangerousPatterns::read,
        /// What is recorded of runs.
        pub records: RecordSettings => RecordSettings::read,
    }
}

impl Words for Tier {
    const DEFAULT: Word<Self> = ("strict", Self::Strict, "every layer, or nothing runs");
    const OTHERS: &'static [Word<Self>] = &[(
        "degraded",
        Self::Degraded,
        "for machines without user namespaces or mounts: file access rules, the system call filter and limits per process",
    )];
}

/// The rows of this section, by what they are about.
pub(super) const ROWS: &[&[Setting]] = &[
    CodeSettings::ROWS,
    RuntimeSettings::ROWS,
    tools::OFFER_ROWS,
    CodeToolSettings::ROWS,
    DangerousPatterns::ROWS,
    PolicyDraft::ROWS,
    CallPolicy::ROWS,
    NamedTrees::ROWS,
    TokensDraft::ROWS,
    RecordSettings::ROWS,
];

/// The rows that a server of kind `code` has for itself.
pub(super) const SERVER_ROWS: [&[Setting]; 7] = [
    CodeServerSettings::ROWS,
    PolicyDraft::OWN_ROWS,
    CallPolicy::OWN_ROWS,
    NamedTrees::OWN_ROWS,
    MountRules::ROWS,
    TokensDraft::OWN_ROWS,
    SkillSettings::ROWS,
];

settings! {
    /// One server of kind `code`.
    pub struct CodeServerSettings(section: &CodeSection) {
        /// The policy for its runs.
        pub policy: CodePolicy => |reader| {
            let access = NamedTrees::read(reader, Some(&section.trees)).access(reader, section.settings.isolation);
            let policy = PolicyDraft::read(reader, Some(&section.policy));
            policy.policy(CallPolicy::read(reader, Some(&section.calls)), access)
        },
        /// The form in which `/tools` describes the tools of other servers.
        pub stub_format: StubFormat = Choice("servers.stub_language").unset("the language of the server's runtime")
            => |reader, row| reader.if_written(row).unwrap_or(StubFormat::of(policy.language)),
        /// Which tools of other servers are mounted.
        pub mounts: MountRules => MountRules::read,
        /// Which personal data is replaced by tokens; none if tokenization is off.
        pub tokenization: Option<TokenizationSettings>
            => |reader| TokensDraft::of_server(reader, &section.tokens).settings(),
        /// The scope of its skills.
        pub skills: SkillSettings => SkillSettings::read,
    }
}

/// `[code]`: what all servers of this kind share, and what each of them inherits.
#[derive(Debug)]
pub(super) struct CodeSection {
    pub(super) settings: CodeSettings,
    policy: PolicyDraft,
    calls: CallPolicy,
    trees: NamedTrees,
    tokens: TokensDraft,
}

impl CodeSection {
    pub(super) fn read(reader: &mut Reader<'_>, store: &StoreSettings) -> Self {
        Self {
            settings: CodeSettings::read(reader),
            policy: PolicyDraft::read_standard(reader, store),
            calls: CallPolicy::read(reader, None),
            trees: NamedTrees::read(reader, None),
            tokens: TokensDraft::read(reader, None),
        }
    }

    pub(super) const fn is_enabled(&self) -> bool {
        self.settings.is_enabled
    }

    /// The settings, which servers of kind `code` need.
    pub(super) fn for_servers(self, reader: &mut Reader<'_>) -> CodeSettings {
        let has_directory = !self.settings.base_dir.as_os_str().is_empty();
        if !has_directory && !reader.was_refused(&CodeSettings::base_dir) {
            reader.refuse(
                &CodeSettings::base_dir,
                "",
                "a server of kind code needs a directory, and neither XDG_STATE_HOME nor HOME is an absolute path",
                ABSOLUTE_DIRECTORY,
            );
        }
        self.settings
    }
}

fn parse_base_dir(text: &str) -> Result<PathBuf, Reason> {
    let path = absolute(text)?;
    if path.parent().is_none() {
        return Err("it is the root directory".to_owned());
    }
    Ok(path)
}
