//! What a server of kind `stdio` runs: a program and its arguments, without a shell in between. Arguments may be
//! secrets, so they are in no message and no log.

use std::fmt;

use crate::settings::knob::{About, Disclosure, List};
use crate::settings::reader::{Reader, Reason};

pub(super) const COMMAND: List = List {
    about: About::new(
        "servers.command",
        "The program and its arguments, each a text of its own: no shell reads them. Required for the kind `stdio`. \
         Arguments can be seen by every user of the machine: put secrets into `env`.",
    ),
    shape: "texts of at most 4096 bytes, the first the name of a program in PATH or the absolute path of one, such as \
            [\"npx\", \"-y\", \"@modelcontextprotocol/server-filesystem\", \"/data\"]",
    items_max: 256,
    item_bytes_max: 4096,
    disclosure: Disclosure::Hidden,
};

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
    let Some(mut words) = reader.list(&COMMAND, parse_word) else {
        if !reader.is_written(&COMMAND.about) {
            refuse(reader, String::new(), "it is missing");
        }
        return CommandLine::default();
    };
    if words.is_empty() {
        if !reader.was_refused(&COMMAND.about) {
            refuse(reader, "[]".to_owned(), "there is no program");
        }
        return CommandLine::default();
    }
    let program = words.remove(0);
    if program.contains('/') && !program.starts_with('/') {
        let reason =
            "the program's path is relative, and would depend on where the gateway was started";
        refuse(reader, format!("[{program:?}, ...]"), reason);
    }
    CommandLine {
        program,
        arguments: words,
    }
}

fn parse_word(text: &str) -> Result<String, Reason> {
    if text.contains('\0') {
        return Err("an item has a NUL character".to_owned());
    }
    Ok(text.to_owned())
}

fn refuse(reader: &mut Reader<'_>, value: String, reason: &str) {
    reader.refuse(&COMMAND.about, value, reason.to_owned(), COMMAND.allowed());
}
