//! `SESSION.REBIND key principal server epoch worker token LEASE ms INSTANCES n instance... [AVOID instance]
//! [REASON text] [UPSTREAM upstream_session] [OWNED] [UNREPORTED]`

use mooring_session::RecordChange;
use mooring_session::names::{
    InstanceName, Principal, Reason, ServerName, Token, UpstreamSession, WorkerId,
};
use mooring_session::record::Binding;
use mooring_session::rules::{self, LossReport, Ownership, RebindReply, RebindRequest};

use crate::arguments::{self, INSTANCES};
use crate::claims;
use crate::command_spec::{CommandSpec, KeyAccess};
use crate::digest::session_digest;
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context, Level, Text};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::record_io;
use crate::reply;

struct RebindCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.rebind",
    entry: ffi::entry::<RebindCommand>(),
    flags: c"write deny-oom fast",
    arity: -12,
    key: KeyAccess::Update,
    summary: c"Moves a binding to a new claim if its epoch is still the one given; otherwise returns the current binding.",
    complexity: c"O(N+I) with N being the number of fields of the record and I the number of instances",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output names_request"),
    categories: c"write fast",
    arguments: ARGUMENTS,
    reply: "`won` 0|1, `previous` (the upstream session left behind), then the binding",
    details: "\
A compare-and-set on the epoch: if many callers see the same loss, exactly one of them moves the binding. If the epoch
matches, the caller gets a new claim with a new epoch, `rebinds` grows by one, and `previous` is the upstream session
left behind, which the caller deletes. If it does not match, or the claim of another attempt is live, nothing changes:
`won` is 0 and the caller uses the binding in the reply. The same token gets the same reply again.

With UPSTREAM the new upstream session exists already, and the binding is `bound` at once; `previous` is null if the
binding was bound to that session before.

UNREPORTED is for a caller that has no reply in which to tell the client that state was lost: SESSION.ROUTE and
SESSION.ENTER then return `lost_instance` while the server is bound, until SESSION.TOUCH with REPORTED, or until a
REBIND without UNREPORTED moves the binding again. A claim that never was bound has no state to lose.

The current instance is kept if it is among INSTANCES and is not AVOIDed; otherwise an instance is chosen as in
SESSION.BIND. Every move is logged at level notice.",
    errors: &[
        ErrorSpec::NO_SESSION,
        ErrorSpec::ENDED,
        ErrorSpec::DENIED,
        ErrorSpec::new("STALE", "the server is not bound at all"),
        ErrorSpec::new(
            "OWNED",
            "the binding's owner is alive and not the caller, and it is not draining or holds a turn",
        ),
        ErrorSpec::new("BUSY", "OWNED was given and the worker is draining"),
        ErrorSpec::CORRUPT,
        ErrorSpec::WRONG_TYPE,
    ],
};

grammar! {
    parse<'a>(key) -> RebindRequest {
        principal: text(c"principal", Principal::parse),
        server: text(c"server", ServerName::parse),
        epoch: integer(c"epoch", arguments::epoch),
        worker: text(c"worker", WorkerId::parse),
        token: secret(c"token", Token::parse),
        lease: required(c"LEASE", integer(c"ms", arguments::lease)),
        instances: required(c"INSTANCES", block(c"candidates", INSTANCES, arguments::instances)),
        avoid: optional(c"AVOID", text(c"instance", InstanceName::parse)),
        reason: optional(c"REASON", text(c"text", Reason::parse)),
        upstream_session: optional(c"UPSTREAM", secret(c"upstream_session", UpstreamSession::parse)),
        ownership: word(c"OWNED", c"owned", Ownership::Shared => Ownership::Owned),
        report: word(c"UNREPORTED", c"unreported", LossReport::ByCaller => LossReport::ByNextCall),
    }
}

impl Command for RebindCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let request = parse(arguments)?;
        let key = arguments.get(1).ok_or(Failure::Internal)?;
        let (rebound, outcome) = apply(context, module, key, &request)?;
        reply::rebound(context, &rebound);
        Ok(outcome)
    }
}

fn apply(
    context: &Context,
    module: &mut Module,
    key: Text<'_>,
    request: &RebindRequest,
) -> Result<(RebindReply, Outcome), Failure> {
    let mut before = None;
    let (slot, decided) = record_io::apply(context, module, key, |record, rules_context| {
        let bindings = record.as_ref().map(|record| &record.bindings);
        before = bindings.and_then(|all| all.get(&request.server)).cloned();
        rules::rebind(record, key.as_bytes(), request, rules_context)
    })?;
    let rebound = decided.reply;
    let moment = slot.moment();
    let server = &request.server;
    if !rebound.won {
        claims::watch_binding(module, moment, &request.worker, &rebound.binding);
    }
    let moved = before.filter(|before| before.epoch != rebound.binding.epoch);
    let is_bound = decided.written == RecordChange::Record && request.upstream_session.is_some();
    if moved.is_some() || is_bound {
        // Workers that wait for a claim of the previous epoch, or for this one, ask again.
        claims::settle(module, moment, server);
    }
    let Some(before) = moved else {
        // A retry with the upstream session confirms its claim.
        let outcome = match is_bound {
            true => Outcome::Transitions(&[c"session.bound"]),
            false => Outcome::Quiet,
        };
        return Ok((rebound, outcome));
    };
    module.counters.rebinds += 1;
    if before.instance != rebound.binding.instance {
        let mono = module.monotonic();
        let departures = &mut module.departures;
        departures.note(&request.server, &before.instance, mono);
    }
    log(context, key, &before, &rebound);
    let outcome = match is_bound {
        true => Outcome::Transitions(&[c"session.rebound", c"session.bound"]),
        false => Outcome::Transitions(&[c"session.rebound"]),
    };
    Ok((rebound, outcome))
}

fn log(context: &Context, key: Text<'_>, before: &Binding, rebound: &RebindReply) {
    let after = &rebound.binding;
    let reason = after
        .last_reason
        .as_ref()
        .map_or("", |reason| reason.as_str());
    let line = format!(
        "session rebound: session={} server={} from={} to={} epoch={} reason={reason:?}",
        session_digest(key.as_bytes()),
        after.server,
        before.instance,
        after.instance,
        after.epoch,
    );
    context.log(Level::Notice, &line);
}
