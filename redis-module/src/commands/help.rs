//! `SESSION.HELP`

use crate::command_spec::{CommandSpec, KeyAccess};
use crate::failure::Failure;
use crate::ffi::{self, Arguments, Context};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::reply;

struct HelpCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.help",
    entry: ffi::entry::<HelpCommand>(),
    flags: c"readonly fast allow-loading allow-stale",
    arity: 1,
    key: KeyAccess::Keyless,
    summary: c"Lists the module's commands with their arguments.",
    complexity: c"O(1)",
    since: c"0.1.0",
    tips: None,
    categories: c"read fast",
    arguments: ARGUMENTS,
    reply: "an array of lines",
    details: "\
For people at redis-cli, in the format of the server's own HELP subcommands: a line with a command's arguments, then
an indented line that says what it does. Programs use COMMAND DOCS.",
    errors: &[],
};

grammar! {
    parse<'a>() -> () {} => Ok(())
}

impl Command for HelpCommand {
    fn run(
        context: &Context,
        _module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        parse(arguments)?;
        let lines: Vec<String> = super::TABLE.iter().flat_map(lines).collect();
        reply::lines(context, &lines);
        Ok(Outcome::Quiet)
    }
}

fn lines(command: &CommandSpec) -> [String; 2] {
    let summary = command.summary.to_string_lossy();
    [command.usage(), format!("    {summary}")]
}
