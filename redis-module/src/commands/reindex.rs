//! `SESSION.REINDEX`

use crate::command_spec::{CommandSpec, KeyAccess};
use crate::failure::Failure;
use crate::ffi::{self, Arguments, Context};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::rebuild::RebuildCause;
use crate::reply;

struct ReindexCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.reindex",
    entry: ffi::entry::<ReindexCommand>(),
    flags: c"fast",
    arity: 1,
    key: KeyAccess::Keyless,
    summary: c"Rebuilds the indexes of this node in the background.",
    complexity: c"O(D) with D being the number of databases, and O(N) in steps of a millisecond afterwards with N being the number of keys",
    since: c"0.1.0",
    tips: Some(c"request_policy:all_shards response_policy:all_succeeded names_request"),
    categories: c"fast admin dangerous",
    arguments: ARGUMENTS,
    reply: "`started` 1; 0 if a rebuild is running already",
    details: "\
The indexes are derived from the records and follow every change. Use this command only if you suspect that an index
is wrong. The server keeps serving. During the rebuild the indexes stay in use and follow changes as before, also for
CAP and placement, and SESSION.LIST and SESSION.REAP return `complete` 0. `index_ready` in SESSION.STATS is 1 when the
rebuild is done.",
    errors: &[],
};

grammar! {
    parse<'a>() -> () {} => Ok(())
}

impl Command for ReindexCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        parse(arguments)?;
        let starts = !module.rebuild.is_running();
        if starts {
            module.rebuild_all(context, RebuildCause::Asked);
        }
        reply::reindexing(context, starts);
        Ok(Outcome::Quiet)
    }
}
