//! `SESSION.RATE key LIMIT n WINDOW ms [COST c]`

use mooring_session::limits::{RATE_LIMIT_MAX, RATE_WINDOW_MAX, RATE_WINDOW_MIN};
use mooring_session::rules::{self, RateReply, RateRequest, TheoreticalArrivalTime};
use mooring_session::time::Timestamp;

use crate::arguments::{duration, integer};
use crate::command_spec::{CommandSpec, KeyAccess};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context, KeyKind, OwnedText, Text};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::reply;

struct RateCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.rate",
    entry: ffi::entry::<RateCommand>(),
    flags: c"write deny-oom fast",
    arity: -6,
    key: KeyAccess::Update,
    summary: c"Counts a request against a rate limit shared by the whole fleet, and returns whether it passes.",
    complexity: c"O(1)",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output names_request"),
    categories: c"write fast",
    arguments: ARGUMENTS,
    reply: "`allowed` 0|1, `remaining` (how many of cost one would still pass now), `retry_after_ms` (0 if it \
            passed)",
    details: "\
Implements the generic cell rate algorithm (GCRA): `n` requests may pass at once, and after that as many as their
share of the window allows, evenly. The key is not that of a session. It holds a string: the time at which all
requests that passed will have been spent at that pace (in nanoseconds), and the widest WINDOW that was requested
meanwhile. The key expires at that time: a narrower WINDOW does not shorten it. A request that does not pass writes
nothing, unless the server's clock was set back: a time further ahead than the widest window is then set to one such
window ahead. A request counts as COST (default 1, at most `n`). LIMIT is 1 to 1000000, WINDOW 1 ms to 30 days.",
    errors: &[
        ErrorSpec::new("ERR", "the key holds a string of another format: `corrupt rate record`"),
        ErrorSpec::new("WRONGTYPE", "the key holds a value that is not a string"),
    ],
};

grammar! {
    parse<'a>(key) -> RateRequest {
        limit: required(c"LIMIT", integer(c"n", integer("LIMIT", 1, RATE_LIMIT_MAX))),
        window: required(c"WINDOW", integer(c"ms", duration("WINDOW", RATE_WINDOW_MIN, RATE_WINDOW_MAX))),
        cost: optional(c"COST", integer(c"c", integer("COST", 1, RATE_LIMIT_MAX))),
    } => Ok(RateRequest {
        limit,
        window,
        cost: check_cost(cost.unwrap_or(1), limit)?,
    })
}

impl Command for RateCommand {
    fn run(
        context: &Context,
        _module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let request = parse(arguments)?;
        let key = arguments.get(1).ok_or(Failure::Internal)?;
        let rated = apply(context, key, &request)?;
        reply::rated(context, &rated);
        Ok(Outcome::Quiet)
    }
}

/// A cost above the limit would never pass.
fn check_cost(cost: u64, limit: u64) -> Result<u64, Failure> {
    if cost <= limit {
        return Ok(cost);
    }
    Err(Failure::from(mooring_session::names::NameError {
        what: "COST",
        problem: mooring_session::names::Problem::Range(1, limit),
    }))
}

fn apply(context: &Context, name: Text<'_>, request: &RateRequest) -> Result<RateReply, Failure> {
    let key = context.open(name);
    let stored = match key.kind() {
        KeyKind::Empty => None,
        KeyKind::String => {
            let value = key.read_string().ok_or(Failure::Internal)?;
            Some(TheoreticalArrivalTime::decode(&value).map_err(|_| Failure::CorruptRate)?)
        }
        KeyKind::Hash | KeyKind::Other => return Err(Failure::WrongType),
    };
    let now = Timestamp::from_unix_ms(context.unix_ms());
    let rated = rules::rate(stored, request, now);
    if let Some(written) = rated.written {
        let value = OwnedText::new(written.encode().as_bytes());
        let ends_at = i64::try_from(written.expires_at().unix_ms()).unwrap_or(i64::MAX);
        key.set_string(value.text());
        key.expire_at(ends_at);
        context.replicate_set_string(name, value.text(), ends_at);
        context.signal_modified(name);
    }
    Ok(rated)
}
