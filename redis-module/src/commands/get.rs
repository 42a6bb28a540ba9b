//! `SESSION.GET key`

use mooring_session::rules;
use mooring_session::view::RecordView;

use crate::command_spec::{CommandSpec, KeyAccess};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context, Text};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::moment::Moment;
use crate::record_io;
use crate::reply;
use crate::rule_inputs::RuleInputs;

struct GetCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.get",
    entry: ffi::entry::<GetCommand>(),
    flags: c"readonly fast",
    arity: 2,
    key: KeyAccess::Read,
    summary: c"Returns the record under a key, tombstones included. Does not count as a use.",
    complexity: c"O(N) with N being the number of fields of the record",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output names_request"),
    categories: c"read fast",
    arguments: ARGUMENTS,
    reply: "the record",
    details: "\
For operators, and for callers that need the whole record: `state` is `active`, or the kind of the tombstone. The
command names no principal, so do not grant it to users that serve clients. Workers announce themselves to primaries
only, so a replica reports every owner as alive.",
    errors: &[
        ErrorSpec::NO_SESSION,
        ErrorSpec::CORRUPT,
        ErrorSpec::WRONG_TYPE,
    ],
};

grammar! {
    parse<'a>(key) -> () {} => Ok(())
}

impl Command for GetCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        parse(arguments)?;
        let key = arguments.get(1).ok_or(Failure::Internal)?;
        let record = apply(context, module, key)?;
        reply::record(context, &record);
        Ok(Outcome::Quiet)
    }
}

fn apply(context: &Context, module: &Module, key: Text<'_>) -> Result<RecordView, Failure> {
    let record = record_io::look(context, key)?;
    let inputs = RuleInputs::at(module, &Moment::of(context, key));
    Ok(rules::get(record.as_ref(), &inputs.context())?)
}
