//! `SESSION.GET key [TURNS]`

use mooring_session::SessionPlace;
use mooring_session::rules;
use mooring_session::time::Millis;

use crate::command_spec::{CommandSpec, KeyAccess};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context, Text};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::moment::Moment;
use crate::record_io;
use crate::reply;
use crate::rule_inputs::RuleInputs;

struct GetCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.get",
    entry: ffi::entry::<GetCommand>(),
    flags: c"readonly fast",
    arity: -2,
    key: KeyAccess::Read,
    summary: c"Returns the record under a key, tombstones included. Does not count as a use.",
    complexity: c"O(N) with N being the number of fields of the record",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output names_request"),
    categories: c"read fast",
    arguments: ARGUMENTS,
    reply: "the record; with TURNS also `turns`, `cleaning_worker` and `cleaning_left_ms`",
    details: "\
For operators, and for callers that need the whole record: `state` is `active`, or the kind of the tombstone. The
command names no principal, so do not grant it to users that serve clients. Workers announce themselves to primaries
only, so a replica reports every owner as alive.

With TURNS the reply also says what calls of the session may wait for. `turns` has an entry for each server with a turn or
with waiters: `server`; `holder`, the worker that has the turn, with `ticket`, the turn's number `turn`, `held_ms`, how long
it has had it, `left_ms`, how long it has it yet unless it renews it, and the flags `offered`, if the worker does not know
of it yet, and `delegated`, if it may give it to any of its calls, all of them null without a holder; `waiting`, the number
of waiters; and `waiters`, the first five of them in order, each with `worker`, `ticket` and `waited_ms`. A ticket is shown as its digest. `cleaning_left_ms`
is how long no other worker may clean up the tombstone, null if none does, and `cleaning_worker` is who does, null for the
caller of END. A replica knows of no turns.",
    errors: &[
        ErrorSpec::NO_SESSION,
        ErrorSpec::CORRUPT,
        ErrorSpec::WRONG_TYPE,
    ],
};

grammar! {
    parse<'a>(key) -> GetScope {
        scope: word(c"TURNS", c"turns", GetScope::Record => GetScope::WithTurns),
    } => Ok(scope)
}

/// What is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GetScope {
    /// The record.
    Record,
    /// And what calls of the session may wait for.
    WithTurns,
}

impl Command for GetCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let scope = parse(arguments)?;
        let key = arguments.get(1).ok_or(Failure::Internal)?;
        apply(context, module, key, scope)?;
        Ok(Outcome::Quiet)
    }
}

fn apply(
    context: &Context,
    module: &Module,
    key: Text<'_>,
    scope: GetScope,
) -> Result<(), Failure> {
    let record = record_io::look(context, key)?;
    let moment = Moment::of(context, key);
    let inputs = RuleInputs::at(module, &moment);
    let view = rules::get(record.as_ref(), &inputs.context())?;
    if scope == GetScope::Record {
        reply::record(context, &view);
        return Ok(());
    }
    let place = SessionPlace::new(moment.database, key.as_bytes());
    let queues = module.turns.of_session(&place, module.monotonic());
    let cleaning = record.as_ref().and_then(|record| record.cleaning.as_ref());
    let now = inputs.context().now;
    let cleaning = cleaning.filter(|cleaning| cleaning.is_live(now));
    let cleaning = cleaning.map(|cleaning| reply::CleaningLine {
        worker: cleaning.worker.as_ref(),
        left: Millis::new(cleaning.lease_until.unix_ms().saturating_sub(now.unix_ms())),
    });
    reply::record_with_turns(context, &view, &queues, cleaning);
    Ok(())
}
