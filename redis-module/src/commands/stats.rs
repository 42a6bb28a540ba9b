//! `SESSION.STATS`

use crate::command_spec::{CommandSpec, KeyAccess};
use crate::failure::Failure;
use crate::ffi::{self, Arguments, Context};
use crate::figures;
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::reply;

struct StatsCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.stats",
    entry: ffi::entry::<StatsCommand>(),
    flags: c"readonly fast",
    arity: 1,
    key: KeyAccess::Keyless,
    summary: c"Returns the figures of INFO mooring.",
    complexity: c"O(W) with W being the number of known workers",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output request_policy:all_shards response_policy:special names_request"),
    categories: c"read fast",
    arguments: ARGUMENTS,
    reply: "a map of the figures by name",
    details: "\
INFO has the same figures in its section `mooring`. They are those of this node only: for a fleet, add up the figures
of all primaries.",
    errors: &[],
};

grammar! {
    parse<'a>() -> () {} => Ok(())
}

impl Command for StatsCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        parse(arguments)?;
        reply::figures(context, &figures::all(module));
        Ok(Outcome::Quiet)
    }
}
