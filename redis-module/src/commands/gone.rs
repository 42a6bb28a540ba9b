//! `WORKER.GONE worker`

use mooring_session::names::WorkerId;

use super::beat::refuse_on_replica;
use crate::command_spec::{CommandSpec, KeyAccess};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::reply;

struct GoneCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"worker.gone",
    entry: ffi::entry::<GoneCommand>(),
    flags: c"fast",
    arity: 2,
    key: KeyAccess::Keyless,
    summary: c"Deregisters a worker at once, at a clean shutdown.",
    complexity: c"O(log(W)) with W being the number of known workers",
    since: c"0.1.0",
    tips: Some(c"request_policy:all_shards response_policy:agg_max names_request"),
    categories: c"fast",
    arguments: ARGUMENTS,
    reply: "`was_alive` 0|1",
    details: "\
For a clean shutdown: other workers can take over at once what the worker owned, instead of after its TTL.",
    errors: &[ErrorSpec::READ_ONLY_REPLICA],
};

grammar! {
    parse<'a>() -> WorkerId { worker: text(c"worker", WorkerId::parse), } => Ok(worker)
}

impl Command for GoneCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let worker = parse(arguments)?;
        refuse_on_replica(context)?;
        let monotonic = module.monotonic();
        let was_alive = module.workers.gone(&worker, monotonic);
        reply::gone(context, was_alive);
        Ok(Outcome::Quiet)
    }
}
