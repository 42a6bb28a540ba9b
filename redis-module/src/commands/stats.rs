//! `SESSION.STATS`

use crate::failure::Failure;
use crate::ffi::{self, Arguments, Context};
use crate::figures;
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::registrar::{CommandSpec, KeyAccess};
use crate::reply;

struct StatsCommand;

/// What Redis shall know of it.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.stats",
    entry: ffi::entry::<StatsCommand>(),
    flags: c"readonly fast",
    arity: 1,
    key: KeyAccess::Keyless,
    summary: c"Returns the figures of INFO mooring.",
    complexity: c"O(W) with W being the number of workers heard",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output request_policy:all_shards response_policy:special names_request"),
    categories: c"read fast session",
    core_categories: c"read fast",
    arguments: ARGUMENTS,
    reply: "a map of the figures by name",
    details: "\
The same figures stand in INFO, in the section `mooring`. They are of this node alone: a fleet's are the sums over all
primaries.",
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
