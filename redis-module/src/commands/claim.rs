//! `SESSION.CLAIM key worker LEASE ms`

use mooring_session::names::WorkerId;
use mooring_session::rules::{self, ClaimRequest};

use crate::arguments;
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::record_io;
use crate::registrar::{CommandSpec, KeyAccess};
use crate::reply;

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
    tips: Some(c"nondeterministic_output names_request"),
    categories: c"write fast session",
    core_categories: c"write fast",
    arguments: ARGUMENTS,
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
