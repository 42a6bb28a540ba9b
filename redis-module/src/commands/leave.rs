//! `SESSION.LEAVE key principal server ticket [WAITING]`

use mooring_session::Refusal;
use mooring_session::names::{Principal, Token};
use mooring_session::record::SessionState;

use super::routing;
use super::turn::Queues;
use crate::command_spec::{CommandSpec, KeyAccess};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context, Text};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::moment::Moment;
use crate::record_io;
use crate::reply;

struct LeaveCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.leave",
    entry: ffi::entry::<LeaveCommand>(),
    // It writes no key, but turns exist on the primary only, and the reply of a replica would be wrong.
    flags: c"write fast",
    arity: -5,
    key: KeyAccess::Read,
    summary: c"Passes a turn on to the next waiting caller, or stops waiting for it.",
    complexity: c"O(log(Q)+N) with Q being the number of waiting callers, and N the number of callers that leave",
    since: c"0.1.0",
    tips: Some(c"names_request"),
    categories: c"write fast",
    arguments: ARGUMENTS,
    reply: "`left`: how many callers left, 1 without WAITING",
    details: "\
The holder of the turn passes it on; a waiting caller leaves the queue. Nothing is written, and the session's TTL does
not slide. A caller that gets `STALE` had lost its turn before: its lease lapsed, its worker died, or the server
restarted.

WAITING withdraws a call, and any worker may send it: `ticket` is the prefix of the call's tickets. Every caller that
waits under such a ticket leaves the queue, even if it was granted the turn but has not been notified. WORKER.WAIT
reports it to their workers as `withdrawn`. If a caller that was notified has the turn, the reply is `BUSY` and no
caller is withdrawn: its call is running and has to be cancelled at its server. It keeps the turn for at most one more
second, even if it renews; then the next caller has it. Which call has a delegated turn is known to its worker only: if
no caller waits under the ticket, the worker gets `withdrawn`, the reply is `STALE`, and the turn is not limited.",
    errors: &[
        ErrorSpec::NO_SESSION,
        ErrorSpec::ENDED,
        ErrorSpec::DENIED,
        ErrorSpec::new("STALE", "the ticket neither has the turn nor waits for it"),
        ErrorSpec::new("BUSY", "WAITING was given, and a ticket with that prefix has the turn: it ends within a second"),
        ErrorSpec::CORRUPT,
        ErrorSpec::WRONG_TYPE,
    ],
};

grammar! {
    parse<'a>(key) -> LeaveRequest<'a> {
        principal: text(c"principal", Principal::check),
        server: text(c"server", routing::unparsed),
        ticket: text(c"ticket", Token::check),
        mode: word(c"WAITING", c"waiting", LeaveMode::Leave => LeaveMode::Withdraw),
    } => Ok(LeaveRequest { principal, server, ticket, mode })
}

impl Command for LeaveCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let request = parse(arguments)?;
        let key = arguments.get(1).ok_or(Failure::Internal)?;
        let count = apply(context, module, key, &request)?;
        reply::left(context, count);
        Ok(Outcome::Quiet)
    }
}

/// The arguments are only compared. The server name is not even validated: a name that is in the cache is valid.
pub(super) struct LeaveRequest<'a> {
    principal: &'a str,
    server: &'a [u8],
    ticket: &'a str,
    mode: LeaveMode,
}

/// Which callers leave.
#[derive(Clone, Copy)]
enum LeaveMode {
    /// The one with this ticket, whether it has the turn or waits for it.
    Leave,
    /// All that wait under a ticket with this prefix.
    Withdraw,
}

fn apply(
    context: &Context,
    module: &mut Module,
    name: Text<'_>,
    request: &LeaveRequest<'_>,
) -> Result<usize, Failure> {
    let moment = Moment::of(context, name);
    let fields = module.fields.of(request.server)?;
    let key = context.open_to_read(name);
    record_io::check_principal(&key, fields.principal, request.principal)?;
    let mono = module.time.now();
    let queues = Queues {
        turns: &mut module.turns,
        events: &mut module.events,
        workers: &module.workers.at(mono),
        mono,
    };
    // A turn is passed on whatever the state of the session is; without a turn, the error reports that state.
    let (server, ticket) = (fields.server, request.ticket);
    let left = match request.mode {
        LeaveMode::Leave => queues.leave(&moment, server, ticket).map(|()| 1),
        LeaveMode::Withdraw => queues.withdraw(&moment, server, ticket),
    };
    let refusal = match left {
        Ok(count) => return Ok(count),
        Err(refusal) => refusal,
    };
    let lifetime = record_io::lifetime(&key, fields.lifetime)?;
    Err(match lifetime.state(moment.now) {
        SessionState::Active => refusal,
        SessionState::Ended => Refusal::Ended,
        SessionState::Expired => Refusal::NoSession,
    }
    .into())
}
