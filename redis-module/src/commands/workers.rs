//! `WORKER.LIST`

use crate::command_spec::{CommandSpec, KeyAccess};
use crate::failure::Failure;
use crate::ffi::{self, Arguments, Context};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::reply;

struct WorkersCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"worker.list",
    entry: ffi::entry::<WorkersCommand>(),
    flags: c"readonly",
    arity: 1,
    key: KeyAccess::Keyless,
    summary: c"Lists the workers that this node knows.",
    complexity: c"O(W) with W being the number of known workers",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output request_policy:all_shards response_policy:special"),
    categories: c"read slow",
    arguments: ARGUMENTS,
    reply: "for each worker `worker`, `address`, `alive` 0|1, `draining` 0|1, `last_beat_at`, `bindings`",
    details: "\
Dead workers are listed until newer ones displace them. `bindings` is the number of bindings of active sessions that
the worker used last, according to the indexes.",
    errors: &[],
};

grammar! {
    parse<'a>() -> () {} => Ok(())
}

impl Command for WorkersCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        parse(arguments)?;
        let workers = module.workers.list(module.monotonic());
        reply::workers(context, &workers, |worker| module.indexes.driven_by(worker));
        Ok(Outcome::Quiet)
    }
}
