//! `SESSION.LIST [PRINCIPAL p] [SERVER s] [INSTANCE i] [OWNER w] [DRIVER w] [STATE s] [MATCH glob] [DIGEST d] [TEXT t]
//! [ORDER newest|oldest] [CURSOR c] [COUNT n]`

use std::time::{Duration, Instant};

use mooring_session::codec;
use mooring_session::index::{Cursor, Filter, Glob, Order, SearchPart};
use mooring_session::limits::LIST_COUNT_MAX;
use mooring_session::names::{
    InstanceName, NameError, Principal, Problem, ServerName, WorkerId, parse_integer,
};
use mooring_session::record::SessionState;
use mooring_session::time::{Monotonic, Timestamp};
use mooring_session::turns::{QueueView, Turns};
use mooring_session::view::RecordView;
use mooring_session::{DigestPrefix, SessionPlace};

use crate::command_spec::{CommandSpec, KeyAccess};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context, OwnedText};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::record_io;
use crate::reply::{self, DelegationLine, ListLine};
use crate::rule_inputs::RuleInputs;

/// Sessions on a page if COUNT is not given.
const COUNT_DEFAULT: usize = 100;
/// How long a page is gathered, except for its first session, which has no limit. Writing the reply takes a third of
/// that in addition: two milliseconds in total.
const GATHERED_WITHIN: Duration = Duration::from_micros(1_500);

struct ListCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.list",
    entry: ffi::entry::<ListCommand>(),
    flags: c"readonly",
    arity: -1,
    key: KeyAccess::Keyless,
    summary: c"Lists the sessions of a database that match the given filters, page by page.",
    complexity: c"O(N) with N being the number of sessions looked at, at most 10000 a call",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output request_policy:special response_policy:special names_request"),
    categories: c"read slow",
    arguments: ARGUMENTS,
    reply: "`complete` 0|1, `cursor`, `sessions`: for each its `key`, then the record, and if turns of it are delegated, \
            `delegations`: for each the `server`, the `worker` that has it, and `until`, when it lapses unless it is \
            renewed",
    details: "\
A session is listed if it matches all given filters; SERVER, INSTANCE, OWNER and DRIVER must match the same binding.
DRIVER is the worker that used a binding last; it has no index, so pages may be short. STATE is `active`, `expired` or
`ended`. MATCH is a key pattern as in KEYS, of at most 256 bytes. DIGEST is the digest
of a session, as logs and SESSION.EXPLAIN show it, or its first digits, at least 4: it has an index. TEXT is a part, of
at most 512 bytes and in any case, of the principal, of a server, an instance, an owner or a driver of the session, or
of the key of a session of code or an agent; or the beginning of the digest. ORDER is by creation: `newest` (the default) or
`oldest` first. COUNT is 1 to 1000 (default 100).

An iteration starts without CURSOR, or at `0`, and continues with the cursor of the previous page and the same
options, until the cursor is `0` again. A page may have fewer sessions than COUNT, or none, and still not be the last:
a call looks at a bounded number of sessions and works for about two milliseconds. A session that exists during the
whole iteration is listed once.

The command searches the index of the selected database, and checks each record again before it returns it. Only keys
that the caller's ACL lets it read are listed. `complete` 0 means that the index is being verified, or filled: then
sessions may be missing.",
    errors: &[ErrorSpec::new(
        "ERR",
        "a state, an order, a cursor, a pattern, a digest, a text or a count is invalid",
    )],
};

/// What LIST asks for.
pub(super) struct ListRequest {
    filter: Filter,
    order: Order,
    after: Option<Cursor>,
    count: usize,
}

grammar! {
    parse<'a>() -> ListRequest {
        principal: optional(c"PRINCIPAL", text(c"principal", Principal::parse)),
        server: optional(c"SERVER", text(c"server", ServerName::parse)),
        instance: optional(c"INSTANCE", text(c"instance", InstanceName::parse)),
        owner: optional(c"OWNER", text(c"owner", WorkerId::parse)),
        driver: optional(c"DRIVER", text(c"driver", WorkerId::parse)),
        state: optional(c"STATE", text(c"state", state_word)),
        pattern: optional(c"MATCH", text(c"pattern", Glob::parse)),
        digest: optional(c"DIGEST", text(c"digest", DigestPrefix::parse)),
        search: optional(c"TEXT", text(c"part", SearchPart::parse)),
        order: optional(c"ORDER", text(c"order", order_word)),
        after: optional(c"CURSOR", text(c"cursor", Cursor::parse)),
        count: optional(c"COUNT", integer(c"n", list_count)),
    } => Ok(ListRequest {
        filter: Filter { principal, server, instance, owner, driver, state, pattern, digest, text: search },
        order: order.unwrap_or_default(),
        after: after.flatten(),
        count: count.unwrap_or(COUNT_DEFAULT),
    })
}

impl Command for ListCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let request = parse(arguments)?;
        let (sessions, next) = collect(context, module, &request);
        let is_complete = module.is_verified(context.database());
        reply::list(context, is_complete, next, &sessions);
        Ok(Outcome::Quiet)
    }
}

/// Reads COUNT: how many sessions or keys one reply has at most.
pub(super) fn list_count(word: &[u8]) -> Result<usize, NameError> {
    let count = parse_integer("COUNT", word, 1, LIST_COUNT_MAX as u64)?;
    Ok(usize::try_from(count).unwrap_or(LIST_COUNT_MAX))
}

fn state_word(word: &[u8]) -> Result<SessionState, NameError> {
    let states = [
        SessionState::Active,
        SessionState::Expired,
        SessionState::Ended,
    ];
    let is_named = |state: &SessionState| word.eq_ignore_ascii_case(state.as_str().as_bytes());
    states.into_iter().find(is_named).ok_or(NameError {
        what: "STATE",
        problem: Problem::Alphabet("active, expired or ended is expected"),
    })
}

fn order_word(word: &[u8]) -> Result<Order, NameError> {
    let orders = [(&b"newest"[..], Order::Newest), (b"oldest", Order::Oldest)];
    let named = orders
        .into_iter()
        .find(|(name, _)| word.eq_ignore_ascii_case(name));
    named.map(|(_, order)| order).ok_or(NameError {
        what: "ORDER",
        problem: Problem::Alphabet("newest or oldest is expected"),
    })
}

/// The sessions of one page as they are now, and where the next one begins.
fn collect(
    context: &Context,
    module: &Module,
    request: &ListRequest,
) -> (Vec<ListLine>, Option<Cursor>) {
    let started = Instant::now();
    let now = Timestamp::from_unix_ms(context.unix_ms());
    let ListRequest {
        filter,
        order,
        after,
        count,
    } = request;
    let database = context.database();
    let Some(index) = module.indexes.of(database) else {
        return (Vec::new(), None);
    };
    let page = index.page(filter, *order, *after, *count, now);
    let inputs = RuleInputs::of(&module.workers, &module.time, now);
    let rules_context = inputs.context();
    let mono = inputs.monotonic();
    let reader = context.reader();
    let mut sessions = Vec::with_capacity(page.sessions.len());
    let mut listed = page.sessions.iter().peekable();
    while let Some(session) = listed.next() {
        let name = OwnedText::new(session.key);
        // A key that no longer holds a record is skipped.
        if reader.may_read(name.text())
            && let Ok(fields) = record_io::peek(context, name.text())
            && let Ok(record) = codec::decode(fields.iter())
            && filter.admits(session.key, &record, now)
        {
            let place = SessionPlace::new(database, session.key);
            sessions.push(ListLine {
                delegations: delegations(&module.turns, &place, now, mono),
                key: place.key,
                record: RecordView::of(&record, &rules_context),
            });
        }
        if listed.peek().is_some() && started.elapsed() >= GATHERED_WITHIN {
            return (sessions, Some(session.cursor));
        }
    }
    (sessions, page.next)
}

/// The delegated turns of a session. Allocates nothing for a session without turns.
fn delegations(
    turns: &Turns,
    session: &SessionPlace,
    now: Timestamp,
    mono: Monotonic,
) -> Vec<DelegationLine> {
    let queues = turns.of_session(session, mono).into_iter();
    let delegated = queues.filter_map(|QueueView { server, holder, .. }| {
        let holder = holder.filter(|holder| holder.is_delegated)?;
        Some(DelegationLine {
            server,
            worker: holder.worker,
            until: now.plus(holder.left),
        })
    });
    delegated.collect()
}
