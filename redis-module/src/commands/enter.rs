//! `SESSION.ENTER key principal server worker ticket LEASE ms [FIRST] [DELEGATE] [HELD turn] [EPOCH epoch]`
//!
//! ROUTE with a turn, and more to say about it. This is its grammar; the work is [`routing`]'s.

use mooring_session::limits::TURN_NUMBER_MAX;
use mooring_session::names::{Token, WorkerId};
use mooring_session::turns::{Line, TurnRequest, TurnScope};

use super::routing::{self, RouteRequest};
use super::turn;
use crate::arguments::{self, integer};
use crate::command_spec::{CommandSpec, KeyAccess};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;

struct EnterCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.enter",
    entry: ffi::entry::<EnterCommand>(),
    flags: c"write fast",
    arity: -8,
    key: KeyAccess::Update,
    summary: c"Asks for the turn of a session at a server, or renews it, and replies as ROUTE does.",
    complexity: c"O(log(Q)) with Q being the number of waiting callers",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output names_request"),
    categories: c"write fast",
    arguments: ARGUMENTS,
    reply: "the reply of ROUTE, and `turn`: the turn's number, or null while the caller waits; then also \
            `turn_holder`, the worker that has the turn, and `turn_held_ms`, for how long. `delegated_ms` if the turn \
            is delegated: the lease. With EPOCH, if the caller has the turn and nothing else has changed: an array of \
            the integer that ROUTE returns, the turn's number, and `delegated_ms` if the turn is delegated",
    details: "\
At each server, one caller of a session at a time has the turn, in the order of arrival across the whole fleet. A
waiting caller learns from WORKER.WAIT that its turn has come. A grant that is not picked up within a second, by
WORKER.WAIT or by the same ticket asking again, passes to the next caller, and the first one leaves the queue. The
ticket is random and chosen by the caller; the same ticket renews the lease, slides the session's TTL, and keeps a
waiter's place. A holder whose lease lapses or whose worker dies loses the turn to the next caller. If it asks again
it joins the queue as a new caller, and learns this from another `turn`.

FIRST puts the caller before all callers without FIRST: it is for a call that passed its turn on while it waited for
its client. HELD reclaims a turn after a restart or a failover of the server, by the number that the turn had. For
`mooring.turn-lease-max-ms` after a start or promotion only HELD is granted and all others wait, except in sessions
that were created since then under a key that did not exist. If two callers reclaim the same turn, the higher number
is right; a number that no clock can have given yet is refused. If a session leaves its key and returns to it (SWAPDB,
RENAME, RESTORE), the same applies to it until the lease of its holder lapses. If sessions arrive from another node,
because their slot of a cluster moves or by RESTORE, the same applies to their slot for `mooring.turn-lease-max-ms`
from the first request for a turn there: the other node knows who has their turns. At any other time HELD makes a
difference only if another caller has the turn: if none has, the turn is granted under a new number.

DELEGATE asks for the turn to be delegated: until its lease lapses, the worker gives it to its next calls itself, one at
a time, without asking. The ticket then stands for the worker, which renews the delegation with the same ticket and
DELEGATE, and ends it with LEAVE. When WORKER.WAIT reports `settled`, it has to leave after the current call: another
caller waits, or the binding or the session has changed. If it asks again without DELEGATE, or while a caller waits, it
keeps the turn for one call.

DELEGATE is a wish and never the cause of an error. The turn is delegated if all of this is true: the worker asked so
for at least three turns in a row, each within a second of the one before, and no other caller did; the server is `bound`,
no other worker owns it, and no loss is to be reported; the session's TTL is at least four leases; the worker waits in
WORKER.WAIT; and `mooring.quiesce` is off. If the connection of that WORKER.WAIT closes and the worker does not wait
again within 200 ms, it loses the turns that are delegated to it.

A lease lasts at most `mooring.turn-lease-max-ms`. Turns are exclusive while their leases hold, measured by the
server's monotonic clock. For a stronger guarantee, use the turn's number as a fencing token: it only grows.",
    errors: &[
        ErrorSpec::NO_SESSION,
        ErrorSpec::ENDED,
        ErrorSpec::DENIED,
        ErrorSpec::new("STALE", "HELD was given and another caller has the turn or had a later one, or the worker counts as dead"),
        turn::QUEUE_FULL,
        ErrorSpec::CORRUPT,
        ErrorSpec::WRONG_TYPE,
    ],
};

grammar! {
    parse<'a>(key) -> RouteRequest<'a> {
        principal: text(c"principal", routing::unparsed),
        server: text(c"server", routing::unparsed),
        worker: text(c"worker", WorkerId::check),
        ticket: text(c"ticket", Token::parse),
        lease: required(c"LEASE", integer(c"ms", turn::lease)),
        line: word(c"FIRST", c"first", Line::Last => Line::First),
        scope: word(c"DELEGATE", c"delegate", TurnScope::Call => TurnScope::Delegation),
        held: optional(c"HELD", integer(c"turn", integer("HELD", 1, TURN_NUMBER_MAX))),
        epoch: optional(c"EPOCH", integer(c"epoch", arguments::epoch)),
    } => Ok(RouteRequest {
        principal,
        server,
        turn: Some(TurnRequest {
            worker: WorkerId::parse(worker.as_bytes())?,
            ticket,
            lease,
            line,
            scope,
            held,
        }),
        delegation: None,
        worker,
        known_epoch: epoch,
    })
}

impl Command for EnterCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let mut request = parse(arguments)?;
        let key = arguments.get(1).ok_or(Failure::Internal)?;
        routing::serve(context, module, key, &mut request)?;
        Ok(Outcome::Quiet)
    }
}
