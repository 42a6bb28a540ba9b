//! `[code]`: how servers of kind `code` run what agents write. Names and defaults are those of ContextForge's
//! `CODE_EXECUTION_*` variables. What this version does not enforce stands in [`later`].

mod directory;
mod later;
mod limits;
mod patterns;
mod policy;
mod runtime;
mod tools;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use mooring_sandbox::Tier;

use super::knob::{About, Choice, Integer, Knob, Named, Switch};
use super::reader::Reader;
use super::servers::{ServerKind, ServerSettings};
use super::source::Environment;
use crate::code::place::Language;

pub use patterns::DangerousPatterns;
pub use policy::CodePolicy;
pub(super) use policy::PolicyDraft;
pub use runtime::{OnDenoAbsent, RuntimeSettings};
pub use tools::{CodeTool, CodeToolSettings};

const ENABLED: Switch = Switch {
    about: About::new(
        "code.enabled",
        "Whether there may be servers of kind `code`. Where no server is configured at all, there is one, named \
         `sandbox`.",
    )
    .seed("CODE_EXECUTION_ENABLED"),
    default: true,
};

const ISOLATION: Choice<Tier> = Choice {
    about: About::new("code.isolation", "How strong the walls around a run are."),
    default: Named {
        name: "strict",
        value: Tier::Strict,
        meaning: "every layer, or nothing runs",
    },
    others: &[Named {
        name: "degraded",
        value: Tier::Degraded,
        meaning: "for machines without user namespaces or mounts: file access rules, the system call filter and \
                  limits per process",
    }],
    later: &[],
};

const RUNS_AT_ONCE: Integer = Integer {
    about: About::new(
        "code.runs_at_once",
        "Most runs at the same time in this process; more wait their turn.",
    ),
    unit: "runs",
    default: 16,
    least: 1,
    most: 1024,
};

/// The rows of this section, by what they are about.
pub(super) const KNOBS: &[&[Knob]] = &[
    &[
        Knob::Switch(&ENABLED),
        Knob::Text(&directory::BASE_DIR),
        Knob::Choice(&ISOLATION),
        Knob::Integer(&RUNS_AT_ONCE),
    ],
    runtime::KNOBS,
    tools::KNOBS,
    patterns::KNOBS,
    limits::STANDARD_KNOBS,
    later::STANDARD_KNOBS,
];

/// The rows that a server of kind `code` has for itself.
pub(super) const SERVER_KNOBS: &[&[Knob]; 3] = &[
    &[
        Knob::Choice(&runtime::STUB_LANGUAGE),
        Knob::Choice(&runtime::OWN),
    ],
    limits::OWN_KNOBS,
    later::OWN_KNOBS,
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
}

/// One server of kind `code`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeServerSettings {
    /// In which language `/tools` describes the server's tools.
    pub stub_language: Language,
    /// What it allows its runs.
    pub policy: CodePolicy,
}

/// `[code]`, before it is known whether a server of this kind is there.
#[derive(Debug)]
pub(super) struct CodeSection {
    pub(super) is_enabled: bool,
    pub(super) standard: PolicyDraft,
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
    let standard = PolicyDraft::standard(reader);
    let settings = CodeSettings {
        base_dir: base_dir.unwrap_or_default(),
        isolation,
        runs_at_once,
        runtimes,
        tools,
        patterns,
    };
    CodeSection {
        is_enabled,
        standard,
        settings,
    }
}

impl CodeServerSettings {
    /// What a server says of itself, and the standard where it says nothing.
    pub(super) fn parse(reader: &mut Reader<'_>, standard: &PolicyDraft) -> Self {
        let policy = PolicyDraft::own(reader, standard).policy();
        Self {
            stub_language: reader.choice_or(&runtime::STUB_LANGUAGE, policy.language),
            policy,
        }
    }

    /// A server that says nothing of itself.
    pub(super) fn standard(standard: &PolicyDraft) -> Self {
        let policy = standard.policy();
        Self {
            stub_language: policy.language,
            policy,
        }
    }
}

impl CodeSection {
    /// The settings, if a server needs them; none where no server is of kind `code`.
    pub(super) fn for_servers(
        self,
        reader: &mut Reader<'_>,
        servers: &[ServerSettings],
    ) -> Option<CodeSettings> {
        let server = servers
            .iter()
            .find(|server| matches!(server.kind, ServerKind::Code(_)))?;
        if !self.is_enabled && !reader.was_refused(&ENABLED.about) {
            reader.refuse(
                &ENABLED.about,
                "false".to_owned(),
                format!("the server {:?} is of kind code", server.id.as_str()),
                "true, or no server of kind code".to_owned(),
            );
        }
        if self.settings.base_dir.as_os_str().is_empty() {
            directory::refuse_missing(reader);
        }
        Some(self.settings)
    }
}
