//! `SESSION.BIND key principal server worker token LEASE ms INSTANCES n instance... [UPSTREAM upstream_session] [OWNED]`

use mooring_session::names::{Principal, ServerName, Token, UpstreamSession, WorkerId};
use mooring_session::rules::{self, Bind, Bound, Ownership};

use crate::arguments::{OptionWord, Parser, Seen, required};
use crate::failure::Failure;
use crate::ffi::{self, Arguments, Context, Text};
use crate::handler::{Command, Outcome};
use crate::module::{Module, Surroundings};
use crate::record_io::Slot;
use crate::registrar::{ArgumentSpec, CommandSpec, KeyAccess};
use crate::reply;

struct BindCommand;

/// What Redis shall know of it.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.bind",
    entry: ffi::entry::<BindCommand>(),
    flags: c"write deny-oom fast",
    arity: -11,
    key: KeyAccess::Update,
    summary: c"Binds a session to an instance of a server. The first bind wins; the others learn what holds.",
    complexity: c"O(N+I) with N being the number of fields of the record and I the number of instances",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output"),
    categories: c"write fast session",
    core_categories: c"write fast",
    arguments: &[
        ArgumentSpec::key(),
        ArgumentSpec::text(c"principal"),
        ArgumentSpec::text(c"server"),
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
        ArgumentSpec::text(c"upstream_session")
            .after(c"UPSTREAM")
            .optional(),
        ArgumentSpec::word(c"owned", c"OWNED"),
    ],
    reply: "`won` 0|1, then the binding",
};

#[derive(Clone, Copy)]
enum Word {
    Lease,
    Instances,
    Upstream,
    Owned,
}

const OPTIONS: [OptionWord<Word>; 4] = [
    OptionWord::once("LEASE", Word::Lease),
    OptionWord::once("INSTANCES", Word::Instances),
    OptionWord::once("UPSTREAM", Word::Upstream),
    OptionWord::once("OWNED", Word::Owned),
];

impl Command for BindCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let request = parse(arguments)?;
        let key = arguments.get(1).ok_or(Failure::Internal)?;
        let (bound, outcome) = apply(context, module, key, &request)?;
        reply::bound(context, &bound);
        Ok(outcome)
    }
}

fn parse(arguments: Arguments<'_>) -> Result<Bind, Failure> {
    let mut words = Parser::new(arguments);
    words.key()?;
    let principal = words.name(Principal::parse)?;
    let server = words.name(ServerName::parse)?;
    let worker = words.name(WorkerId::parse)?;
    let token = words.name(Token::parse)?;
    let (mut lease, mut instances, mut upstream_session) = (None, None, None);
    let mut ownership = Ownership::Shared;
    let mut seen = Seen::default();
    while let Some(option) = words.option(&OPTIONS, &mut seen)? {
        match option {
            Word::Lease => lease = Some(words.lease()?),
            Word::Instances => instances = Some(words.instances()?),
            Word::Upstream => upstream_session = Some(words.name(UpstreamSession::parse)?),
            Word::Owned => ownership = Ownership::Owned,
        }
    }
    Ok(Bind {
        principal,
        server,
        worker,
        token,
        lease: required("LEASE", lease)?,
        instances: required("INSTANCES", instances)?,
        upstream_session,
        ownership,
    })
}

fn apply(
    context: &Context,
    module: &mut Module,
    key: Text<'_>,
    request: &Bind,
) -> Result<(Bound, Outcome), Failure> {
    let mut slot = Slot::load(context, key)?;
    let bindings_before = bindings(&slot);
    let surroundings = Surroundings::at(module, context.unix_ms());
    let rules_context = surroundings.context();
    let decided = rules::bind(&mut slot.record, key.as_bytes(), request, &rules_context)?;
    slot.store(decided.written, &module.fields);
    let is_new = bindings(&slot) > bindings_before;
    module.figures.binds += u64::from(is_new);
    let outcome = if is_new {
        Outcome::Transition(c"session.bound")
    } else {
        Outcome::Quiet
    };
    Ok((decided.reply, outcome))
}

fn bindings(slot: &Slot<'_>) -> usize {
    slot.record
        .as_ref()
        .map_or(0, |record| record.bindings.len())
}
