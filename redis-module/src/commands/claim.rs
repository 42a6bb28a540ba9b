//! `SESSION.CLAIM key worker LEASE ms`

use mooring_session::names::WorkerId;
use mooring_session::rules::{self, ClaimRequest};

use crate::arguments;
use crate::command_spec::{CommandSpec, KeyAccess};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::record_io;
use crate::reply;

struct ClaimCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.claim",
    entry: ffi::entry::<ClaimCommand>(),
    // No deny-oom, although the lease makes the tombstone grow: cleanup is how memory is freed.
    flags: c"write fast",
    arity: 5,
    key: KeyAccess::Update,
    summary: c"Takes a tombstone for cleanup of what its session held.",
    complexity: c"O(N) with N being the number of fields of the record",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output names_request"),
    categories: c"write fast",
    arguments: ARGUMENTS,
    reply: "the record",
    details: "\
For reapers: SESSION.REAP names the keys. Until the lease lapses, no other worker may clean up the session; the same
worker renews the lease by asking again. The caller deletes the upstream sessions of the bindings in the reply and
then drops the tombstone with SESSION.FORGET and the `gen` of the reply.",
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

grammar! {
    parse<'a>(key) -> ClaimRequest {
        worker: text(c"worker", WorkerId::parse),
        lease: required(c"LEASE", integer(c"ms", arguments::lease)),
    }
}

impl Command for ClaimCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let request = parse(arguments)?;
        let key = arguments.get(1).ok_or(Failure::Internal)?;
        let (_, decided) = record_io::apply(context, module, key, |record, rules_context| {
            rules::claim(record, &request, rules_context)
        })?;
        reply::record(context, &decided.reply);
        Ok(Outcome::Quiet)
    }
}
