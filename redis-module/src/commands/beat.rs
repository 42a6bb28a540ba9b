//! `WORKER.BEAT worker address TTL ms [DRAINING]`

use mooring_session::limits::{BEAT_TTL_MAX, BEAT_TTL_MIN};
use mooring_session::names::{Address, WorkerId};
use mooring_session::time::Timestamp;
use mooring_session::workers::{Beat, Drain};

use crate::arguments::duration;
use crate::command_spec::{CommandSpec, KeyAccess};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::reply;
use crate::settings;

struct BeatCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"worker.beat",
    entry: ffi::entry::<BeatCommand>(),
    flags: c"fast",
    arity: -5,
    key: KeyAccess::Keyless,
    summary:
        c"Announces that a worker is alive. A new boot of the same name makes the old one dead.",
    complexity: c"O(log(W)) with W being the number of known workers",
    since: c"0.1.0",
    tips: Some(c"request_policy:all_shards response_policy:all_succeeded names_request"),
    categories: c"fast",
    arguments: ARGUMENTS,
    reply: "`alive` 1",
    details: "\
A worker's id is its name, a colon, and a boot id that is new at every start. While a boot is alive, earlier boots of
its name are refused. The worker counts as alive until the TTL has passed since its last beat, measured by the
server's monotonic clock. A worker that has not sent a beat to this node counts as alive for `mooring.worker-grace-ms`
after the node's start or promotion. A draining worker gets no new OWNED binding, and its owned bindings may be moved.

The address is fixed while the worker is alive: to announce another address, a process uses a new boot id.

An owner whose last acknowledged beat is older than two thirds of its TTL has to stop driving what it owns.",
    errors: &[
        ErrorSpec::READ_ONLY_REPLICA,
        ErrorSpec::new("STALE", "a later boot of the same worker name is alive"),
        ErrorSpec::new("BUSY", "the worker is alive with another address"),
        ErrorSpec::new("LIMIT", "4096 workers are alive already: `LIMIT workers 4096`"),
    ],
};

grammar! {
    parse<'a>() -> Beat {
        worker: text(c"worker", WorkerId::parse),
        address: text(c"address", Address::parse),
        ttl: required(c"TTL", integer(c"ms", duration("TTL", BEAT_TTL_MIN, BEAT_TTL_MAX))),
        drain: word(c"DRAINING", c"draining", Drain::Serving => Drain::Draining),
    }
}

/// Refuses the command on a replica. Otherwise a primary that became a replica would still accept the beats of workers
/// that send nothing else, and they would not notice that the new primary receives none.
///
/// # Errors
/// `READONLY`.
pub(crate) fn refuse_on_replica(context: &Context) -> Result<(), Failure> {
    if context.is_read_only_replica() {
        return Err(Failure::ReadOnlyReplica);
    }
    Ok(())
}

impl Command for BeatCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let beat = parse(arguments)?;
        refuse_on_replica(context)?;
        let monotonic = module.monotonic();
        let now = Timestamp::from_unix_ms(context.unix_ms());
        module.workers.set_grace(settings::worker_grace());
        module.workers.beat(beat, monotonic, now)?;
        reply::alive(context);
        Ok(Outcome::Quiet)
    }
}
