//! `SESSION.LEAVE key principal server ticket [WAITING]`

use mooring_session::Refusal;
use mooring_session::names::{Principal, Token};
use mooring_session::record::SessionState;

use super::routing;
use super::turn::Queues;
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context, Text};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::moment::Moment;
use crate::record_io;
use crate::registrar::{CommandSpec, KeyAccess};
use crate::reply;

struct LeaveCommand;

/// What Redis shall know of it.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.leave",
    entry: ffi::entry::<LeaveCommand>(),
    // It writes no key. But turns are the primary's, and a replica that answered would be wrong.
    flags: c"write fast",
    arity: -5,
    key: KeyAccess::Read,
    summary: c"Passes a turn on to the next that waits, or stops waiting for it.",
    complexity: c"O(log(Q)+N) with Q being the number of callers that wait, and N of those that leave",
    since: c"0.1.0",
    tips: Some(c"names_request"),
    categories: c"write fast session",
    core_categories: c"write fast",
    arguments: ARGUMENTS,
    reply: "`left`: how many callers left, 1 without WAITING",
    details: "\
The holder of the turn passes it on; a caller that waits leaves the queue. Nothing is written, and the session's TTL does
not slide. A caller that gets `STALE` had lost its turn before: to a lapsed lease, to the death of its worker, or to a
restart of the server.

WAITING withdraws a call on behalf of whoever asked for it, from any worker: `ticket` is what its tickets begin with, and
every caller that waits under such a ticket leaves the queue, one included whose turn has come and who has not heard of
it. WORKER.WAIT tells their workers, by `withdrawn`. A caller that knows of its turn is not taken out, and then nobody is:
`BUSY`. Its call runs and has to be cancelled at its server. It keeps the turn for one more second at most, however often
it renews; then the next caller has it.",
    errors: &[
        ErrorSpec::NO_SESSION,
        ErrorSpec::ENDED,
        ErrorSpec::DENIED,
        ErrorSpec::new("STALE", "the ticket neither has the turn nor waits for it"),
        ErrorSpec::new("BUSY", "WAITING was given, and a ticket that begins so has the turn: it ends within a second"),
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

/// The words are only compared. The server's is not even checked: one that has been asked for before needs no other
/// check.
pub(super) struct LeaveRequest<'a> {
    principal: &'a str,
    server: &'a [u8],
    ticket: &'a str,
    mode: LeaveMode,
}

/// Who leaves.
#[derive(Clone, Copy)]
enum LeaveMode {
    /// The ticket, whether it has the turn or waits for it.
    Leave,
    /// Every caller that waits under a ticket that begins with it.
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
        news: &mut module.news,
        workers: &module.workers.at(mono),
        mono,
    };
    // A turn is passed on whatever has become of the session meanwhile; where there is none, that is what is told.
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
