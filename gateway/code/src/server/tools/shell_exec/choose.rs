//! What code is run as: which language, which runtime, which program; and what is not run at all.

use mooring_sandbox::{Program, Runtime, Sandbox, Stage};

use crate::patterns::PatternMatch;
use crate::server::code_server::CodeServer;
use crate::server::failure::Failure;
use crate::shell::{self, ShellError};
use mooring_settings::{CodeRuntime, Language};

/// What is to be run.
#[derive(Debug)]
pub(super) struct Choice {
    /// Whose session.
    pub(super) language: Language,
    pub(super) runtime: CodeRuntime,
    pub(super) program: Program,
    /// Patterns in the code that only warn.
    pub(super) warnings: Vec<PatternMatch>,
}

/// Why a run is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunRefusal {
    /// A pattern of the server's list is in the code.
    #[error("{0}")]
    Blocked(#[source] PatternMatch, CodeRuntime),
    /// The policy does not allow what would run it.
    #[error("code for {runtime} does not run at this server: its policy allows {}", names(.allowed))]
    NotAllowed {
        /// What would run it.
        runtime: CodeRuntime,
        /// What may run.
        allowed: Vec<CodeRuntime>,
    },
    /// The line is none of the one-line shell's.
    #[error(transparent)]
    Line(#[from] ShellError),
    /// What would run it is not installed.
    #[error(
        "{name} is not installed on this gateway, which only its operator can change: {remedy}"
    )]
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
    pub(super) const fn blocked_runtime(&self) -> Option<CodeRuntime> {
        match self {
            Self::Blocked(_, runtime) | Self::NotAllowed { runtime, .. } => Some(*runtime),
            Self::Line(_) => Some(CodeRuntime::Shell),
            Self::Missing { .. } | Self::Unavailable(_) => None,
        }
    }

    /// Whether the policy kept it from running. A line that the one-line shell cannot read is only a mistake.
    pub(super) const fn is_policy_block(&self) -> bool {
        match self {
            Self::Blocked(..) | Self::NotAllowed { .. } => true,
            Self::Line(error) => matches!(error, ShellError::DeniedOption { .. }),
            Self::Missing { .. } | Self::Unavailable(_) => false,
        }
    }
}

fn names(runtimes: &[CodeRuntime]) -> String {
    let names: Vec<&str> = runtimes.iter().map(|runtime| runtime.as_str()).collect();
    names.join(", ")
}

/// Picks language and runtime; refuses code with a forbidden pattern, or whose runtime is missing or not allowed.
pub(super) fn choose(
    server: &CodeServer,
    code: &str,
    language: Option<Language>,
) -> Result<Choice, RunRefusal> {
    let sandbox = server.services.sandbox()?;
    if language.is_none() && shell::is_line(code) {
        let stages = shell::parse(code)?;
        require_allowed(server, CodeRuntime::Shell)?;
        find_tools(sandbox, &stages)?;
        return Ok(Choice {
            language: server.language_or_default(None),
            runtime: CodeRuntime::Shell,
            program: Program::Pipeline { stages },
            warnings: Vec::new(),
        });
    }
    if language.is_none() {
        shell::refuse_shell_code(code)?;
    }
    let language = server.language_or_default(language);
    let runtime = CodeRuntime::of(language);
    require_allowed(server, runtime)?;
    find_runtime(sandbox, language)?;
    let warnings = (server.patterns())
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
        warnings,
    })
}

fn require_allowed(server: &CodeServer, runtime: CodeRuntime) -> Result<(), RunRefusal> {
    let allowed = &server.policy.runtimes;
    match allowed.contains(&runtime) {
        true => Ok(()),
        false => Err(RunRefusal::NotAllowed {
            runtime,
            allowed: allowed.clone(),
        }),
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
