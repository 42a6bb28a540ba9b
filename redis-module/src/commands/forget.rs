//! `SESSION.FORGET key gen worker`

use mooring_session::names::WorkerId;
use mooring_session::rules::{self, ForgetRequest};

use crate::arguments;
use crate::claims;
use crate::command_spec::{CommandSpec, KeyAccess};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::record_io;
use crate::reply;

struct ForgetCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.forget",
    entry: ffi::entry::<ForgetCommand>(),
    flags: c"write fast",
    arity: 4,
    key: KeyAccess::Delete,
    summary: c"Drops a tombstone after cleanup of what its session held.",
    complexity: c"O(N) with N being the number of fields of the record",
    since: c"0.1.0",
    tips: Some(c"names_request"),
    categories: c"write fast",
    arguments: ARGUMENTS,
    reply: "`forgotten` 1",
    details: "\
Drops only the tombstone of exactly the generation `gen`, and only for the worker that claimed its cleanup. After
SESSION.END and SESSION.KILL, whose cleanup names no worker, any caller may drop it that knows the `gen` from their
reply. A session that was created under the key since then is left alone. Later generations under the key never repeat
a number of the dropped one.",
    errors: &[
        ErrorSpec::NO_SESSION,
        ErrorSpec::new(
            "STALE",
            "the session is active or has another generation, or another worker holds the cleanup",
        ),
        ErrorSpec::CORRUPT,
        ErrorSpec::WRONG_TYPE,
    ],
};

grammar! {
    parse<'a>(key) -> ForgetRequest {
        generation: integer(c"gen", arguments::generation),
        worker: text(c"worker", WorkerId::parse),
    }
}

impl Command for ForgetCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let request = parse(arguments)?;
        let key = arguments.get(1).ok_or(Failure::Internal)?;
        let (slot, decided) = record_io::apply(context, module, key, |record, rules_context| {
            rules::forget(record, &request, rules_context)
        })?;
        claims::settle_session(module, slot.moment());
        module.floor = module.floor.max(decided.reply);
        reply::forgotten(context);
        Ok(Outcome::Transitions(&[c"session.forgotten"]))
    }
}
