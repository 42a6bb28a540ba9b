//! What a server of kind `stdio` or `agent` runs: a program and its arguments, without a shell in between. Arguments may
//! be secrets, so they are in no message and no log.

use std::fmt;

use crate::reader::{Reader, Reason};
use crate::rows::settings;
use crate::setting::Disclosure;

settings! {
    /// The fields about the program.
    pub(in crate::servers) const ROWS {
        /// The program and its arguments, each a text of its own: no shell reads them. In the file also one text: the
        /// program, with its arguments in `args` or behind spaces; quotes keep words together. A server with a command
        /// and no `kind` or `profile` is of kind `stdio`. Required for the kind `stdio`, and for the kind `agent`
        /// without a `profile`. Arguments can be seen by every user of the machine: put secrets into `env`. At the kind
        /// `agent`, `{prompt}` in an argument is what the caller asks, `{workFolder}` the folder of the call, and the
        /// argument `{resume}` stands for those of `servers.resume`; any other brace is text. Have `--` in front of a
        /// prompt, or a flag around it as in `--prompt={prompt}`, so that one that begins with a hyphen is no flag.
        COMMAND = List("servers.command", 256, 4096,
            "texts of at most 4096 bytes, the first the name of a program in PATH or the absolute path of one, such as \
             [\"npx\", \"-y\", \"@modelcontextprotocol/server-filesystem\", \"/data\"]").disclosure(Disclosure::Hidden),
        /// Further arguments of `command`, as the settings of other MCP clients have them.
        ARGS = List("servers.args", 255, 4096, "texts of at most 4096 bytes")
            .unset("none").disclosure(Disclosure::Hidden),
    }
}

/// A program and its arguments, none of them with a NUL. `Debug` shows how many arguments there are, not what they
/// are.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CommandLine {
    program: String,
    arguments: Vec<String>,
}

impl CommandLine {
    /// A name without a slash, to be looked up in the child's PATH, or an absolute path.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// What follows the program, in order.
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }
}

impl fmt::Debug for CommandLine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.arguments.len();
        write!(formatter, "{:?} with {count} arguments", self.program)
    }
}

pub(super) fn parse(reader: &mut Reader<'_>) -> CommandLine {
    if !reader.is_written(&COMMAND) {
        refuse(reader, "", "it is missing");
        return CommandLine::default();
    }
    let Some(mut words) = parse_words(reader) else {
        return CommandLine::default();
    };
    let program = words.remove(0);
    CommandLine {
        program,
        arguments: words,
    }
}

/// The program and its arguments, at least the program; none if there is no program.
pub(in crate::servers) fn parse_words(reader: &mut Reader<'_>) -> Option<Vec<String>> {
    let mut words = reader.list(&COMMAND, parse_word)?;
    let Some(program) = words.first() else {
        if !reader.was_refused(&COMMAND) {
            refuse(reader, "[]", "there is no program");
        }
        return None;
    };
    if program.contains('/') && !program.starts_with('/') {
        let reason =
            "the program's path is relative, and would depend on where the gateway was started";
        refuse(reader, &format!("[{program:?}, ...]"), reason);
    }
    words.extend(reader.list(&ARGS, parse_word).unwrap_or_default());
    Some(words)
}

/// The words of a command that is one text: separated by spaces; quotes of either kind keep what is between them together.
pub(in crate::servers) fn split_words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in text.chars() {
        match (quote, letter) {
            (Some(open), letter) if open == letter => quote = None,
            (None, '"' | '\'') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, letter) if letter.is_whitespace() => words.extend(word.take()),
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

pub(in crate::servers) fn parse_word(text: &str) -> Result<String, Reason> {
    if text.contains('\0') {
        return Err("an item has a NUL character".to_owned());
    }
    Ok(text.to_owned())
}

/// Refuses the command.
pub(in crate::servers) fn refuse(reader: &mut Reader<'_>, value: &str, reason: &str) {
    reader.refuse(&COMMAND, value, reason, COMMAND.allowed());
}
