//! `SESSION.ROUTE key principal server worker [TURN ticket LEASE ms]`
//!
//! The hot path: one round trip before every call that a gateway dispatches. This is its grammar; the work is
//! [`routing`]'s.

use mooring_session::names::{Token, WorkerId};
use mooring_session::turns::{Enter, Line};

use super::routing::{self, RouteRequest};
use super::turn;
use crate::arguments::{OptionWord, Parser, SeenOptions, Words, required};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context};
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::registrar::{ArgumentSpec, CommandSpec, KeyAccess};

struct RouteCommand;

/// What Redis shall know of it.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.route",
    entry: ffi::entry::<RouteCommand>(),
    flags: c"write fast",
    arity: -5,
    key: KeyAccess::Update,
    summary: c"Tells where a session's calls to a server go, and notes the use.",
    complexity: c"O(1)",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output"),
    categories: c"write fast session",
    core_categories: c"write fast",
    arguments: &[
        ArgumentSpec::key(),
        ArgumentSpec::text(c"principal"),
        ArgumentSpec::text(c"server"),
        ArgumentSpec::text(c"worker"),
        ArgumentSpec::block(
            c"turn",
            c"TURN",
            &[
                ArgumentSpec::text(c"ticket"),
                ArgumentSpec::integer(c"ms").after(c"LEASE"),
            ],
        )
        .optional(),
    ],
    reply: "`state` `unbound` alone; or `state` `claimed`|`bound`|`orphaned`, `instance`, `driver`, \
            `epoch`, and where there is one `upstream_session`, `owner` with `owner_alive` and `owner_address`, \
            `lease_until`, `worker_lost` (the dead worker that drove it before, told once), and `lost_instance` with \
            `lost_reason` (a loss that no reply has reported to the client yet: see SESSION.REBIND, UNREPORTED, and \
            SESSION.TOUCH, REPORTED). What is absent is left out: this is the hot path, and every field costs. With TURN also `turn`: its number, or null while the \
            caller waits",
    details: "\
The hot path: one round trip before every call that a gateway sends. It checks the principal and that the session
is active, slides the TTL, and answers where calls to the server go. `unbound`: bind it first. `claimed`: another
attempt is initialising it, and WORKER.WAIT tells when that has come to something. `orphaned`: its owner is dead or its
claim's lease lapsed, so REBIND moves it. With TURN it asks for the caller's turn too, as ENTER does.",
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

impl Command for RouteCommand {
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

pub(super) fn parse<'a>(words: impl Words<'a>) -> Result<RouteRequest<'a>, Failure> {
    let mut words = Parser::new(words);
    words.key()?;
    let mut request = RouteRequest {
        principal: words.value()?,
        server: words.value()?,
        worker: words.name(WorkerId::parse)?,
        turn: None,
    };
    if !words.is_at_end() {
        request.turn = Some(parse_turn(&mut words, &request.worker)?);
    }
    Ok(request)
}

const OPTIONS: [OptionWord<Word>; 2] = [
    OptionWord::once("TURN", Word::Turn),
    OptionWord::once("LEASE", Word::Lease),
];

#[derive(Clone, Copy)]
enum Word {
    Turn,
    Lease,
}

fn parse_turn<'a>(words: &mut Parser<impl Words<'a>>, worker: &WorkerId) -> Result<Enter, Failure> {
    let (mut ticket, mut lease) = (None, None);
    let mut seen = SeenOptions::default();
    while let Some(option) = words.option(&OPTIONS, &mut seen)? {
        match option {
            Word::Turn => ticket = Some(words.name(Token::parse)?),
            Word::Lease => lease = Some(turn::lease(words)?),
        }
    }
    Ok(Enter {
        worker: worker.clone(),
        ticket: required("TURN", ticket)?,
        lease: required("LEASE", lease)?,
        line: Line::Last,
        held: None,
    })
}
