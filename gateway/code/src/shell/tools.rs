//! The commands of the one-line shell, and the options of them that it refuses.
//!
//! The options are refused for clarity, not for safety: what they start would run inside the sandbox too, and mostly
//! fail there in ways that are hard to read.

use mooring_sandbox::{Argument, TOOLS};

/// Commands that agents often try, and that this shell has not. None of them is a word that code begins a line with.
pub(super) const COMMON_COMMANDS: [&str; 48] = [
    "apt", "apt-get", "awk", "bash", "brew", "cd", "chmod", "chown", "cp", "curl", "cut", "date",
    "deno", "df", "diff", "docker", "du", "echo", "env", "git", "kill", "less", "ln", "make",
    "mkdir", "mv", "nano", "node", "npm", "npx", "pip", "pip3", "ps", "pwd", "python", "python3",
    "rm", "sed", "sh", "sudo", "tar", "tee", "touch", "tree", "uname", "unzip", "wget", "whoami",
];
/// Options by which a tool starts another program. A word that is one of them is refused.
const SPAWNING: [(&str, &[&str]); 3] = [
    ("find", &["-exec", "-execdir", "-ok", "-okdir"]),
    ("rg", &["--pre", "--hostname-bin"]),
    ("sort", &["--compress-program"]),
];
/// The shortest way to write `sort --compress-program`: GNU tools take every beginning that only one option has.
const SORT_SHORTEST: &str = "--co";

/// The command of this name.
pub(super) fn allowed(name: &str) -> Option<&'static str> {
    TOOLS.into_iter().find(|tool| *tool == name)
}

/// The first argument that would make the tool start another program.
pub(super) fn spawning_option<'a>(tool: &str, arguments: &'a [Argument]) -> Option<&'a str> {
    let (_, refused) = SPAWNING.iter().find(|(name, _)| *name == tool)?;
    arguments.iter().find_map(|argument| {
        let (Argument::Literal(text) | Argument::Pattern(text)) = argument;
        let option = text.split_once('=').map_or(text.as_str(), |(name, _)| name);
        let is_short_form = tool == "sort"
            && option.starts_with(SORT_SHORTEST)
            && refused.iter().any(|whole| whole.starts_with(option));
        (refused.contains(&option) || is_short_form).then_some(option)
    })
}
