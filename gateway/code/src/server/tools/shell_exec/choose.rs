//! What code is run as: which language, which runtime, which program; and what is not run at all.

use mooring_sandbox::{Program, Runtime, Sandbox, Stage};

use super::super::super::CodeServer;
use super::super::super::failure::Failure;
use crate::patterns::PatternMatch;
use crate::shell::{self, ShellError};
use mooring_settings::{Language, OnDenoAbsent};

/// What runs code, as answers and metrics name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub(super) enum RuntimeName {
    Python,
    Deno,
    Shell,
}

impl RuntimeName {
    const fn of(language: Language) -> Self {
        match language {
            Language::Python => Self::Python,
            Language::TypeScript => Self::Deno,
        }
    }
}

/// What is to be run.
#[derive(Debug)]
pub(super) struct Choice {
    /// Whose session.
    pub(super) language: Language,
    pub(super) runtime: RuntimeName,
    pub(super) program: Program,
}

/// Why a run is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunRefusal {
    /// A pattern of the server's list is in the code.
    #[error("{0}")]
    Blocked(#[source] PatternMatch, RuntimeName),
    /// The line is none of the one-line shell's.
    #[error(transparent)]
    Line(#[from] ShellError),
    /// What would run it is not installed.
    #[error("{name} is not installed on this gateway: {remedy}")]
    Missing {
        /// What is missing.
        name: &'static str,
        /// How to get it.
        remedy: String,
    },
    /// The sandbox is not available.
    #[error(transparent)]
    Unavailable(#[from] Failure),
}

impl RunRefusal {
    /// The runtime that was kept from running, where the code was looked at and refused.
    pub(super) const fn blocked_runtime(&self) -> Option<RuntimeName> {
        match self {
            Self::Blocked(_, runtime) => Some(*runtime),
            Self::Line(_) => Some(RuntimeName::Shell),
            Self::Missing { .. } | Self::Unavailable(_) => None,
        }
    }
}

/// Picks language and runtime; refuses code with a forbidden pattern, or whose runtime is missing.
pub(super) fn choose(
    server: &CodeServer,
    code: &str,
    language: Option<Language>,
) -> Result<Choice, RunRefusal> {
    let sandbox = server.services.sandbox()?;
    if language.is_none() && shell::is_line(code) {
        let stages = shell::parse(code)?;
        find_tools(sandbox, &stages)?;
        return Ok(Choice {
            language: server.policy.language,
            runtime: RuntimeName::Shell,
            program: Program::Pipeline { stages },
        });
    }
    if language.is_none() {
        shell::refuse_shell_code(code)?;
    }
    let language = language.unwrap_or_else(|| default_language(server, sandbox));
    find_runtime(sandbox, language)?;
    let runtime = RuntimeName::of(language);
    server
        .patterns()
        .check(language, code)
        .map_err(|found| RunRefusal::Blocked(found, runtime))?;
    let source = code.to_owned();
    Ok(Choice {
        language,
        runtime,
        program: match language {
            Language::Python => Program::Python { source },
            Language::TypeScript => Program::TypeScript { source },
        },
    })
}

/// The language of code that names none.
fn default_language(server: &CodeServer, sandbox: &Sandbox) -> Language {
    let is_deno_absent = sandbox.runtimes().deno.path().is_none();
    match (server.policy.language, server.services.on_deno_absent) {
        (Language::TypeScript, OnDenoAbsent::RunPython) if is_deno_absent => Language::Python,
        (language, _) => language,
    }
}

fn find_runtime(sandbox: &Sandbox, language: Language) -> Result<(), RunRefusal> {
    let runtimes = sandbox.runtimes();
    match language {
        Language::Python => find("python3", &runtimes.python),
        Language::TypeScript => find("deno", &runtimes.deno),
    }
}

fn find_tools(sandbox: &Sandbox, stages: &[Stage]) -> Result<(), RunRefusal> {
    let tools = &sandbox.runtimes().tools;
    stages.iter().try_for_each(|stage| {
        match tools.iter().find(|(name, _)| *name == stage.tool) {
            Some((name, tool)) => find(name, tool),
            // The sandbox knows every command that the shell does, and would name it too.
            None => Ok(()),
        }
    })
}

fn find(name: &'static str, runtime: &Runtime) -> Result<(), RunRefusal> {
    match runtime {
        Runtime::Present { .. } => Ok(()),
        Runtime::Missing { remedy } => Err(RunRefusal::Missing {
            name,
            remedy: remedy.clone(),
        }),
    }
}
