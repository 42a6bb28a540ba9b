//! `[code]`: how servers of kind `code` run what agents write. Names and defaults are those of ContextForge's
//! `CODE_EXECUTION_*` variables.

mod calls;
mod directory;
mod globs;
mod language;
mod limits;
mod mounts;
mod network;
mod pair;
mod patterns;
mod policy;
mod records;
mod runtime;
mod skills;
mod stubs;
mod tokens;
mod tools;
mod trees;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use mooring_sandbox::Tier;

use super::reader::Reader;
use super::setting::{Choice, ChoiceOption, Integer, Setting, SettingInfo, Switch};
use super::source::Environment;

pub use calls::{CallPolicy, CallVerdict};
pub use globs::Globs;
pub use language::Language;
pub use mounts::MountRules;
pub use network::NetworkPolicy;
pub use patterns::DangerousPatterns;
pub use policy::CodePolicy;
pub use runtime::{OnDenoAbsent, RuntimeSettings};
pub use skills::{SkillScope, SkillSettings};
pub use stubs::StubFormat;
pub use tokens::{PersonalDataType, TokenizationSettings};
pub use tools::{AnswerForm, CodeTool, CodeToolSettings};

pub(crate) use mounts::parse_tag;

use policy::PolicyDraft;
use tokens::TokensDraft;

const ENABLED: Switch = Switch {
    about: SettingInfo::new(
        "code.enabled",
        "Whether there may be servers of kind `code`. Where no server is configured at all, there is one, named \
         `sandbox`.",
    )
    .seed("CODE_EXECUTION_ENABLED"),
    default: true,
};

const ISOLATION: Choice<Tier> = Choice {
    about: SettingInfo::new("code.isolation", "How strong the walls around a run are."),
    default: ChoiceOption {
        name: "strict",
        value: Tier::Strict,
        meaning: "every layer, or nothing runs",
    },
    others: &[ChoiceOption {
        name: "degraded",
        value: Tier::Degraded,
        meaning: "for machines without user namespaces or mounts: file access rules, the system call filter and \
                  limits per process",
    }],
    later: &[],
};

const RUNS_AT_ONCE: Integer = Integer {
    about: SettingInfo::new(
        "code.runs_at_once",
        "Most runs at the same time in this process; more wait their turn.",
    ),
    unit: "runs",
    default: 16,
    least: 1,
    most: 1024,
};

/// The rows of this section, by what they are about.
pub(super) const SETTINGS: &[&[Setting]] = &[
    &[
        Setting::Switch(&ENABLED),
        Setting::Text(&directory::BASE_DIR),
        Setting::Choice(&ISOLATION),
        Setting::Integer(&RUNS_AT_ONCE),
    ],
    runtime::SETTINGS,
    tools::SETTINGS,
    patterns::SETTINGS,
    limits::INHERITED_SETTINGS,
    calls::INHERITED_SETTINGS,
    network::INHERITED_SETTINGS,
    trees::INHERITED_SETTINGS,
    tokens::INHERITED_SETTINGS,
    records::SETTINGS,
];

/// The rows that a server of kind `code` has for itself.
pub(super) const SERVER_SETTINGS: &[&[Setting]; 8] = &[
    &[
        Setting::Choice(&stubs::STUB_LANGUAGE),
        Setting::Choice(&runtime::OWN),
    ],
    limits::OWN_SETTINGS,
    calls::OWN_SETTINGS,
    network::OWN_SETTINGS,
    trees::OWN_SETTINGS,
    mounts::SETTINGS,
    tokens::OWN_SETTINGS,
    skills::SETTINGS,
];

/// How servers of kind `code` run what agents write.
#[derive(Debug, Clone)]
pub struct CodeSettings {
    /// The directory under which sessions keep their files; may not exist yet.
    pub base_dir: PathBuf,
    /// How strong the walls around a run are.
    pub isolation: Tier,
    /// Most runs at the same time in this process.
    pub runs_at_once: NonZeroUsize,
    /// Where the runtimes are found.
    pub runtimes: RuntimeSettings,
    /// Which tools are offered, and how much they answer.
    pub tools: CodeToolSettings,
    /// The patterns of code that is refused before it runs.
    pub patterns: DangerousPatterns,
    /// Whether runs may be replayed.
    pub replay_enabled: bool,
    /// Most characters of a run's output, and of its error output, that its record keeps.
    pub persisted_output_chars_max: usize,
    /// Of how many runs of one server the records are kept.
    pub runs_kept_max: usize,
    /// How many days the record of a run is kept.
    pub runs_kept_days: u32,
    /// Most bytes that the records of one server's runs take.
    pub runs_kept_bytes: u64,
    /// The same of one user of a server.
    pub user_runs_kept_bytes: u64,
    /// Free space of the volume below which records have no bodies.
    pub records_free_bytes_min: u64,
    /// How long what other servers said of their tools is believed.
    pub catalog_ttl: Duration,
    /// The key that maps of tokens are encrypted with; none where they are not.
    pub tokens_key_file: Option<PathBuf>,
}

/// One server of kind `code`.
#[derive(Debug, Clone)]
pub struct CodeServerSettings {
    /// What `/tools` describes the tools of other servers in.
    pub stub_format: StubFormat,
    /// What it allows its runs.
    pub policy: CodePolicy,
    /// Which tools of other servers are mounted.
    pub mounts: MountRules,
    /// Which personal data is replaced by tokens; none where nothing is.
    pub tokenization: Option<TokenizationSettings>,
    /// Whose skills it has.
    pub skills: SkillSettings,
}

/// The defaults that servers inherit from `[code]`.
#[derive(Debug)]
pub(super) struct CodeDefaults {
    policy: PolicyDraft,
    tokens: TokensDraft,
}

/// `[code]`, before it is known whether a server of this kind is there.
#[derive(Debug)]
pub(super) struct CodeSection {
    pub(super) is_enabled: bool,
    pub(super) standard: CodeDefaults,
    settings: CodeSettings,
}

pub(super) fn parse(reader: &mut Reader<'_>, environment: &Environment) -> CodeSection {
    let is_enabled = reader.switch(&ENABLED);
    let base_dir = directory::parse(reader, environment);
    let isolation = reader.choice(&ISOLATION);
    let runs_at_once = usize::try_from(reader.integer(&RUNS_AT_ONCE))
        .ok()
        .and_then(NonZeroUsize::new)
        .unwrap_or(NonZeroUsize::MIN);
    let runtimes = runtime::parse(reader, environment);
    let tools = tools::parse(reader);
    let patterns = patterns::parse(reader);
    let standard = CodeDefaults {
        policy: PolicyDraft::parse_defaults(reader),
        tokens: TokensDraft::parse_defaults(reader),
    };
    let tokens_key_file = tokens::parse_key_file(reader);
    let kept = records::parse(reader);
    let settings = CodeSettings {
        base_dir: base_dir.unwrap_or_default(),
        isolation,
        runs_at_once,
        runtimes,
        tools,
        patterns,
        replay_enabled: kept.replay_enabled,
        persisted_output_chars_max: kept.persisted_output_chars_max,
        runs_kept_max: kept.runs_kept_max,
        runs_kept_days: kept.runs_kept_days,
        runs_kept_bytes: kept.runs_kept_bytes,
        user_runs_kept_bytes: kept.user_runs_kept_bytes,
        records_free_bytes_min: kept.records_free_bytes_min,
        catalog_ttl: kept.catalog_ttl,
        tokens_key_file,
    };
    CodeSection {
        is_enabled,
        standard,
        settings,
    }
}

impl CodeServerSettings {
    /// What a server says of itself, and the standard where it says nothing.
    pub(super) fn parse(reader: &mut Reader<'_>, standard: &CodeDefaults) -> Self {
        let policy = PolicyDraft::parse_overrides(reader, &standard.policy).policy();
        Self {
            stub_format: stubs::parse(reader, policy.language),
            policy,
            mounts: mounts::parse(reader),
            tokenization: TokensDraft::parse_overrides(reader, &standard.tokens).settings(),
            skills: skills::parse(reader),
        }
    }

    /// A server that says nothing of itself.
    pub(super) fn from_defaults(standard: &CodeDefaults) -> Self {
        let policy = standard.policy.policy();
        Self {
            stub_format: StubFormat::of(policy.language),
            policy,
            mounts: MountRules::default(),
            tokenization: standard.tokens.settings(),
            skills: SkillSettings::default(),
        }
    }
}

impl CodeSection {
    /// The settings for this server, the first of kind `code`.
    pub(super) fn for_server(self, reader: &mut Reader<'_>, server: &str) -> CodeSettings {
        if !self.is_enabled && !reader.was_refused(&ENABLED.about) {
            reader.refuse(
                &ENABLED.about,
                "false".to_owned(),
                format!("the server {server:?} is of kind code"),
                "true, or no server of kind code".to_owned(),
            );
        }
        if self.settings.base_dir.as_os_str().is_empty() {
            directory::refuse_missing(reader);
        }
        self.settings
    }
}
