//! `SESSION.REBIND key principal server epoch worker token LEASE ms INSTANCES n instance... [AVOID instance]
//! [REASON text] [UPSTREAM upstream_session] [OWNED] [UNREPORTED]`

use mooring_session::names::{
    InstanceName, Principal, Reason, ServerName, Token, UpstreamSession, WorkerId,
};
use mooring_session::record::Binding;
use mooring_session::rules::{self, LossReport, Rebind, RebindReply};

use super::claim_clause::{self, ClaimClause, Part};
use crate::arguments::{OptionWord, Parser, SeenOptions, Words};
use crate::claims;
use crate::digest::digest;
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context, Level, Text};
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::record_io::Slot;
use crate::registrar::{ArgumentSpec, CommandSpec, KeyAccess};
use crate::reply;
use crate::rule_inputs::RuleInputs;

struct RebindCommand;

/// What Redis shall know of it.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.rebind",
    entry: ffi::entry::<RebindCommand>(),
    flags: c"write deny-oom fast",
    arity: -12,
    key: KeyAccess::Update,
    summary: c"Moves a binding to a new claim if its epoch is still the one given; else tells what holds.",
    complexity: c"O(N+I) with N being the number of fields of the record and I the number of instances",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output"),
    categories: c"write fast session",
    core_categories: c"write fast",
    arguments: &[
        ArgumentSpec::key(),
        ArgumentSpec::text(c"principal"),
        ArgumentSpec::text(c"server"),
        ArgumentSpec::integer(c"epoch"),
        ArgumentSpec::text(c"worker"),
        ArgumentSpec::text(c"token"),
        claim_clause::LEASE,
        claim_clause::INSTANCES,
        ArgumentSpec::text(c"instance").after(c"AVOID").optional(),
        ArgumentSpec::text(c"text").after(c"REASON").optional(),
        ArgumentSpec::text(c"upstream_session")
            .after(c"UPSTREAM")
            .optional(),
        claim_clause::OWNED,
        ArgumentSpec::word(c"unreported", c"UNREPORTED"),
    ],
    reply: "`won` 0|1, `previous` (the upstream session left behind), then the binding",
    details: "\
A compare-and-set on the epoch: of many callers that see one loss, exactly one moves the binding. Where the epoch
matches, the caller gets a new claim with a new epoch, `rebinds` grows by one, and `previous` is the upstream session
left behind, for the winner to delete. Where it does not match, or another attempt's claim is live, nothing changes:
`won` is 0 and the binding in the answer is to be adopted. The same token again gets the same answer.

With UPSTREAM, which says that the new upstream session is there already, the binding is `bound` at once; `previous` is
null where that is the one that it was bound to before.

UNREPORTED is for a caller that has no reply in which it could tell the client that state was lost: SESSION.ROUTE and
SESSION.ENTER then answer with `lost_instance` while the server is bound, until SESSION.TOUCH says REPORTED, or a REBIND
without UNREPORTED moves the binding again. A claim that never was bound has no state to lose.

The present instance is kept where it is among INSTANCES and is not AVOIDed; else placement is as in SESSION.BIND. Every
move is logged at level notice.",
    errors: &[
        ErrorSpec::NO_SESSION,
        ErrorSpec::ENDED,
        ErrorSpec::DENIED,
        ErrorSpec::new("STALE", "the server is not bound at all"),
        ErrorSpec::new(
            "OWNED",
            "the binding's owner is alive, is not the caller, and does not drain or holds a turn",
        ),
        ErrorSpec::new("BUSY", "OWNED was given and the worker is draining"),
        ErrorSpec::CORRUPT,
        ErrorSpec::WRONG_TYPE,
    ],
};

#[derive(Clone, Copy)]
enum Word {
    Claim(Part),
    Avoid,
    Reason,
    Upstream,
    Unreported,
}

const OPTIONS: [OptionWord<Word>; 7] = [
    Part::Lease.option(Word::Claim(Part::Lease)),
    Part::Instances.option(Word::Claim(Part::Instances)),
    OptionWord::once("AVOID", Word::Avoid),
    OptionWord::once("REASON", Word::Reason),
    OptionWord::once("UPSTREAM", Word::Upstream),
    Part::Owned.option(Word::Claim(Part::Owned)),
    OptionWord::once("UNREPORTED", Word::Unreported),
];

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

pub(super) fn parse<'a>(words: impl Words<'a>) -> Result<Rebind, Failure> {
    let mut words = Parser::new(words);
    words.key()?;
    let principal = words.name(Principal::parse)?;
    let server = words.name(ServerName::parse)?;
    let epoch = words.epoch()?;
    let worker = words.name(WorkerId::parse)?;
    let token = words.name(Token::parse)?;
    let mut claim = ClaimClause::new();
    let (mut avoid, mut reason, mut upstream_session) = (None, None, None);
    let mut report = LossReport::ByCaller;
    let mut seen = SeenOptions::default();
    while let Some(option) = words.option(&OPTIONS, &mut seen)? {
        match option {
            Word::Claim(part) => claim.take(part, &mut words)?,
            Word::Avoid => avoid = Some(words.name(InstanceName::parse)?),
            Word::Reason => reason = Some(words.name(Reason::parse)?),
            Word::Upstream => upstream_session = Some(words.name(UpstreamSession::parse)?),
            Word::Unreported => report = LossReport::ByNextCall,
        }
    }
    let (lease, instances, ownership) = claim.whole()?;
    Ok(Rebind {
        principal,
        server,
        epoch,
        worker,
        token,
        lease,
        instances,
        avoid,
        reason,
        upstream_session,
        ownership,
        report,
    })
}

fn apply(
    context: &Context,
    module: &mut Module,
    key: Text<'_>,
    request: &Rebind,
) -> Result<(RebindReply, Outcome), Failure> {
    let mut slot = Slot::load(context, key)?;
    let before = slot
        .record
        .as_ref()
        .and_then(|record| record.bindings.get(&request.server))
        .cloned();
    let inputs = RuleInputs::at(module, slot.moment());
    let rules_context = inputs.context();
    let decided = rules::rebind(&mut slot.record, key.as_bytes(), request, &rules_context)?;
    slot.store(decided.written, module);
    let rebound = decided.reply;
    let moment = slot.moment();
    let server = &request.server;
    if !rebound.won {
        claims::watch_binding(module, moment, &request.worker, &rebound.binding);
    }
    let Some(before) = before.filter(|before| before.epoch != rebound.binding.epoch) else {
        return Ok((rebound, Outcome::Quiet));
    };
    // Whoever waited for a claim of the epoch before asks again.
    claims::settle(module, moment, server);
    module.counters.rebinds += 1;
    if before.instance != rebound.binding.instance {
        let mono = module.monotonic();
        let departures = &mut module.departures;
        departures.note(&request.server, &before.instance, mono);
    }
    log(context, key, &before, &rebound);
    Ok((rebound, Outcome::Transition(c"session.rebound")))
}

fn log(context: &Context, key: Text<'_>, before: &Binding, rebound: &RebindReply) {
    let after = &rebound.binding;
    let reason = after
        .last_reason
        .as_ref()
        .map_or("", |reason| reason.as_str());
    let line = format!(
        "session rebound: key={} server={} from={} to={} epoch={} reason={reason:?}",
        digest(key.as_bytes()),
        after.server,
        before.instance,
        after.instance,
        after.epoch,
    );
    context.log(Level::Notice, &line);
}
