//! `SESSION.FORGET key gen worker`

use mooring_session::names::WorkerId;
use mooring_session::rules::{self, Forget};

use crate::arguments::{Parser, Words};
use crate::claims;
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context, Text};
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::record_io::Slot;
use crate::registrar::{ArgumentSpec, CommandSpec, KeyAccess};
use crate::reply;
use crate::rule_inputs::RuleInputs;

struct ForgetCommand;

/// What Redis shall know of it.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.forget",
    entry: ffi::entry::<ForgetCommand>(),
    flags: c"write fast",
    arity: 4,
    key: KeyAccess::Delete,
    summary: c"Drops a tombstone after what its session held was cleaned up.",
    complexity: c"O(N) with N being the number of fields of the record",
    since: c"0.1.0",
    tips: None,
    categories: c"write fast session",
    core_categories: c"write fast",
    arguments: &[
        ArgumentSpec::key(),
        ArgumentSpec::integer(c"gen"),
        ArgumentSpec::text(c"worker"),
    ],
    reply: "`forgotten` 1",
    details: "\
Only the tombstone of exactly the incarnation `gen` is dropped, and only by who cleaned it up: the worker that claimed
it, or after SESSION.END and SESSION.KILL, whose cleaning names no worker, whoever knows the `gen` from the answer. A
session that began anew under the key in the meantime is left alone. Later incarnations under the key never repeat a
number of the one that was dropped.",
    errors: &[
        ErrorSpec::NO_SESSION,
        ErrorSpec::new(
            "STALE",
            "the session is active, has another incarnation, or another worker holds the cleaning",
        ),
        ErrorSpec::CORRUPT,
        ErrorSpec::WRONG_TYPE,
    ],
};

impl Command for ForgetCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let request = parse(arguments)?;
        let key = arguments.get(1).ok_or(Failure::Internal)?;
        apply(context, module, key, &request)?;
        reply::forgotten(context);
        Ok(Outcome::Transition(c"session.forgotten"))
    }
}

pub(super) fn parse<'a>(words: impl Words<'a>) -> Result<Forget, Failure> {
    let mut words = Parser::new(words);
    words.key()?;
    let request = Forget {
        generation: words.generation()?,
        worker: words.name(WorkerId::parse)?,
    };
    words.end()?;
    Ok(request)
}

fn apply(
    context: &Context,
    module: &mut Module,
    key: Text<'_>,
    request: &Forget,
) -> Result<(), Failure> {
    let mut slot = Slot::load(context, key)?;
    let inputs = RuleInputs::at(module, slot.moment());
    let decided = rules::forget(&mut slot.record, request, &inputs.context())?;
    slot.store(decided.written, module);
    claims::settle_session(module, slot.moment());
    module.floor = module.floor.max(decided.reply);
    Ok(())
}
