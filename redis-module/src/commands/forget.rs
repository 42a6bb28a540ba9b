//! `SESSION.FORGET key gen worker`

use mooring_session::names::WorkerId;
use mooring_session::rules::{self, ForgetRequest};

use crate::arguments;
use crate::claims;
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::record_io;
use crate::registrar::{CommandSpec, KeyAccess};
use crate::reply;

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
    tips: Some(c"names_request"),
    categories: c"write fast session",
    core_categories: c"write fast",
    arguments: ARGUMENTS,
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
