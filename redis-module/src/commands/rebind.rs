//! `SESSION.REBIND key principal server epoch worker token LEASE ms INSTANCES n instance... [AVOID instance]
//! [REASON text] [OWNED]`

use mooring_session::names::{InstanceName, Principal, Reason, ServerName, Token, WorkerId};
use mooring_session::record::Binding;
use mooring_session::rules::{self, Ownership, Rebind, Rebound};

use crate::arguments::{OptionWord, Parser, Seen, required};
use crate::digest::digest;
use crate::failure::Failure;
use crate::ffi::{self, Arguments, Context, Level, Text};
use crate::handler::{Command, Outcome};
use crate::module::{Module, Surroundings};
use crate::record_io::Slot;
use crate::registrar::{ArgumentSpec, CommandSpec, KeyAccess};
use crate::reply;

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
        ArgumentSpec::integer(c"ms").after(c"LEASE"),
        ArgumentSpec::block(
            c"candidates",
            c"INSTANCES",
            &[
                ArgumentSpec::integer(c"n"),
                ArgumentSpec::text(c"instance").multiple(),
            ],
        ),
        ArgumentSpec::text(c"instance").after(c"AVOID").optional(),
        ArgumentSpec::text(c"text").after(c"REASON").optional(),
        ArgumentSpec::word(c"owned", c"OWNED"),
    ],
    reply: "`won` 0|1, `previous` (the upstream session left behind), then the binding",
};

#[derive(Clone, Copy)]
enum Word {
    Lease,
    Instances,
    Avoid,
    Reason,
    Owned,
}

const OPTIONS: [OptionWord<Word>; 5] = [
    OptionWord::once("LEASE", Word::Lease),
    OptionWord::once("INSTANCES", Word::Instances),
    OptionWord::once("AVOID", Word::Avoid),
    OptionWord::once("REASON", Word::Reason),
    OptionWord::once("OWNED", Word::Owned),
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

fn parse(arguments: Arguments<'_>) -> Result<Rebind, Failure> {
    let mut words = Parser::new(arguments);
    words.key()?;
    let principal = words.name(Principal::parse)?;
    let server = words.name(ServerName::parse)?;
    let epoch = words.epoch()?;
    let worker = words.name(WorkerId::parse)?;
    let token = words.name(Token::parse)?;
    let (mut lease, mut instances, mut avoid, mut reason) = (None, None, None, None);
    let mut ownership = Ownership::Shared;
    let mut seen = Seen::default();
    while let Some(option) = words.option(&OPTIONS, &mut seen)? {
        match option {
            Word::Lease => lease = Some(words.lease()?),
            Word::Instances => instances = Some(words.instances()?),
            Word::Avoid => avoid = Some(words.name(InstanceName::parse)?),
            Word::Reason => reason = Some(words.name(Reason::parse)?),
            Word::Owned => ownership = Ownership::Owned,
        }
    }
    Ok(Rebind {
        principal,
        server,
        epoch,
        worker,
        token,
        lease: required("LEASE", lease)?,
        instances: required("INSTANCES", instances)?,
        avoid,
        reason,
        ownership,
    })
}

fn apply(
    context: &Context,
    module: &mut Module,
    key: Text<'_>,
    request: &Rebind,
) -> Result<(Rebound, Outcome), Failure> {
    let mut slot = Slot::load(context, key)?;
    let before = slot
        .record
        .as_ref()
        .and_then(|record| record.bindings.get(&request.server))
        .cloned();
    let surroundings = Surroundings::at(module, context.unix_ms());
    let rules_context = surroundings.context();
    let decided = rules::rebind(&mut slot.record, key.as_bytes(), request, &rules_context)?;
    slot.store(decided.written, &module.fields);
    let rebound = decided.reply;
    let Some(before) = before.filter(|before| before.epoch != rebound.binding.epoch) else {
        return Ok((rebound, Outcome::Quiet));
    };
    module.figures.rebinds += 1;
    log(context, key, &before, &rebound);
    Ok((rebound, Outcome::Transition(c"session.rebound")))
}

fn log(context: &Context, key: Text<'_>, before: &Binding, rebound: &Rebound) {
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
