//! `SESSION.REAP worker COUNT n [MATCH glob]`

use mooring_session::SessionPlace;
use mooring_session::index::{Glob, Reaper};
use mooring_session::names::WorkerId;
use mooring_session::time::Timestamp;

use super::list::list_count;
use crate::command_spec::{CommandSpec, KeyAccess};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context, OwnedText};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::housekeeping;
use crate::module::Module;
use crate::reply;

struct ReapCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.reap",
    entry: ffi::entry::<ReapCommand>(),
    flags: c"readonly",
    arity: -4,
    key: KeyAccess::Keyless,
    summary: c"Names expired and ended sessions that still hold something upstream.",
    complexity: c"O(N) with N being the number of tombstones looked at, at most 10000",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output request_policy:all_shards response_policy:special names_request"),
    categories: c"read slow",
    arguments: ARGUMENTS,
    reply: "`complete` 0|1, `keys`",
    details: "\
A session is named if it has expired or was ended, and still has bindings or mounted content. It is not named while a
worker is cleaning it up or initializing one of its bindings, or while a caller has one of its turns or waits for one.
A session with owned bindings is named to their owner only while the owner is alive, and to any worker once it is
dead. Sessions whose cleanup was never claimed come before those whose claim has lapsed. Only keys that the caller's
ACL lets it read are named. COUNT is 1 to 1000. MATCH is a key pattern as in KEYS, of at most 256 bytes: with it, a
worker that cleans up one kind of session is named no other.

A call looks at a bounded number of sessions and may name fewer than COUNT, or none, although there are more. The next
call with the same pattern, from any worker, continues after them and starts over at the end: skipped sessions do not
block later ones.

REAP only names keys: SESSION.CLAIM takes one of them for cleanup, and SESSION.FORGET drops it afterwards. `complete`
0 means that there may be more sessions than the index knows, because it is being rebuilt, or because the wall clock
was set less than a minute ago; in that minute no session is named.",
    errors: &[ErrorSpec::new("ERR", "the count or the pattern is invalid")],
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
        // The wall clock alone decides whether a session has expired.
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
