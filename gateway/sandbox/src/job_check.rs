//! Validates a job before anything is created.

use crate::job::{Argument, Job, Program, Stage};
use crate::limits::{LimitError, Limits};

/// Why a job is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// A limit is outside of its range.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The source text is too long.
    #[error("source text too large: {bytes} bytes (limit {most})")]
    SourceTooLong {
        /// Its length.
        bytes: usize,
        /// The most.
        most: usize,
    },
    /// A pipeline without a stage.
    #[error("the pipeline has no stage")]
    NoStage,
    /// A pipeline with too many stages.
    #[error("too many stages in the pipeline: {stages} (limit {most})")]
    TooManyStages {
        /// How many.
        stages: usize,
        /// The most.
        most: usize,
    },
    /// Too many arguments in all stages together.
    #[error("too many arguments in the pipeline: {arguments} (limit {most})")]
    TooManyArguments {
        /// How many.
        arguments: usize,
        /// The most.
        most: usize,
    },
    /// The words of all stages together are too long.
    #[error("words of the pipeline too large: {bytes} bytes (limit {most})")]
    WordsTooLong {
        /// How long.
        bytes: usize,
        /// The most.
        most: usize,
    },
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
            Program::Python { source } | Program::TypeScript { source } => check_source(source),
            Program::Pipeline { stages } => check_stages(stages),
        }
    }
}

fn check_source(source: &str) -> Result<(), JobError> {
    if source.len() > Limits::SOURCE_BYTES_MAX {
        return Err(JobError::SourceTooLong {
            bytes: source.len(),
            most: Limits::SOURCE_BYTES_MAX,
        });
    }
    Ok(())
}

fn check_stages(stages: &[Stage]) -> Result<(), JobError> {
    if stages.is_empty() {
        return Err(JobError::NoStage);
    }
    if stages.len() > Limits::STAGES_MAX {
        return Err(JobError::TooManyStages {
            stages: stages.len(),
            most: Limits::STAGES_MAX,
        });
    }
    let arguments = stages.iter().map(|stage| stage.arguments.len()).sum();
    if arguments > Limits::ARGUMENTS_MAX {
        return Err(JobError::TooManyArguments {
            arguments,
            most: Limits::ARGUMENTS_MAX,
        });
    }
    let mut bytes = 0;
    for word in stages.iter().flat_map(words) {
        if word.contains('\0') {
            return Err(JobError::NulByte);
        }
        bytes += word.len();
    }
    if bytes > Limits::WORD_BYTES_MAX {
        return Err(JobError::WordsTooLong {
            bytes,
            most: Limits::WORD_BYTES_MAX,
        });
    }
    Ok(())
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
