//! `SESSION.END key principal [IFIDLE]`

use mooring_session::names::Principal;
use mooring_session::rules::{self, End, EndReply, EndWhen};

use crate::arguments::{OptionWord, Parser, SeenOptions, Words};
use crate::claims;
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context, Text};
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::record_io::Slot;
use crate::registrar::{ArgumentSpec, CommandSpec, KeyAccess};
use crate::reply;
use crate::rule_inputs::RuleInputs;

struct EndCommand;

/// What Redis shall know of it.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.end",
    entry: ffi::entry::<EndCommand>(),
    flags: c"write fast",
    arity: -3,
    key: KeyAccess::Update,
    summary: c"Ends a session. Its tombstone keeps what the caller has to clean up.",
    complexity: c"O(N) with N being the number of fields of the record",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output"),
    categories: c"write fast session",
    core_categories: c"write fast",
    arguments: &[
        ArgumentSpec::key(),
        ArgumentSpec::text(c"principal"),
        ArgumentSpec::word(c"ifidle", c"IFIDLE"),
    ],
    reply: "`ended_now` 0|1, then the record",
    details: "\
The caller that ended it (`ended_now` 1) deletes the upstream sessions of the bindings in the answer and has 30
seconds for that before a reaper may take it over; FORGET with the answer's `gen` then drops the tombstone. Ending
twice is no error. With IFIDLE only a session that nothing holds is ended.",
    errors: &[
        ErrorSpec::NO_SESSION,
        ErrorSpec::DENIED,
        ErrorSpec::new("BUSY", "IFIDLE was given and a claim is live or a turn is held"),
        ErrorSpec::CORRUPT,
        ErrorSpec::WRONG_TYPE,
    ],
};

const OPTIONS: [OptionWord<EndWhen>; 1] = [OptionWord::once("IFIDLE", EndWhen::Idle)];

impl Command for EndCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let request = parse(arguments)?;
        let key = arguments.get(1).ok_or(Failure::Internal)?;
        let ended = apply(context, module, key, &request)?;
        reply::ended(context, &ended);
        Ok(outcome(&ended))
    }
}

pub(super) fn parse<'a>(words: impl Words<'a>) -> Result<End, Failure> {
    let mut words = Parser::new(words);
    words.key()?;
    let mut request = End {
        principal: Some(words.name(Principal::parse)?),
        when: EndWhen::Always,
    };
    let mut seen = SeenOptions::default();
    while let Some(when) = words.option(&OPTIONS, &mut seen)? {
        request.when = when;
    }
    Ok(request)
}

/// What END and KILL do.
pub(super) fn apply(
    context: &Context,
    module: &mut Module,
    key: Text<'_>,
    request: &End,
) -> Result<EndReply, Failure> {
    let mut slot = Slot::load(context, key)?;
    let inputs = RuleInputs::at(module, slot.moment());
    let decided = rules::end(&mut slot.record, request, &inputs.context())?;
    slot.store(decided.written, module);
    if decided.reply.ended_now {
        claims::settle_session(module, slot.moment());
    }
    module.counters.ends += u64::from(decided.reply.ended_now);
    Ok(decided.reply)
}

/// Ending twice is one transition.
pub(super) const fn outcome(ended: &EndReply) -> Outcome {
    if ended.ended_now {
        Outcome::Transition(c"session.ended")
    } else {
        Outcome::Quiet
    }
}
