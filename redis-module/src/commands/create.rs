//! `SESSION.CREATE key id principal TTL ms [HASH content_hash] [LABEL name value]... [CAP n] [NOREVIVE]`

use std::num::NonZeroU64;

use mooring_session::limits::CAP_MAX;
use mooring_session::names::{ContentHash, Principal, SessionId};
use mooring_session::record::SessionState;
use mooring_session::rules::{self, CreateRequest, Creation, Revival};
use mooring_session::{Refusal, SessionPlace};

use crate::arguments::{self, LABEL, integer};
use crate::claims;
use crate::command_spec::{CommandSpec, KeyAccess};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context, OwnedText, Text};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::keyspace;
use crate::module::Module;
use crate::node;
use crate::record_io::Slot;
use crate::reply;
use crate::rule_inputs::RuleInputs;

struct CreateCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.create",
    entry: ffi::entry::<CreateCommand>(),
    // No deny-oom: an existing session must be found when memory is exhausted, too.
    flags: c"write fast",
    arity: -6,
    key: KeyAccess::Update,
    summary: c"Creates a session, or returns the existing one.",
    complexity: c"O(N) with N being the number of fields of the record",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output names_request"),
    categories: c"write fast",
    arguments: ARGUMENTS,
    reply: "`created` 1, `gen`, `created_at` and `expires_at` if the key did not exist, because the rest of the \
            record is what the caller sent; otherwise `created` 0|1, `revived` expired|ended|null, `hash_changed` \
            0|1, `previous` (bindings that the tombstone still held), then the record",
    details: "\
If the key does not exist, a new record is created. If it holds an active session of the same principal and id, the
TTL of that session slides and its record is returned unchanged; a HASH that differs from the stored one is not set
but reported as `hash_changed` 1, and TOUCH sets it once the content is in place. If the key holds the tombstone of an
expired or ended session, a new generation begins, with a `gen` one higher; `revived` is `expired` or `ended`, and
`previous` lists the bindings that the old generation still held: the caller deletes their upstream sessions.

NOREVIVE keeps the tombstone. It is for a session that was created while the store was unavailable and must not undo
an END. The labels, at most 16, carry what another worker needs to continue the session; only a new generation sets
them.

CAP, 1 to 1000000000, is the highest number of active sessions that the principal may have under the key's prefix on
this node, this one included. At the cap nothing is created, and the error names the least recently used session: the
caller ENDs it with IFIDLE and tries again. While the index is being filled, after a start with data or a change of
`mooring.prefixes`, no cap applies; while it is being verified, caps apply. From a principal's first CAP on, for as
long as it has a session, the order of use is exact; for uses before that, and before a restart, it is the order of
the written uses (see `mooring.touch-step`).",
    errors: &[
        ErrorSpec::new("NOSESSION", "NOREVIVE was given and the session under the key has expired"),
        ErrorSpec::new("ENDED", "NOREVIVE was given and the session under the key was ended"),
        ErrorSpec::DENIED,
        ErrorSpec::new("LIMIT", "more than 16 labels were given: `LIMIT labels 16`"),
        ErrorSpec::new(
            "LIMIT",
            "the principal holds CAP active sessions: `LIMIT <n> <key of the least recently used>`, without the key \
             if the caller's ACL does not let it read that key",
        ),
        ErrorSpec::new(
            "OOM",
            "a record would be created, or a revived one would grow, and the server has reached `maxmemory` and never evicts",
        ),
        ErrorSpec::new("ERR", "the key holds a session with another id"),
        ErrorSpec::new(
            "ERR",
            "the session would be created or revived, and the key is under none of `mooring.prefixes`",
        ),
        ErrorSpec::new("ERR", "CAP was given and the key is under none of `mooring.prefixes`"),
        ErrorSpec::CORRUPT,
        ErrorSpec::WRONG_TYPE,
    ],
};

grammar! {
    parse<'a>(key) -> CreateRequest {
        id: text(c"id", SessionId::parse),
        principal: text(c"principal", Principal::parse),
        ttl: required(c"TTL", integer(c"ms", arguments::ttl)),
        content_hash: optional(c"HASH", text(c"content_hash", ContentHash::parse)),
        labels: repeated(c"LABEL", block(c"label", LABEL, arguments::label)),
        cap: optional(c"CAP", integer(c"n", integer("CAP", 1, CAP_MAX))),
        revival: word(c"NOREVIVE", c"norevive", Revival::Allowed => Revival::Refused),
    } => Ok(CreateRequest {
        id,
        principal,
        ttl,
        content_hash,
        labels,
        revival,
        cap: cap.and_then(NonZeroU64::new),
    })
}

impl Command for CreateCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let request = parse(arguments)?;
        let key = arguments.get(1).ok_or(Failure::Internal)?;
        let (slot, creation) = apply(context, module, key, &request)?;
        let inputs = RuleInputs::at(module, slot.moment());
        let record = slot.record.as_ref().ok_or(Failure::Internal)?;
        reply::created(context, &creation, record, &inputs.context());
        Ok(match creation.created {
            true => Outcome::Transitions(&[c"session.created"]),
            false => Outcome::Quiet,
        })
    }
}

fn apply<'c>(
    context: &'c Context,
    module: &mut Module,
    key: Text<'c>,
    request: &CreateRequest,
) -> Result<(Slot<'c>, Creation), Failure> {
    let mut slot = Slot::load(context, key)?;
    let state_before = slot
        .record
        .as_ref()
        .map(|record| record.lifetime.state(slot.moment().now));
    let held = match request.cap {
        Some(_) => node::held(module, slot.moment(), &request.principal)?,
        None => None,
    };
    let inputs = RuleInputs::at(module, slot.moment()).with_held(held);
    let decided = rules::create_record(&mut slot.record, request, &inputs.context());
    if let Err(Refusal::Cap {
        cap,
        least_recently_used,
    }) = &decided
    {
        module.counters.caps_refused += 1;
        let named = OwnedText::new(least_recently_used);
        if !context.reader().may_read(named.text()) {
            return Err(Failure::CapOfUnreadable(*cap));
        }
    }
    let decided = decided?;
    if decided.reply.created && !keyspace::may_be_ours(key.as_bytes()) {
        return Err(Failure::KeyOutsidePrefixes);
    }
    slot.refuse_growth(decided.written)?;
    slot.store(decided.written, module);
    if decided.reply.created {
        // Those of the previous generation, if there was one.
        claims::settle_session(module, slot.moment());
        if decided.reply.revived.is_none() {
            let place = SessionPlace::new(slot.moment().database, key.as_bytes());
            let monotonic = module.monotonic();
            module.turns.note_created(&place, monotonic);
        }
        module.counters.creates += 1;
        module.counters.expirations += u64::from(state_before == Some(SessionState::Expired));
    } else {
        module.counters.reuses += 1;
        module.counters.note_touch(decided.written);
    }
    Ok((slot, decided.reply))
}
