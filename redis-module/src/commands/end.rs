//! `SESSION.END key principal [IFIDLE]`

use mooring_session::Refusal;
use mooring_session::names::Principal;
use mooring_session::rules::{self, EndCondition, EndReply, EndRequest};

use crate::claims;
use crate::command_spec::{CommandSpec, KeyAccess};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context, Text};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::moment::Moment;
use crate::record_io;
use crate::reply;

struct EndCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.end",
    entry: ffi::entry::<EndCommand>(),
    flags: c"write fast",
    arity: -3,
    key: KeyAccess::Update,
    summary: c"Ends a session. Its tombstone keeps what the caller has to clean up.",
    complexity: c"O(N) with N being the number of fields of the record",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output names_request"),
    categories: c"write fast",
    arguments: ARGUMENTS,
    reply: "`ended_now` 0|1, then the record",
    details: "\
The caller that ended the session (`ended_now` 1) deletes the upstream sessions of the bindings in the reply. It has
30 seconds for that before a reaper may take over the cleanup; FORGET with the `gen` of the reply then drops the
tombstone. Ending a session twice is no error. With IFIDLE, a session with a live claim or a held turn is not ended.",
    errors: &[
        ErrorSpec::NO_SESSION,
        ErrorSpec::DENIED,
        ErrorSpec::new("BUSY", "IFIDLE was given and a claim is live or a turn is held"),
        ErrorSpec::CORRUPT,
        ErrorSpec::WRONG_TYPE,
    ],
};

grammar! {
    parse<'a>(key) -> EndRequest {
        principal: text(c"principal", Principal::parse),
        when: word(c"IFIDLE", c"ifidle", EndCondition::Always => EndCondition::Idle),
    } => Ok(EndRequest {
        principal: Some(principal),
        when,
    })
}

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

/// What END and KILL do.
pub(super) fn apply(
    context: &Context,
    module: &mut Module,
    key: Text<'_>,
    request: &EndRequest,
) -> Result<EndReply, Failure> {
    let applied = record_io::apply(context, module, key, |record, rules_context| {
        rules::end(record, request, rules_context)
    });
    if let Err(Failure::Refused(Refusal::Busy(_))) = &applied {
        // A turn that is delegated may belong to no call.
        claims::recall_turns(module, &Moment::of(context, key));
    }
    let (slot, decided) = applied?;
    if decided.reply.ended_now {
        claims::settle_session(module, slot.moment());
    }
    module.counters.ends += u64::from(decided.reply.ended_now);
    Ok(decided.reply)
}

/// Ending twice is one transition.
pub(super) const fn outcome(ended: &EndReply) -> Outcome {
    if ended.ended_now {
        Outcome::Transitions(&[c"session.ended"])
    } else {
        Outcome::Quiet
    }
}
