//! `SESSION.EXPLAIN key`

use mooring_session::SessionPlace;
use mooring_session::explain::explain;
use mooring_session::refusal::Refusal;

use crate::command_spec::{CommandSpec, KeyAccess};
use crate::digest::{digest, session_digest};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context, Text};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::moment::Moment;
use crate::record_io;
use crate::reply;
use crate::rule_inputs::RuleInputs;

struct ExplainCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.explain",
    entry: ffi::entry::<ExplainCommand>(),
    flags: c"readonly",
    arity: 2,
    key: KeyAccess::Read,
    summary: c"Explains the record under a key in sentences: ages, owners, turns, losses, and what happens next.",
    complexity: c"O(N) with N being the number of fields of the record",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output"),
    categories: c"read slow",
    arguments: ARGUMENTS,
    reply: "an array of lines",
    details: "\
For people at redis-cli; programs use SESSION.GET, because the sentences may change with any version. The lines show
no token, ticket, session id or upstream session. In their place they show digests as logs do: the first 16 hex digits
of the SHA-256. The digest of a session is that of its key without the prefix that all keys of its kind share: for
`mcpgw:session_affinity:<id>` it is the digest of the id, as in the gateways' logs. The command does not count as a
use.

Turns and workers are in the memory of the primary. A replica knows of no turns and reports every owner as alive.",
    errors: &[
        ErrorSpec::NO_SESSION,
        ErrorSpec::CORRUPT,
        ErrorSpec::WRONG_TYPE,
    ],
};

grammar! {
    parse<'a>(key) -> () {} => Ok(())
}

impl Command for ExplainCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        parse(arguments)?;
        let key = arguments.get(1).ok_or(Failure::Internal)?;
        reply::lines(context, &apply(context, module, key)?);
        Ok(Outcome::Quiet)
    }
}

fn apply(context: &Context, module: &Module, key: Text<'_>) -> Result<Vec<String>, Failure> {
    let record = record_io::look(context, key)?.ok_or(Refusal::NoSession)?;
    let moment = Moment::of(context, key);
    let place = SessionPlace::new(moment.database, key.as_bytes());
    let queues = module.turns.of_session(&place, module.monotonic());
    let inputs = RuleInputs::at(module, &moment);
    let session = session_digest(key.as_bytes());
    Ok(explain(
        &record,
        &session,
        &queues,
        &digest,
        &inputs.context(),
    ))
}
