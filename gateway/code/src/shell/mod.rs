//! The one-line shell: tools of a fixed list, their arguments, and pipes between them.
//!
//! There is no shell behind it. A line is parsed into stages that the sandbox starts concurrently, so syntax that this
//! parser does not know cannot have an effect: it refuses everything that another shell would read as more than words,
//! quotes and pipes, and names it with its position. The parser is not an isolation layer: the tools run inside the
//! sandbox like any other code.
//!
//! Invariant: an accepted line has the same words in a POSIX shell.

mod tools;
mod words;

pub(crate) use mooring_sandbox::TOOLS;
use mooring_sandbox::{Argument, Limits, Stage};

use self::words::{Token, tokens};

/// Longest line, in bytes.
pub(crate) const LINE_BYTES_MAX: usize = Limits::WORD_BYTES_MAX;
/// Most tools in one pipe.
pub(crate) const STAGES_MAX: usize = Limits::STAGES_MAX;
/// Most words in one line.
pub(crate) const WORDS_MAX: usize = Limits::ARGUMENTS_MAX;

/// Most characters of a line that an error repeats as its command.
const COMMAND_CHARS_MAX: usize = 64;
/// The exit code of a shell for a command that may not be run.
const EXIT_DENIED: i32 = 126;
/// The exit code of a shell for a line that it cannot parse.
const EXIT_UNREADABLE: i32 = 2;

/// Why a line is not run. Places are counted in characters, the first is 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ShellError {
    #[error("the line is longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
    #[error("the line has more than {STAGES_MAX} commands")]
    TooManyStages,
    #[error("the line has more than {WORDS_MAX} words")]
    TooManyWords,
    #[error(
        "{what} ({found:?} at character {at}) is not supported: this shell knows words, quotes, file name patterns \
         and pipes; quote the character to mean it literally, or use a language for more"
    )]
    Unsupported {
        what: &'static str,
        found: &'static str,
        at: usize,
    },
    #[error("the control character {found:?} at character {at} is not allowed")]
    Control { found: char, at: usize },
    #[error("the quote {quote} at character {at} is not closed")]
    Unclosed { quote: char, at: usize },
    #[error("the backslash at character {at} ends the line")]
    TrailingBackslash { at: usize },
    /// One word in which some pattern characters are quoted and others are not.
    #[error(
        "the word at character {at} mixes quoted and unquoted pattern characters: quote all of them or none"
    )]
    MixedPattern { at: usize },
    /// Nothing before, between or after pipes.
    #[error("a command is missing at character {at}")]
    Missing { at: usize },
    /// Code that names no language and begins as lines for a shell do.
    #[error(
        "this looks like a command line ({command:?}), and there is no shell: without a language, one line of {} with pipes \
         is run, and everything else is code; write it as code, or give its language if it is code",
        TOOLS.join(", ")
    )]
    NoShell { command: String },
    #[error("{command:?} is not a command of this shell; it has {}", TOOLS.join(", "))]
    Denied { command: String },
    #[error("{tool} {option} runs other programs, which this shell does not do")]
    DeniedOption { tool: &'static str, option: String },
}

impl ShellError {
    /// The exit code that a shell answers with.
    pub(crate) const fn exit_code(&self) -> i32 {
        match self {
            Self::NoShell { .. } | Self::Denied { .. } | Self::DeniedOption { .. } => EXIT_DENIED,
            _ => EXIT_UNREADABLE,
        }
    }
}

/// Whether code that names no language is a line for this shell: one line that begins with one of its commands and
/// does not go on as an assignment does (`head = 5` is Python).
pub(crate) fn is_line(code: &str) -> bool {
    let line = code.trim();
    !line.contains(['\n', '\r'])
        && command(line).is_some_and(|(command, _)| TOOLS.contains(&command))
}

/// Refuses code whose first line is one for a shell: no language would make anything of it but a puzzling error.
pub(crate) fn refuse_shell_code(code: &str) -> Result<(), ShellError> {
    let first = code.trim_start().lines().next().unwrap_or("");
    let is_for_shell = first.starts_with("#!/") && first.ends_with("sh");
    let is_known =
        |command: &&str| TOOLS.contains(command) || tools::COMMON_COMMANDS.contains(command);
    let of_shell = command(first).filter(|(command, next)| {
        // A call, an annotation and a list of names begin so.
        is_known(command) && !next.starts_with(['(', ':', ','])
    });
    match of_shell {
        Some((command, _)) => Err(ShellError::NoShell {
            command: command.to_owned(),
        }),
        None if is_for_shell => Err(ShellError::NoShell {
            command: first.chars().take(COMMAND_CHARS_MAX).collect(),
        }),
        None => Ok(()),
    }
}

/// The first two words of a line, if the line continues like a shell command and not like an assignment.
fn command(line: &str) -> Option<(&str, &str)> {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    let command_end = line.find(|letter| !is_word(letter)).unwrap_or(line.len());
    let (command, rest) = line.split_at(command_end);
    // What another shell would go on with is this one's to refuse by name.
    let goes_on = rest.is_empty() || rest.starts_with([' ', '\t', '|', ';', '&', '<', '>']);
    let next = rest.split_whitespace().next().unwrap_or("");
    (goes_on && !(next.ends_with('=') && is_operator(next))).then_some((command, next))
}

/// Whether a word is made of nothing but the signs of an assignment or comparison.
fn is_operator(word: &str) -> bool {
    word.chars().all(|sign| "=+-*/%&|^<>!:@".contains(sign))
}

/// Reads one line into the stages of a pipe, at least one.
pub(crate) fn parse(line: &str) -> Result<Vec<Stage>, ShellError> {
    if line.len() > LINE_BYTES_MAX {
        return Err(ShellError::TooLong);
    }
    // Blanks are the reader's to skip: the last one may be escaped.
    let line = line.trim_end_matches(['\n', '\r']);
    let mut stages = Vec::new();
    let mut arguments = Vec::new();
    let mut word_count = 0_usize;
    for token in tokens(line)? {
        match token {
            Token::Pipe { at } => {
                stages.push(stage(std::mem::take(&mut arguments), at)?);
                if stages.len() >= STAGES_MAX {
                    return Err(ShellError::TooManyStages);
                }
            }
            Token::Word(argument) => {
                word_count = word_count.saturating_add(1);
                if word_count > WORDS_MAX {
                    return Err(ShellError::TooManyWords);
                }
                arguments.push(argument);
            }
        }
    }
    let end = line.chars().count().saturating_add(1);
    stages.push(stage(arguments, end)?);
    Ok(stages)
}

/// One stage out of its words. `end` is where the stage ended.
fn stage(words: Vec<Argument>, end: usize) -> Result<Stage, ShellError> {
    let mut words = words.into_iter();
    let command = match words.next() {
        None => return Err(ShellError::Missing { at: end }),
        Some(Argument::Literal(command) | Argument::Pattern(command)) => command,
    };
    let arguments: Vec<Argument> = words.collect();
    let tool = tools::allowed(&command).ok_or(ShellError::Denied { command })?;
    if let Some(option) = tools::spawning_option(tool, &arguments) {
        let option = option.to_owned();
        return Err(ShellError::DeniedOption { tool, option });
    }
    Ok(Stage {
        tool: tool.to_owned(),
        arguments,
    })
}

#[cfg(test)]
mod tests;
