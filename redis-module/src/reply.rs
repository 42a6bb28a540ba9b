//! The format of replies: maps with names (flat in RESP2), integers for counts and flags, null for absent values. Only
//! this file and those below it know it.
//!
//! Invariants: a map has as many fields as it announces. Every map that replies to a command begins with the digest of
//! its request, and every error ends with it, so that a client notices replies out of order. Arrays have no digest,
//! except those whose first item it is. The fields of a reply do not depend on its outcome, except those of ROUTE, the
//! hot path, of CREATE, whose caller knows the other fields of a new record, and of LIST, where most sessions have no
//! delegations.

use std::ffi::CStr;

use mooring_session::codec::CorruptRecord;
use mooring_session::events::MailboxEvent;
use mooring_session::index::Cursor;
use mooring_session::names::{ServerName, Token, WorkerId};
use mooring_session::record::{Record, SessionState};
use mooring_session::request_digest::REQUEST_FIELD;
use mooring_session::rules::{BindReply, Creation, EndReply, RateReply, RebindReply, RouteState};
use mooring_session::time::{Millis, Timestamp};
use mooring_session::turns::{QueueView, TurnHolder, TurnStatus};
use mooring_session::view::{BindingView, RecordView};
use mooring_session::workers::{Drain, WorkerView};

mod counts;

pub(crate) use counts::session_counts;

use crate::digest::digest;
use crate::failure::Failure;
use crate::ffi::Context;

/// Fields of a binding: see [`binding_fields`].
const BINDING_FIELDS: usize = 13;
/// Fields of a record: see [`record_fields`].
const RECORD_FIELDS: usize = 11;

impl Context {
    /// Begins the map of a reply: the digest of the request, and `fields` more.
    fn begin_reply(&self, fields: usize) {
        self.reply_map(fields.saturating_add(1));
        self.bytes(REQUEST_FIELD, &self.request.to_hex());
    }

    fn bytes(&self, name: &str, value: &[u8]) {
        self.reply_bytes(name.as_bytes());
        self.reply_bytes(value);
    }

    fn optional_bytes(&self, name: &str, value: Option<&[u8]>) {
        self.reply_bytes(name.as_bytes());
        match value {
            Some(value) => self.reply_bytes(value),
            None => self.reply_null(),
        }
    }

    fn text(&self, name: &str, value: &str) {
        self.bytes(name, value.as_bytes());
    }

    fn optional_text(&self, name: &str, value: Option<&str>) {
        self.optional_bytes(name, value.map(str::as_bytes));
    }

    fn integer(&self, name: &str, value: u64) {
        self.reply_bytes(name.as_bytes());
        self.reply_integer(i64::try_from(value).unwrap_or(i64::MAX));
    }

    fn optional_integer(&self, name: &str, value: Option<u64>) {
        match value {
            Some(value) => self.integer(name, value),
            None => self.optional_text(name, None),
        }
    }

    fn flag(&self, name: &str, value: bool) {
        self.integer(name, u64::from(value));
    }
}

/// The reply of ROUTE for a bound server: the fields of the binding that a caller needs to send a call. GET returns the
/// others.
pub(crate) struct RouteLine<'a> {
    pub(crate) state: RouteState,
    pub(crate) instance: &'a str,
    pub(crate) upstream_session: Option<&'a str>,
    pub(crate) owner: Option<OwnerLine<'a>>,
    pub(crate) driver: &'a str,
    pub(crate) epoch: u64,
    pub(crate) lease_until: Option<Timestamp>,
    pub(crate) worker_lost: Option<&'a str>,
    /// The instance of a loss that is still to be reported, and why the binding was moved.
    pub(crate) lost_instance: Option<&'a str>,
    pub(crate) lost_reason: Option<&'a [u8]>,
    /// The turn, if it was requested.
    pub(crate) turn: Option<TurnLine>,
    /// For how long the turn or the route is delegated, if it is.
    pub(crate) delegated: Option<Millis>,
}

/// The result of a request for a turn.
pub(crate) struct TurnLine {
    pub(crate) turn: TurnStatus,
    /// The holder, if the caller waits.
    pub(crate) holder: Option<TurnHolder>,
}

impl TurnLine {
    /// How many fields it has.
    fn count(line: Option<&Self>) -> usize {
        line.map_or(0, |line| if line.holder.is_some() { 3 } else { 1 })
    }
}

/// The worker that holds a binding's connection.
pub(crate) struct OwnerLine<'a> {
    pub(crate) worker: &'a str,
    pub(crate) alive: bool,
    pub(crate) address: Option<&'a str>,
}

/// An error reply.
pub(crate) fn failed(context: &Context, failure: &Failure) {
    context.reply_error(&format!("{failure} ({REQUEST_FIELD} {})", context.request));
}

/// The reply of ROUTE for an unbound server; with the turn, if it was requested.
pub(crate) fn unbound(context: &Context, turn: Option<&TurnLine>) {
    context.begin_reply(1 + TurnLine::count(turn));
    context.text("state", RouteState::Unbound.as_str());
    turn_fields(context, turn);
}

/// The turn, if it was requested: its number, or null while the caller waits, and its holder.
fn turn_fields(context: &Context, line: Option<&TurnLine>) {
    let Some(line) = line else { return };
    match line.turn {
        TurnStatus::Granted(number) | TurnStatus::Delegated(number) => {
            context.integer("turn", number);
        }
        TurnStatus::Waiting => context.optional_integer("turn", None),
    }
    if let Some(holder) = &line.holder {
        context.text("turn_holder", holder.worker.as_str());
        context.integer("turn_held_ms", holder.held_for.get());
    }
}

/// The reply of ROUTE to a caller that knows the binding: the digest of the request as a number, and if a turn was
/// requested and granted, its number; then for how long turn or route are delegated, if they are. If the caller has to
/// wait for its turn, writes nothing and returns false.
pub(crate) fn unchanged(
    context: &Context,
    turn: Option<&TurnLine>,
    delegated: Option<Millis>,
) -> bool {
    let number = match turn.map(|line| line.turn) {
        Some(TurnStatus::Waiting) => return false,
        Some(TurnStatus::Granted(number) | TurnStatus::Delegated(number)) => Some(number),
        None => None,
    };
    let numbers = [number, delegated.map(Millis::get)];
    if numbers != [None, None] {
        let count = numbers.iter().flatten().count();
        context.reply_array(1 + count);
    }
    context.reply_integer(context.request.to_integer());
    for number in numbers.into_iter().flatten() {
        context.reply_integer(i64::try_from(number).unwrap_or(i64::MAX));
    }
    true
}

/// The reply of ROUTE. It is the only reply that leaves out absent fields.
pub(crate) fn routed(context: &Context, line: &RouteLine<'_>) {
    const ALWAYS: usize = 4;
    let owner_fields = if line.owner.is_some() { 3 } else { 0 };
    let optional = usize::from(line.upstream_session.is_some())
        + usize::from(line.lease_until.is_some())
        + usize::from(line.worker_lost.is_some())
        + usize::from(line.lost_instance.is_some())
        + usize::from(line.lost_reason.is_some())
        + usize::from(line.delegated.is_some())
        + TurnLine::count(line.turn.as_ref());
    context.begin_reply(ALWAYS + owner_fields + optional);
    context.text("state", line.state.as_str());
    context.text("instance", line.instance);
    context.text("driver", line.driver);
    context.integer("epoch", line.epoch);
    if let Some(upstream_session) = line.upstream_session {
        context.text("upstream_session", upstream_session);
    }
    if let Some(owner) = &line.owner {
        context.text("owner", owner.worker);
        context.flag("owner_alive", owner.alive);
        context.optional_text("owner_address", owner.address);
    }
    if let Some(lease_until) = line.lease_until {
        context.integer("lease_until", lease_until.unix_ms());
    }
    if let Some(worker_lost) = line.worker_lost {
        context.text("worker_lost", worker_lost);
    }
    if let Some(instance) = line.lost_instance {
        context.text("lost_instance", instance);
    }
    if let Some(reason) = line.lost_reason {
        context.bytes("lost_reason", reason);
    }
    turn_fields(context, line.turn.as_ref());
    if let Some(length) = line.delegated {
        context.integer("delegated_ms", length.get());
    }
}

/// The reply of BIND.
pub(crate) fn bound(context: &Context, bound: &BindReply) {
    context.begin_reply(BINDING_FIELDS + 1);
    context.flag("won", bound.won);
    binding_fields(context, &bound.binding);
}

/// The reply of REBIND.
pub(crate) fn rebound(context: &Context, rebound: &RebindReply) {
    context.begin_reply(BINDING_FIELDS + 2);
    context.flag("won", rebound.won);
    let previous = rebound.previous.as_ref();
    context.optional_text("previous", previous.map(|previous| previous.as_str()));
    binding_fields(context, &rebound.binding);
}

/// The reply of CONFIRM and UNBIND.
pub(crate) fn binding(context: &Context, binding: &BindingView) {
    context.begin_reply(BINDING_FIELDS);
    binding_fields(context, binding);
}

fn binding_fields(context: &Context, binding: &BindingView) {
    let owner = binding.owner.as_ref();
    context.text("server", binding.server.as_str());
    context.text("state", binding.state.as_str());
    context.text("instance", binding.instance.as_str());
    let upstream_session = binding.upstream_session.as_ref();
    context.optional_text("upstream_session", upstream_session.map(|s| s.as_str()));
    context.optional_text("owner", owner.map(|owner| owner.worker.as_str()));
    context.optional_integer("owner_alive", owner.map(|owner| u64::from(owner.alive)));
    let address = owner.and_then(|owner| owner.address.as_deref());
    context.optional_text("owner_address", address);
    context.text("driver", binding.driver.as_str());
    context.integer("epoch", binding.epoch);
    context.integer("bound_at", binding.bound_at.unix_ms());
    context.optional_integer("lease_until", binding.lease_until.map(Timestamp::unix_ms));
    context.integer("rebinds", binding.rebinds);
    let reason = binding.last_reason.as_ref();
    context.optional_text("last_reason", reason.map(|reason| reason.as_str()));
}

fn bindings(context: &Context, name: &str, bindings: &[BindingView]) {
    context.reply_bytes(name.as_bytes());
    context.reply_array(bindings.len());
    for each in bindings {
        context.reply_map(BINDING_FIELDS);
        binding_fields(context, each);
    }
}

/// The reply of CREATE.
pub(crate) fn created(
    context: &Context,
    creation: &Creation,
    record: &Record,
    rules_context: &mooring_session::Context<'_>,
) {
    if creation.created && creation.revived.is_none() {
        // The other fields are those of the request.
        context.begin_reply(4);
        context.flag("created", true);
        context.integer("gen", record.generation);
        context.integer("created_at", record.lifetime.created_at.unix_ms());
        let expires_at = record.lifetime.reported_expiry(rules_context.now);
        context.integer("expires_at", expires_at.unix_ms());
        return;
    }
    context.begin_reply(RECORD_FIELDS + 4);
    context.flag("created", creation.created);
    context.optional_text("revived", creation.revived.map(SessionState::as_str));
    context.flag("hash_changed", creation.hash_changed);
    bindings(context, "previous", &creation.previous);
    record_fields(context, &RecordView::of(record, rules_context));
}

/// The reply of END and KILL.
pub(crate) fn ended(context: &Context, ended: &EndReply) {
    context.begin_reply(RECORD_FIELDS + 1);
    context.flag("ended_now", ended.ended_now);
    record_fields(context, &ended.record);
}

/// The reply of KILL for a record that cannot be read.
pub(crate) fn dropped(context: &Context, reason: &CorruptRecord) {
    context.begin_reply(2);
    context.flag("ended_now", true);
    context.text("unreadable", &reason.to_string());
}

/// One record.
pub(crate) fn record(context: &Context, record: &RecordView) {
    context.begin_reply(RECORD_FIELDS);
    record_fields(context, record);
}

/// The cleaning up of a tombstone.
pub(crate) struct CleaningLine<'a> {
    pub(crate) worker: Option<&'a WorkerId>,
    /// After which time another worker may clean it up.
    pub(crate) left: Millis,
}

/// One record, its turns, and who cleans it up.
pub(crate) fn record_with_turns(
    context: &Context,
    record: &RecordView,
    queues: &[QueueView],
    cleaning: Option<CleaningLine<'_>>,
) {
    context.begin_reply(RECORD_FIELDS + 3);
    record_fields(context, record);
    let worker = cleaning.as_ref().and_then(|cleaning| cleaning.worker);
    context.optional_text("cleaning_worker", worker.map(WorkerId::as_str));
    let left = cleaning.map(|cleaning| cleaning.left.get());
    context.optional_integer("cleaning_left_ms", left);
    context.reply_bytes(b"turns");
    context.reply_array(queues.len());
    for queue in queues {
        turn_queue(context, queue);
    }
}

fn turn_queue(context: &Context, queue: &QueueView) {
    context.reply_map(10);
    context.text("server", queue.server.as_str());
    let holder = queue.holder.as_ref();
    context.optional_text("holder", holder.map(|holder| holder.worker.as_str()));
    let ticket = holder.map(|holder| digest(holder.ticket.as_str().as_bytes()));
    context.optional_text("ticket", ticket.as_deref());
    context.optional_integer("turn", holder.map(|holder| holder.number));
    context.optional_integer("held_ms", holder.map(|holder| holder.held.get()));
    context.optional_integer("left_ms", holder.map(|holder| holder.left.get()));
    let is_offered = holder.map(|holder| u64::from(holder.is_offered));
    context.optional_integer("offered", is_offered);
    let is_delegated = holder.map(|holder| u64::from(holder.is_delegated));
    context.optional_integer("delegated", is_delegated);
    context.integer("waiting", u64::try_from(queue.waiting).unwrap_or(u64::MAX));
    context.reply_bytes(b"waiters");
    context.reply_array(queue.next.len());
    for waiter in &queue.next {
        context.reply_map(3);
        context.text("worker", waiter.worker.as_str());
        context.text("ticket", &digest(waiter.ticket.as_str().as_bytes()));
        context.integer("waited_ms", waiter.waited.get());
    }
}

fn record_fields(context: &Context, record: &RecordView) {
    context.text("id", record.id.as_str());
    context.integer("gen", record.generation);
    context.text("principal", record.principal.as_str());
    context.text("state", record.state.as_str());
    context.integer("created_at", record.created_at.unix_ms());
    context.integer("last_used_at", record.last_used_at.unix_ms());
    context.integer("expires_at", record.expires_at.unix_ms());
    context.integer("ttl_ms", record.ttl.get());
    let hash = record.content_hash.as_ref();
    context.optional_text("content_hash", hash.map(|hash| hash.as_str()));
    context.reply_bytes(b"labels");
    context.reply_map(record.labels.len());
    for (name, value) in &record.labels {
        context.text(name.as_str(), value.as_str());
    }
    bindings(context, "bindings", &record.bindings);
}

/// The reply of TOUCH.
pub(crate) fn expires_at(context: &Context, moment: Timestamp) {
    context.begin_reply(1);
    context.integer("expires_at", moment.unix_ms());
}

/// The reply of FORGET.
pub(crate) fn forgotten(context: &Context) {
    context.begin_reply(1);
    context.flag("forgotten", true);
}

/// One session of LIST.
pub(crate) struct ListLine {
    pub(crate) key: Box<[u8]>,
    pub(crate) record: RecordView,
    /// The turns that are delegated now.
    pub(crate) delegations: Vec<DelegationLine>,
}

/// A delegated turn.
pub(crate) struct DelegationLine {
    pub(crate) server: ServerName,
    pub(crate) worker: WorkerId,
    /// When it lapses unless it is renewed.
    pub(crate) until: Timestamp,
}

/// The reply of LIST.
pub(crate) fn list(
    context: &Context,
    is_complete: bool,
    next: Option<Cursor>,
    sessions: &[ListLine],
) {
    context.begin_reply(3);
    context.flag("complete", is_complete);
    let cursor = next.map_or_else(|| "0".to_owned(), |cursor| cursor.to_string());
    context.text("cursor", &cursor);
    context.reply_bytes(b"sessions");
    context.reply_array(sessions.len());
    for line in sessions {
        let is_delegated = !line.delegations.is_empty();
        context.reply_map(RECORD_FIELDS + 1 + usize::from(is_delegated));
        context.bytes("key", &line.key);
        record_fields(context, &line.record);
        if is_delegated {
            delegations(context, &line.delegations);
        }
    }
}

fn delegations(context: &Context, delegations: &[DelegationLine]) {
    context.reply_bytes(b"delegations");
    context.reply_array(delegations.len());
    for delegation in delegations {
        context.reply_map(3);
        context.text("server", delegation.server.as_str());
        context.text("worker", delegation.worker.as_str());
        context.integer("until", delegation.until.unix_ms());
    }
}

/// The reply of REAP.
pub(crate) fn due(context: &Context, is_complete: bool, keys: &[&[u8]]) {
    context.begin_reply(2);
    context.flag("complete", is_complete);
    context.reply_bytes(b"keys");
    context.reply_array(keys.len());
    for key in keys {
        context.reply_bytes(key);
    }
}

/// The reply of REINDEX.
pub(crate) fn reindexing(context: &Context, starts: bool) {
    context.begin_reply(1);
    context.flag("started", starts);
}

/// The reply of HELP.
pub(crate) fn lines(context: &Context, lines: &[String]) {
    context.reply_array(lines.len());
    for line in lines {
        context.reply_line(line);
    }
}

/// The reply of LEAVE: how many callers left.
pub(crate) fn left(context: &Context, count: usize) {
    context.begin_reply(1);
    context.integer("left", u64::try_from(count).unwrap_or(u64::MAX));
}

/// The reply of RATE.
pub(crate) fn rated(context: &Context, rated: &RateReply) {
    context.begin_reply(3);
    context.flag("allowed", rated.is_allowed);
    context.integer("remaining", rated.remaining);
    context.integer("retry_after_ms", rated.retry_after.get());
}

/// The reply of WAIT.
pub(crate) fn events(context: &Context, items: &[MailboxEvent]) {
    context.reply_array(items.len());
    for item in items {
        let (event, session, server, ticket, turn) = match item {
            MailboxEvent::Turn {
                session,
                server,
                ticket,
                turn,
            } => ("turn", session, server, Some(ticket), Some(*turn)),
            MailboxEvent::Withdrawn {
                session,
                server,
                ticket,
            } => ("withdrawn", session, server, Some(ticket), None),
            MailboxEvent::Settled { session, server } => ("settled", session, server, None, None),
        };
        context.reply_map(5);
        context.text("event", event);
        context.bytes("key", &session.key);
        context.text("server", server.as_str());
        context.optional_text("ticket", ticket.map(Token::as_str));
        context.optional_integer("turn", turn);
    }
}

/// The reply of BEAT.
pub(crate) fn alive(context: &Context) {
    context.begin_reply(1);
    context.flag("alive", true);
}

/// The reply of GONE.
pub(crate) fn gone(context: &Context, was_alive: bool) {
    context.begin_reply(1);
    context.flag("was_alive", was_alive);
}

/// The reply of WORKER.LIST, with the number of live bindings that each worker drives.
pub(crate) fn workers(
    context: &Context,
    workers: &[WorkerView],
    bindings: impl Fn(&WorkerId) -> u64,
) {
    context.reply_array(workers.len());
    for worker in workers {
        context.reply_map(6);
        context.text("worker", worker.worker.as_str());
        context.text("address", worker.address.as_str());
        context.flag("alive", worker.alive);
        context.flag("draining", worker.drain == Drain::Draining);
        context.integer("last_beat_at", worker.last_beat_at.unix_ms());
        context.integer("bindings", bindings(&worker.worker));
    }
}

/// The reply of STATS.
pub(crate) fn figures(context: &Context, figures: &[(&CStr, u64)]) {
    context.begin_reply(figures.len());
    for (name, value) in figures {
        context.reply_bytes(name.to_bytes());
        context.reply_integer(i64::try_from(*value).unwrap_or(i64::MAX));
    }
}
