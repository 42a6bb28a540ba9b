//! `WORKER.WAIT worker TIMEOUT ms`
//!
//! The only command that blocks: see [`crate::worker_wait`].

use mooring_session::limits::{WAIT_TIMEOUT_MAX, WAIT_TIMEOUT_MIN};
use mooring_session::names::WorkerId;
use mooring_session::time::Millis;

use super::beat::refuse_on_replica;
use crate::arguments::duration;
use crate::command_spec::{CommandSpec, KeyAccess};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::worker_wait;

struct WaitCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"worker.wait",
    entry: ffi::entry::<WaitCommand>(),
    flags: c"blocking",
    arity: 4,
    key: KeyAccess::Keyless,
    summary: c"Waits for events of a worker: turns granted, withdrawn or recalled, and settled claims.",
    complexity: c"O(N) with N being the number of events in the reply",
    since: c"0.1.0",
    tips: Some(c"request_policy:all_shards nondeterministic_output"),
    categories: c"slow blocking",
    arguments: ARGUMENTS,
    reply: "an array of at most 1000 maps: `event` `turn`|`withdrawn`|`settled`, `key`, `server`, `ticket` (null for \
            `settled`) and `turn` (null except for `turn`). Empty after the timeout, and at once where blocking is \
            denied: in MULTI and in scripts",
    details: "\
A worker keeps one connection to each node for this command and sends it again after every reply. `turn` reports a
turn that was granted to one of the worker's tickets while it waited; the lease starts with the reply. `settled` means
that the worker should ask again: a claim that ROUTE, ENTER, BIND or REBIND returned to it was confirmed, given up,
moved or has lapsed; the session ended while a ticket waited; a grant was not picked up in time; or a turn or a route
that is delegated to it is recalled, because another caller waits, or the binding or the session has changed.
`withdrawn` means that LEAVE with WAITING took the ticket out of its queue; its call is no longer wanted.

If there are events, the command replies at once. A second call of the same worker ends the first, which replies with
the pending events, usually none. Events of keys that the caller's ACL does not let it read are kept for a caller that
may read them. The timeout is 1 ms to 10 minutes. Events that exceed the memory limits are dropped, so a worker that
waits for more than a few seconds asks on its own. Turns and routes are delegated to a worker only while it waits; if
its connection closes and it does not wait on another one within 200 ms, it loses the turns that are delegated to it.",
    errors: &[
        ErrorSpec::READ_ONLY_REPLICA,
        ErrorSpec::new(
            "ERR",
            "there are no events and `mooring.quiesce` is on: the caller asks again after a pause",
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
