//! `SESSION.CLAIM key worker LEASE ms`

use mooring_session::names::WorkerId;
use mooring_session::rules::{self, Clean};
use mooring_session::view::RecordView;

use crate::arguments::{OptionWord, Parser, SeenOptions, Words, required};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context, Text};
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::record_io::Slot;
use crate::registrar::{ArgumentSpec, CommandSpec, KeyAccess};
use crate::reply;
use crate::rule_inputs::RuleInputs;

struct ClaimCommand;

/// What Redis shall know of it.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.claim",
    entry: ffi::entry::<ClaimCommand>(),
    // No deny-oom, although a tombstone grows by one lease: it is how memory comes back.
    flags: c"write fast",
    arity: 5,
    key: KeyAccess::Update,
    summary: c"Takes a tombstone for cleaning up what its session held.",
    complexity: c"O(N) with N being the number of fields of the record",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output"),
    categories: c"write fast session",
    core_categories: c"write fast",
    arguments: &[
        ArgumentSpec::key(),
        ArgumentSpec::text(c"worker"),
        ArgumentSpec::integer(c"ms").after(c"LEASE"),
    ],
    reply: "the record",
    details: "\
For reapers: SESSION.REAP names the keys. Until the lease is over nobody else may clean the session up; the same worker
asking again renews the lease. The caller deletes the upstream sessions of the bindings in the answer and then drops the
tombstone by SESSION.FORGET with the answer's `gen`.",
    errors: &[
        ErrorSpec::NO_SESSION,
        ErrorSpec::new(
            "BUSY",
            "the session is active, a claim on one of its bindings is live, or another worker is cleaning it up",
        ),
        ErrorSpec::CORRUPT,
        ErrorSpec::WRONG_TYPE,
    ],
};

const OPTIONS: [OptionWord<()>; 1] = [OptionWord::once("LEASE", ())];

impl Command for ClaimCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let request = parse(arguments)?;
        let key = arguments.get(1).ok_or(Failure::Internal)?;
        let record = apply(context, module, key, &request)?;
        reply::record(context, &record);
        Ok(Outcome::Quiet)
    }
}

pub(super) fn parse<'a>(words: impl Words<'a>) -> Result<Clean, Failure> {
    let mut words = Parser::new(words);
    words.key()?;
    let worker = words.name(WorkerId::parse)?;
    let mut lease = None;
    let mut seen = SeenOptions::default();
    while words.option(&OPTIONS, &mut seen)?.is_some() {
        lease = Some(words.lease()?);
    }
    Ok(Clean {
        worker,
        lease: required("LEASE", lease)?,
    })
}

fn apply(
    context: &Context,
    module: &mut Module,
    key: Text<'_>,
    request: &Clean,
) -> Result<RecordView, Failure> {
    let mut slot = Slot::load(context, key)?;
    let inputs = RuleInputs::at(module, slot.moment());
    let decided = rules::claim(&mut slot.record, request, &inputs.context())?;
    slot.store(decided.written, module);
    Ok(decided.reply)
}
