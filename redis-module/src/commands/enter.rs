//! `SESSION.ENTER key principal server worker ticket LEASE ms [FIRST] [HELD turn] [EPOCH epoch]`
//!
//! ROUTE with a turn, and more to say about it. This is its grammar; the work is [`routing`]'s.

use mooring_session::limits::TURN_NUMBER_MAX;
use mooring_session::names::{Token, WorkerId};
use mooring_session::turns::{Line, TurnRequest};

use super::routing::{self, RouteRequest};
use super::turn;
use crate::arguments::{self, integer};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::registrar::{CommandSpec, KeyAccess};

struct EnterCommand;

/// What Redis shall know of it.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.enter",
    entry: ffi::entry::<EnterCommand>(),
    flags: c"write fast",
    arity: -8,
    key: KeyAccess::Update,
    summary: c"Asks for the turn of a session at a server, or renews it, and answers as ROUTE does.",
    complexity: c"O(log(Q)) with Q being the number of callers that wait",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output names_request"),
    categories: c"write fast session",
    core_categories: c"write fast",
    arguments: ARGUMENTS,
    reply: "that of ROUTE, and `turn`: the turn's number, or null while the caller waits; then also `turn_holder`, the \
            worker that has it, and `turn_held_ms`, for how long. With EPOCH, where the turn is the caller's and the rest \
            would say nothing new: an array of the integer that ROUTE answers and the turn's number",
    details: "\
Of the callers of one session at one server, one at a time has the turn, in the order of their arrival over the whole
fleet. A caller that waits hears by WORKER.WAIT when its turn comes; a grant that is not picked up within a second (by
that, or by the same ticket asking again) passes on, and its caller leaves the queue. The ticket is random and the
caller's own; the same one again renews the lease and slides the session's TTL, and keeps a waiter's place. A holder
whose lease lapses or whose worker dies loses the turn to the next: asking again it is a newcomer, and sees that by
another `turn`.

FIRST goes before everybody who does not say so: for a call that passed its turn on while it waited for its client.
HELD claims a turn again after a restart or a failover of the server, by the number that it had. For `mooring.turn-
lease-max-ms` after a start or promotion only that is granted, while everybody else waits, except in sessions that
were created since where nothing was under their key. Of two who claim one turn again the higher number is right; one
that no clock can have given yet is refused. Where a session leaves its key and comes back to it (SWAPDB, RENAME,
RESTORE), the same holds for it until the lease of its holder lapses. At any other time HELD makes a difference only
if another caller has the turn: where nobody has it, it is granted under a new number.

A lease lasts at most `mooring.turn-lease-max-ms`. Turns exclude each other while their leases hold, measured by the
server's monotonic clock; who needs more fences with the turn's number, which only grows.",
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
            held,
        }),
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
        let request = parse(arguments)?;
        let key = arguments.get(1).ok_or(Failure::Internal)?;
        routing::serve(context, module, key, &request)?;
        Ok(Outcome::Quiet)
    }
}
