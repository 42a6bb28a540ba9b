//! `SESSION.COUNT [PREFIX p]`

use mooring_session::Liveness as _;
use mooring_session::index::SessionCounts;
use mooring_session::limits::KEY_BYTES_MAX;
use mooring_session::names::{NameError, Problem};

use crate::command_spec::{CommandSpec, KeyAccess};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context, OwnedText};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::reply;

struct CountCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.count",
    entry: ffi::entry::<CountCommand>(),
    flags: c"readonly",
    arity: -1,
    key: KeyAccess::Keyless,
    summary: c"Counts the sessions of a database by kind, and the bindings of active ones by instance and owner.",
    complexity: c"O(N) with N being the number of instances and owners, at most 5000 each",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output request_policy:all_shards response_policy:special names_request"),
    categories: c"read slow",
    arguments: ARGUMENTS,
    reply: "`complete` 0|1; `groups`: for each its `prefix`, and the sessions `active`, `expired` and `ended`; \
            `instances`: for each the `server`, the `instance`, and the `bindings` of active sessions to it; `owners`: \
            for each the `worker`, whether it is `alive` 0|1, and the `bindings` of active sessions that it owns",
    details: "\
The command reads counters in memory, and no key: the counters follow every change. An expiry counts within about a
tenth of a second.

Sessions are counted in groups, by what their keys begin with: `<prefix>session_affinity:` for the sessions of MCP
clients, `<prefix>code_exec_session:<server>:` and `<prefix>agent_session:<server>:` for those of code and of agents.
Keys of other forms are one group for each text before the first colon. PREFIX counts only groups whose names begin
with it. Only groups whose names the caller's ACL lets it read, as if they were keys, are counted.

The figures are those of this node only: for a cluster, add up those of all primaries. `complete` 0 means that the
index is being verified, or filled, so that sessions may be missing; or that something is left out: more than 5000
instances or owners, or more than 256 groups.",
    errors: &[ErrorSpec::new("ERR", "the prefix is too long")],
};

grammar! {
    parse<'a>() -> Option<Box<[u8]>> {
        prefix: optional(c"PREFIX", text(c"prefix", key_prefix)),
    } => Ok(prefix)
}

impl Command for CountCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let prefix = parse(arguments)?.unwrap_or_default();
        let reader = context.reader();
        let is_wanted =
            |name: &[u8]| name.starts_with(&prefix) && reader.may_read(OwnedText::new(name).text());
        let index = module.indexes.of(context.database());
        let counts = index.map_or_else(SessionCounts::default, |index| {
            index.session_counts(is_wanted)
        });
        let is_complete = module.is_verified(context.database()) && !counts.is_cut;
        let mono = module.monotonic();
        let workers = module.workers.at(mono);
        reply::session_counts(context, is_complete, &counts, |worker| {
            workers.is_alive(worker)
        });
        Ok(Outcome::Quiet)
    }
}

fn key_prefix(word: &[u8]) -> Result<Box<[u8]>, NameError> {
    if word.len() > KEY_BYTES_MAX {
        return Err(NameError {
            what: "prefix",
            problem: Problem::TooLong(KEY_BYTES_MAX),
        });
    }
    Ok(word.into())
}
