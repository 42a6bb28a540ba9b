//! `SESSION.ROUTE key principal server worker [TURN ticket LEASE ms|DELEGATE ms] [EPOCH epoch]`
//!
//! The hot path: one round trip before every call that a gateway dispatches. This is its grammar; the work is
//! [`routing`]'s.

use mooring_session::names::{NameError, Token, WorkerId};
use mooring_session::time::Millis;
use mooring_session::turns::{Line, TurnRequest, TurnScope};

use super::routing::{self, RouteRequest};
use super::turn;
use crate::arguments::{self, Parser, Words};
use crate::command_spec::{ArgumentSpec, CommandSpec, KeyAccess};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;

struct RouteCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.route",
    entry: ffi::entry::<RouteCommand>(),
    flags: c"write fast",
    arity: -5,
    key: KeyAccess::Update,
    summary: c"Returns where a session's calls to a server go, and records the use.",
    complexity: c"O(1)",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output names_request"),
    categories: c"write fast",
    arguments: ARGUMENTS,
    reply: "`state` `unbound` alone; or `state` `claimed`|`bound`|`orphaned`, `instance`, `driver`, `epoch`, and if \
            present `upstream_session`, `owner` with `owner_alive` and `owner_address` (null if unknown), \
            `lease_until`, `worker_lost` (the dead worker that drove it before, reported once), and `lost_instance` \
            with `lost_reason` (a loss that no reply has reported to the client yet: see SESSION.REBIND, UNREPORTED, \
            and SESSION.TOUCH, REPORTED). This is the hot path, so absent fields are left out. With TURN also \
            `turn`: its number, or null while the caller waits, then with `turn_holder` and `turn_held_ms` as in \
            SESSION.ENTER. `delegated_ms` if the route is delegated. With EPOCH, if nothing has changed: one integer, \
            and with TURN an array of that integer and the turn's number; if the route is delegated, an array of that \
            integer and `delegated_ms`",
    details: "\
The hot path: one round trip before every call that a gateway sends. It checks the principal and that the session is
active, slides the TTL, and returns where calls to the server go. `unbound`: the caller binds the server first.
`claimed`: another attempt is initializing the binding, and WORKER.WAIT reports when the claim is settled. `orphaned`:
the owner is dead or the claim's lease lapsed, so the caller moves the binding with REBIND. With TURN the command also
asks for the caller's turn, as ENTER does.

DELEGATE is for servers whose calls run in parallel: the caller asks to use the route for so many milliseconds without
asking again. That excludes no other worker. WORKER.WAIT reports `settled` when the binding changes, when the session
ends, and when the time is over. The conditions are those of DELEGATE in SESSION.ENTER, except for the turns in a row.
If they are not met, the reply is the same as without DELEGATE.

EPOCH is the epoch of the binding that the caller knows, `bound` and with the caller as its `driver`. If epoch, state
and driver are unchanged, and the binding has no owner and no loss to report, the reply is one integer: the 64 bits of
the request's digest, as a signed number. The instance and the upstream session of a binding never change without its
epoch.",
    errors: &[
        ErrorSpec::NO_SESSION,
        ErrorSpec::ENDED,
        ErrorSpec::DENIED,
        turn::WORKER_DEAD,
        turn::QUEUE_FULL,
        ErrorSpec::CORRUPT,
        ErrorSpec::WRONG_TYPE,
    ],
};

const TICKET: ArgumentSpec = ArgumentSpec::text(c"ticket");
const LEASE: ArgumentSpec = ArgumentSpec::integer(c"ms").after(c"LEASE");

/// The parts of a request for a turn.
const TURN: &[ArgumentSpec] = &[TICKET, LEASE];

/// What the caller asks for beside the route.
enum RouteWish {
    /// Its turn.
    Turn { ticket: Token, lease: Millis },
    /// To use the route for so long without asking.
    Delegation(Millis),
}

grammar! {
    parse<'a>(key) -> RouteRequest<'a> {
        principal: text(c"principal", routing::unparsed),
        server: text(c"server", routing::unparsed),
        worker: text(c"worker", WorkerId::check),
        wish: either(
            c"wish",
            c"TURN" => block(c"turn", TURN, parse_turn),
            c"DELEGATE" => integer(c"ms", parse_delegation)
        ),
        epoch: optional(c"EPOCH", integer(c"epoch", arguments::epoch)),
    } => {
        let (turn, delegation) = match wish {
            None => (None, None),
            Some(RouteWish::Delegation(length)) => (None, Some(length)),
            Some(RouteWish::Turn { ticket, lease }) => {
                let turn = TurnRequest {
                    worker: WorkerId::parse(worker.as_bytes())?,
                    ticket,
                    lease,
                    line: Line::Last,
                    scope: TurnScope::Call,
                    held: None,
                };
                (Some(turn), None)
            }
        };
        Ok(RouteRequest {
            principal,
            server,
            turn,
            delegation,
            worker,
            known_epoch: epoch,
        })
    }
}

fn parse_delegation(word: &[u8]) -> Result<RouteWish, NameError> {
    turn::delegation(word).map(RouteWish::Delegation)
}

fn parse_turn<'a>(words: &mut Parser<impl Words<'a>>) -> Result<RouteWish, Failure> {
    let ticket = words.name(Token::parse)?;
    if words.is_at_end() {
        return Err(Failure::Missing(c"LEASE"));
    }
    let word = words.value()?;
    if !word.eq_ignore_ascii_case(b"LEASE") {
        return Err(Failure::near(word));
    }
    let lease = words.name(turn::lease)?;
    Ok(RouteWish::Turn { ticket, lease })
}

impl Command for RouteCommand {
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
