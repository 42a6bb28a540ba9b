//! Ready settings for known agents: how each is run without a person at it, how it resumes, and where its output has what.
//!
//! Invariant: a prompt that begins with a hyphen is a prompt to every one of them, not a flag. What an agent may do without
//! asking is left as the agent has it: who wants more gives a `command` of their own.
//!
//! The tests run each program, in the version that docs/agents.md names, against a stand-in for its model.

use super::output::{OutputForm, Results};
use crate::rows::settings;
use crate::setting::{Disclosure, Word, Words, words};

settings! {
    /// The fields that say which agent it is and how it resumes.
    pub(in super::super) const ROWS {
        /// Which agent it is. The profile says what the fields from `servers.command` and `servers.resume` to
        /// `servers.description` are; each that is written wins over it. The agent is installed and logged in by
        /// yourself: it has the gateway's HOME, and keys in variables need `servers.inherit_env` or `servers.env`. Its
        /// own defaults decide what it may do without asking; set a `command` with its flags to allow more.
        PROFILE = Choice("servers.profile", words::<&'static Profile>),
        /// The arguments with which the agent resumes an earlier session; `{session}` is the id that the agent gave it.
        /// They replace the argument `{resume}` of `servers.command`, or follow its last argument.
        RESUME = List("servers.resume", 32, 4096,
            "texts of at most 4096 bytes, of which one holds {session}, such as [\"--resume={session}\"]")
            .unset("the profile's; without one, every run is fresh").disclosure(Disclosure::Hidden),
    }
}

impl Words for &'static Profile {
    const DEFAULT: Word<Self> = ("none", &NONE, "another one: the fields say everything");
    const OTHERS: &'static [Word<Self>] = &[
        ("claude", &CLAUDE, "Claude Code, `claude -p`"),
        ("codex", &CODEX, "Codex CLI, `codex exec`"),
        ("gemini", &GEMINI, "Gemini CLI, `gemini --prompt`"),
        ("opencode", &OPENCODE, "OpenCode, `opencode run`"),
    ];
}

/// What is known of one agent. Pointers and conditions are as they are written in the file.
#[derive(Debug)]
pub(crate) struct Profile {
    pub(super) description: &'static str,
    /// Words that are separated by spaces, and so are those of `resume`.
    pub(super) command: &'static str,
    pub(super) resume: &'static str,
    pub(super) output: OutputForm,
    pub(super) session_pointer: Option<&'static str>,
    pub(super) result_pointer: Option<&'static str>,
    pub(super) result_where: &'static [&'static str],
    pub(super) results: Results,
    pub(super) error_pointer: Option<&'static str>,
    pub(super) progress_pointer: Option<&'static str>,
    pub(super) progress_where: &'static [&'static str],
    pub(super) unknown_session: &'static [&'static str],
    /// Whether it resumes a conversation only in the folder in which it last worked on it.
    pub(super) is_bound_to_folder: bool,
}

/// Nothing is known of an agent without a profile.
const NONE: Profile = Profile {
    description: "Gives a prompt to a command-line agent and returns its answer.",
    command: "",
    resume: "",
    output: OutputForm::Json,
    session_pointer: None,
    result_pointer: None,
    result_where: &[],
    results: Results::Last,
    error_pointer: None,
    progress_pointer: None,
    progress_where: &[],
    unknown_session: &[],
    is_bound_to_folder: false,
};

/// `stream-json` with `-p` needs `--verbose`. `-p` takes no value: the prompt is positional, and `--` ends the flags.
/// `--resume` takes an optional value, which only the form with `=` binds whatever it begins with. A conversation can
/// be resumed from any folder, under the same id.
///
/// The last line is of type `result`, with `result`, `session_id` and `is_error`. Of a failure `result` has the text; a run
/// of an unknown session has none, and says so on both streams. An `assistant` line carries one block of a message.
const CLAUDE: Profile = Profile {
    description: "Gives a prompt to Claude Code, which works in a folder of the gateway's machine, and returns its answer.",
    command: "claude -p --output-format stream-json --verbose {resume} -- {prompt}",
    resume: "--resume={session}",
    output: OutputForm::JsonLines,
    session_pointer: Some("/session_id"),
    result_pointer: Some("/result"),
    result_where: &["/type=result"],
    error_pointer: Some("/is_error"),
    progress_pointer: Some("/message/content/0/text"),
    progress_where: &["/type=assistant"],
    unknown_session: &[
        "No conversation found with session ID",
        "is not a UUID and does not match any session title",
    ],
    ..NONE
};

/// `resume ID` is a subcommand of `exec`, in front of the prompt; `--` ends the flags, and after it the words `resume` and
/// `review` are prompts too. A prompt that is just `-` would be read from stdin, which is closed: that run fails.
/// Without `--skip-git-repo-check` it refuses to work outside a Git repository. It never asks for approval, and its
/// sandbox is by default read-only: `--sandbox workspace-write` in a command lets it write. A conversation can be
/// resumed from any folder, under the same id.
///
/// `thread.started` has `thread_id`, `item.completed` an item of type `agent_message`, of which the last is the answer, and
/// `turn.failed` an `error`. The event `error` is not taken for a failure: a connection that is tried again is reported by
/// it, and a warning is an item of type `error`. An id that is no UUID is taken for a title, and where there is none of
/// that title another conversation begins without a word; ids that Codex says are UUIDs.
const CODEX: Profile = Profile {
    description: "Gives a prompt to Codex, which works in a folder of the gateway's machine, and returns its answer.",
    command: "codex exec --json --skip-git-repo-check {resume} -- {prompt}",
    resume: "resume {session}",
    output: OutputForm::JsonLines,
    session_pointer: Some("/thread_id"),
    result_pointer: Some("/item/text"),
    result_where: &["/type=item.completed", "/item/type=agent_message"],
    error_pointer: Some("/error/message"),
    progress_pointer: Some("/item/text"),
    progress_where: &["/type=item.completed"],
    unknown_session: &[
        "no rollout found for thread id",
        "no rollout found for conversation id",
    ],
    ..NONE
};

/// It is a yargs parser, to which `--prompt=...` is a value whatever it begins with. It resumes only what was begun in the
/// same folder. It refuses to work in a folder that the user has not trusted: `env = { GEMINI_CLI_TRUST_WORKSPACE = "true" }`
/// says that all are.
///
/// It prints one document with `session_id` and `response`; of a failure one with `error` instead, on standard error. The
/// streamed form has the answer in pieces that would have to be put together without anything between them, so it is not
/// used, and there is no progress.
const GEMINI: Profile = Profile {
    description: "Gives a prompt to Gemini CLI, which works in a folder of the gateway's machine, and returns its answer.",
    command: "gemini --output-format json {resume} --prompt={prompt}",
    resume: "--resume={session}",
    session_pointer: Some("/session_id"),
    result_pointer: Some("/response"),
    error_pointer: Some("/error"),
    unknown_session: &[
        "Invalid session identifier",
        "No previous sessions found for this project",
    ],
    is_bound_to_folder: true,
    ..NONE
};

/// A message after `--` may begin with a hyphen. It puts a message that has spaces between quotation marks before it passes
/// it on; nothing can be done about that from outside. It takes its folder from the variable PWD where that is set, so PWD
/// must not be inherited. Resumed in another folder than its session's it answers and then never ends, so that is not done.
///
/// Every event has `sessionID`; one of type `text` has a finished part, of which the last is the answer; one of type `error`
/// has `error`. What it says of an unknown session is on standard error.
const OPENCODE: Profile = Profile {
    description: "Gives a prompt to OpenCode, which works in a folder of the gateway's machine, and returns its answer.",
    command: "opencode run --format json {resume} -- {prompt}",
    resume: "--session={session}",
    output: OutputForm::JsonLines,
    session_pointer: Some("/sessionID"),
    result_pointer: Some("/part/text"),
    result_where: &["/type=text"],
    error_pointer: Some("/error"),
    progress_pointer: Some("/part/text"),
    progress_where: &["/type=text"],
    unknown_session: &["Session not found"],
    is_bound_to_folder: true,
    ..NONE
};

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::super::output_rules::{Condition, Pointer};
    use super::super::template::CommandTemplate;
    use super::*;

    fn profiles() -> impl Iterator<Item = &'static Profile> {
        <&Profile>::OTHERS.iter().map(|(_, profile, _)| *profile)
    }

    #[test]
    fn every_pointer_and_condition_of_a_profile_can_be_read() {
        for profile in profiles() {
            let pointers = [
                profile.session_pointer,
                profile.result_pointer,
                profile.error_pointer,
                profile.progress_pointer,
            ];
            for pointer in pointers.into_iter().flatten() {
                Pointer::parse(pointer).unwrap();
            }
            assert!(profile.session_pointer.is_some() && profile.result_pointer.is_some());
            for condition in profile.result_where.iter().chain(profile.progress_where) {
                Condition::parse(condition).unwrap();
            }
            assert!(!profile.unknown_session.is_empty());
        }
    }

    #[test]
    fn no_prompt_of_a_profile_can_be_a_flag() {
        let words =
            |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
        for profile in profiles() {
            let template =
                CommandTemplate::parse(&words(profile.command), &words(profile.resume)).unwrap();
            assert!(template.can_resume());
            for session in [None, Some("s-1")] {
                let arguments = template.arguments("--help", session, "/work");
                let is_safe = match arguments.iter().position(|argument| argument == "--help") {
                    Some(position) => arguments.iter().take(position).any(|before| before == "--"),
                    None => arguments.contains(&"--prompt=--help".to_owned()),
                };
                assert!(is_safe, "{arguments:?}");
            }
        }
    }
}
