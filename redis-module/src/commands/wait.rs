//! `WORKER.WAIT worker TIMEOUT ms`
//!
//! The only command that blocks: see [`crate::worker_wait`].

use mooring_session::limits::{WAIT_TIMEOUT_MAX, WAIT_TIMEOUT_MIN};
use mooring_session::names::WorkerId;
use mooring_session::time::Millis;

use super::beat::refuse_on_replica;
use crate::arguments::duration;
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::registrar::{CommandSpec, KeyAccess};
use crate::worker_wait;

struct WaitCommand;

/// What Redis shall know of it.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"worker.wait",
    entry: ffi::entry::<WaitCommand>(),
    flags: c"blocking",
    arity: 4,
    key: KeyAccess::Keyless,
    summary: c"Waits for events for a worker: turns granted to it or withdrawn, and claims settled that it was told of.",
    complexity: c"O(N) with N being the number of items in the answer",
    since: c"0.1.0",
    tips: Some(c"request_policy:all_shards nondeterministic_output"),
    categories: c"slow blocking worker",
    core_categories: c"slow blocking",
    arguments: ARGUMENTS,
    reply: "an array of at most 1000 maps: `event` `turn`|`withdrawn`|`settled`, `key`, `server`, `ticket` (null where \
            settled) and `turn` (null but for a turn). Empty after the time-out, and at once where blocking is denied: in \
            MULTI and in scripts",
    details: "\
A worker keeps one connection to each node for this and asks again after every answer. It is told of every turn that was
granted to one of its tickets while it waited; the lease counts from then. `settled` means that it is worth asking again:
a claim that ROUTE, ENTER, BIND or REBIND answered with was confirmed, given up, moved or has lapsed; the session ended
while a ticket waited; or a grant was not picked up in time. `withdrawn` means that the ticket was taken out of its queue
by LEAVE with WAITING, and is wanted no more.

Answers at once where there is news already. A second call of the same worker ends the first, which is answered with what
there is, mostly nothing. News of keys that the caller's ACL does not let it read is left for a caller
that may. The time-out is 1 ms to 10 minutes. What found no room in memory is not told, so a worker that
waits for more than a few seconds asks for itself.",
    errors: &[
        ErrorSpec::READ_ONLY_REPLICA,
        ErrorSpec::new(
            "ERR",
            "there is no news and `mooring.quiesce` is on: the caller asks again after a pause",
        ),
    ],
};

grammar! {
    parse<'a>() -> WaitRequest {
        worker: text(c"worker", WorkerId::parse),
        timeout: required(c"TIMEOUT", integer(c"ms", duration("TIMEOUT", WAIT_TIMEOUT_MIN, WAIT_TIMEOUT_MAX))),
    }
}

impl Command for WaitCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let request = parse(arguments)?;
        refuse_on_replica(context)?;
        worker_wait::wait(module, context, &request.worker, request.timeout)?;
        Ok(Outcome::Quiet)
    }
}

pub(super) struct WaitRequest {
    worker: WorkerId,
    timeout: Millis,
}
