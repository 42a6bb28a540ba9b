//! Validates a job before anything is created.

use crate::job::{Argument, Job, Program, Stage};
use crate::limits::{LimitError, Limits};

/// Why a job is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// A limit is outside of its range.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// More of something than any program may have.
    #[error("the program has too many {what}: {amount} (limit {most})")]
    TooMuch {
        /// Of what.
        what: &'static str,
        /// How much.
        amount: usize,
        /// The most.
        most: usize,
    },
    /// A pipeline without a stage.
    #[error("the pipeline has no stage")]
    NoStage,
    /// An argument contains a NUL byte.
    #[error("a word of the pipeline holds a NUL byte")]
    NulByte,
}

impl Job {
    /// Checks that the job is within what any run may have.
    ///
    /// # Errors
    /// The first thing that does not.
    pub fn check(&self) -> Result<(), JobError> {
        self.limits.check()?;
        match &self.program {
            Program::Python { source } | Program::TypeScript { source } => at_most(
                "bytes of source text",
                source.len(),
                Limits::SOURCE_BYTES_MAX,
            ),
            Program::Pipeline { stages } => check_stages(stages),
        }
    }
}

fn check_stages(stages: &[Stage]) -> Result<(), JobError> {
    if stages.is_empty() {
        return Err(JobError::NoStage);
    }
    at_most("stages", stages.len(), Limits::STAGES_MAX)?;
    let arguments = stages.iter().map(|stage| stage.arguments.len()).sum();
    at_most("arguments", arguments, Limits::ARGUMENTS_MAX)?;
    if stages
        .iter()
        .flat_map(words)
        .any(|word| word.contains('\0'))
    {
        return Err(JobError::NulByte);
    }
    let bytes = stages.iter().flat_map(words).map(str::len).sum();
    at_most("bytes in its words", bytes, Limits::WORD_BYTES_MAX)
}

fn at_most(what: &'static str, amount: usize, most: usize) -> Result<(), JobError> {
    if amount <= most {
        return Ok(());
    }
    Err(JobError::TooMuch { what, amount, most })
}

/// The tool's name and its arguments.
fn words(stage: &Stage) -> impl Iterator<Item = &str> {
    let arguments = stage.arguments.iter().map(|argument| match argument {
        Argument::Literal(text) | Argument::Pattern(text) => text.as_str(),
    });
    std::iter::once(stage.tool.as_str()).chain(arguments)
}

#[cfg(test)]
#[path = "job_check_tests.rs"]
mod tests;
