//! `SESSION.REAP worker COUNT n [MATCH glob]`

use mooring_session::SessionPlace;
use mooring_session::index::{Glob, Reaper};
use mooring_session::names::WorkerId;
use mooring_session::time::Timestamp;

use super::list::list_count;
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context, OwnedText};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::housekeeping;
use crate::module::Module;
use crate::registrar::{CommandSpec, KeyAccess};
use crate::reply;

struct ReapCommand;

/// What Redis shall know of it.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.reap",
    entry: ffi::entry::<ReapCommand>(),
    flags: c"readonly",
    arity: -4,
    key: KeyAccess::Keyless,
    summary: c"Names sessions that are over and still hold something upstream.",
    complexity: c"O(N) with N being the number of tombstones looked at, at most 10000",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output request_policy:all_shards response_policy:special names_request"),
    categories: c"read slow session",
    core_categories: c"read slow",
    arguments: ARGUMENTS,
    reply: "`complete` 0|1, `keys`",
    details: "\
A session is named when it has expired or was ended, still has bindings or mounted content, and nobody is cleaning it up,
initialises one of its bindings, or has or awaits a turn of it. One with owned bindings is named to their owner alone
while that is alive, and to anybody when it is dead. What nobody has tried to clean up yet comes before what somebody has
claimed and let go of. Only keys that the caller's ACL lets it read are named. COUNT is 1 to 1000. MATCH is a pattern
over keys as KEYS takes it, of at most 256 bytes: who cleans up for one kind of session is named no other.

A call looks at a bounded number of sessions, and may name fewer than COUNT, or none, though there are more. The next one
with the same pattern then goes on behind those, whoever sends it, and from the front again when it has come to the end:
nothing that others leave lying hides what stands behind it.

Naming takes nothing: SESSION.CLAIM takes one of the keys, SESSION.FORGET drops it after the cleaning. `complete` 0 says
that there may be more than the index knows, because it is being rebuilt, or because the wall clock was set less than a
minute ago, when nothing is named.",
    errors: &[ErrorSpec::new("ERR", "the count or the pattern is none")],
};

/// What REAP asks for.
pub(super) struct ReapRequest {
    worker: WorkerId,
    count: usize,
    pattern: Option<Glob>,
}

grammar! {
    parse<'a>() -> ReapRequest {
        worker: text(c"worker", WorkerId::parse),
        count: required(c"COUNT", integer(c"n", list_count)),
        pattern: optional(c"MATCH", text(c"pattern", Glob::parse)),
    }
}

impl Command for ReapCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let request = parse(arguments)?;
        // Whether anything is over is decided by the wall clock alone.
        housekeeping::watch_clock(module, context);
        let is_allowed = module.clock.reaping_allowed(module.time.real());
        let is_complete = is_allowed && module.is_verified(context.database());
        let keys = if is_allowed {
            due(context, module, request)
        } else {
            Vec::new()
        };
        reply::due(context, is_complete, &keys);
        Ok(Outcome::Quiet)
    }
}

fn due<'m>(context: &Context, module: &'m mut Module, request: ReapRequest) -> Vec<&'m [u8]> {
    let database = context.database();
    let mono = module.monotonic();
    let Module {
        indexes,
        workers,
        turns,
        ..
    } = module;
    let Some(index) = indexes.known_mut(database) else {
        return Vec::new();
    };
    let reaper = Reaper {
        worker: &request.worker,
        workers: &workers.at(mono),
        now: Timestamp::from_unix_ms(context.unix_ms()),
        pattern: request.pattern,
        count: request.count,
    };
    let reader = context.reader();
    index.due(&reaper, |key| {
        let place = SessionPlace::new(database, key);
        !turns.holds(&place, None, mono) && reader.may_read(OwnedText::new(key).text())
    })
}
