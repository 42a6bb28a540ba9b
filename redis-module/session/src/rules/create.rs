//! CREATE: a new session, or the existing one.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use super::authorize;
use crate::context::{Context, Decision, PrincipalSessions, RecordChange};
use crate::limits::LABELS_MAX;
use crate::names::{ContentHash, LabelName, LabelValue, Principal, SessionId};
use crate::record::{Record, SessionLifetime, SessionState};
use crate::refusal::Refusal;
use crate::time::Millis;
use crate::view::{BindingView, RecordView, bindings_of};

/// The request of CREATE.
#[derive(Clone, Debug)]
pub struct CreateRequest {
    /// The session's id.
    pub id: SessionId,
    /// The owner.
    pub principal: Principal,
    /// How long it may be idle.
    pub ttl: Millis,
    /// The digest of the mounted content, for code sessions.
    pub content_hash: Option<ContentHash>,
    /// What another worker needs to continue it. Set on a new generation only.
    pub labels: BTreeMap<LabelName, LabelValue>,
    /// Whether a tombstone may be revived.
    pub revival: Revival,
    /// How many active sessions the principal may hold under the key's prefix, this one included. At least 1; `None`
    /// for no cap.
    pub cap: Option<NonZeroU64>,
}

/// What CREATE does on a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revival {
    /// Begins a new generation.
    Allowed,
    /// Keeps the tombstone and is refused: a session that was created while the store was unavailable must not undo an
    /// END.
    Refused,
}

/// The reply of CREATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateReply {
    /// Whether this call created the session or revived it.
    pub created: bool,
    /// The state of the tombstone that was revived: expired, or ended. `None` if there was no tombstone.
    pub revived: Option<SessionState>,
    /// Whether the content hash given differs from the record's. It is not set: TOUCH does that once the content is
    /// in place.
    pub hash_changed: bool,
    /// The bindings that the tombstone still held. The caller cleans them up.
    pub previous: Vec<BindingView>,
    /// The record as it is now.
    pub record: RecordView,
}

/// The reply of CREATE without the record, which is in the slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Creation {
    /// See [`CreateReply::created`].
    pub created: bool,
    /// See [`CreateReply::revived`].
    pub revived: Option<SessionState>,
    /// See [`CreateReply::hash_changed`].
    pub hash_changed: bool,
    /// See [`CreateReply::previous`].
    pub previous: Vec<BindingView>,
}

/// Creates the session, or returns the existing one.
///
/// # Errors
/// As [`create_record`].
pub fn create(
    slot: &mut Option<Record>,
    request: &CreateRequest,
    context: &Context<'_>,
) -> Result<Decision<CreateReply>, Refusal> {
    let decided = create_record(slot, request, context)?;
    let Creation {
        created,
        revived,
        hash_changed,
        previous,
    } = decided.reply;
    let record = slot.as_ref().ok_or(Refusal::NoSession)?;
    let reply = CreateReply {
        created,
        revived,
        hash_changed,
        previous,
        record: RecordView::of(record, context),
    };
    Ok(Decision::new(reply, decided.written))
}

/// The same for a store that replies from the record itself.
///
/// # Errors
/// `DENIED` for another principal, `ERR` for another id under the key, and with [`Revival::Refused`] `ENDED` or
/// `NOSESSION` for a tombstone. When a session would be created or revived: `LIMIT labels` for too many labels, and
/// `LIMIT` with the cap and the key of the least recently used session if it would exceed the cap.
pub fn create_record(
    slot: &mut Option<Record>,
    request: &CreateRequest,
    context: &Context<'_>,
) -> Result<Decision<Creation>, Refusal> {
    // Also for an existing session: from the first query on, the node tracks the uses of the principal.
    let held = request
        .cap
        .and_then(|_| context.node.held_by(&request.principal));
    let Some(record) = slot else {
        check_labels(request)?;
        check_cap(request, held)?;
        *slot = Some(begin(request, context, context.floor, context.floor));
        return Ok(created(None, Vec::new()));
    };
    authorize(&record.principal, &request.principal)?;
    if record.id != request.id {
        return Err(Refusal::OtherId);
    }
    match (record.lifetime.state(context.now), request.revival) {
        (SessionState::Active, _) => Ok(found(record, request, context)),
        (SessionState::Ended, Revival::Refused) => Err(Refusal::Ended),
        (SessionState::Expired, Revival::Refused) => Err(Refusal::NoSession),
        (state @ (SessionState::Ended | SessionState::Expired), Revival::Allowed) => {
            check_labels(request)?;
            check_cap(request, held)?;
            let previous = bindings_of(record, context);
            // If the wall clock stepped back, the record's time does not: the key must outlive the numbers that were
            // assigned at the later time.
            let begins_at = context.now.max(record.lifetime.last_used_at);
            // Generation + 1: only a key without a record starts from the clock.
            *record = Record {
                generation: record.generation.saturating_add(1),
                // Fields of a newer module outlive the generation, and so does the version that is needed to read them.
                lifetime: SessionLifetime {
                    least_reader: record.lifetime.least_reader,
                    ..SessionLifetime::begin(begins_at, request.ttl, context.tuning)
                },
                ..begin(request, context, 0, record.highest_epoch)
            };
            Ok(created(Some(state), previous))
        }
    }
}

fn check_labels(request: &CreateRequest) -> Result<(), Refusal> {
    if request.labels.len() > LABELS_MAX {
        return Err(Refusal::Limit {
            what: "labels",
            value: LABELS_MAX,
        });
    }
    Ok(())
}

/// If the node does not know the sessions of the principal, nothing is refused: exceeding a cap is better than losing a
/// session.
fn check_cap(request: &CreateRequest, held: Option<PrincipalSessions>) -> Result<(), Refusal> {
    match (request.cap, held) {
        (
            Some(cap),
            Some(PrincipalSessions {
                active,
                least_recently_used: Some(key),
            }),
        ) if active >= cap.get() => Err(Refusal::Cap {
            cap: cap.get(),
            least_recently_used: key,
        }),
        _ => Ok(()),
    }
}

fn begin(
    request: &CreateRequest,
    context: &Context<'_>,
    generation_floor: u64,
    highest_epoch: u64,
) -> Record {
    Record {
        id: request.id.clone(),
        principal: request.principal.clone(),
        generation: context.number_after(generation_floor),
        highest_epoch,
        lifetime: SessionLifetime::begin(context.now, request.ttl, context.tuning),
        content_hash: request.content_hash.clone(),
        labels: request.labels.clone(),
        bindings: BTreeMap::new(),
        cleaning: None,
    }
}

fn created(revived: Option<SessionState>, previous: Vec<BindingView>) -> Decision<Creation> {
    let reply = Creation {
        created: true,
        revived,
        hash_changed: false,
        previous,
    };
    Decision::new(reply, RecordChange::Record)
}

fn found(
    record: &mut Record,
    request: &CreateRequest,
    context: &Context<'_>,
) -> Decision<Creation> {
    let ttl = Some(request.ttl);
    let written = match record.lifetime.slide(context.now, ttl, context.tuning) {
        true => RecordChange::Lifetime,
        false => RecordChange::Nothing,
    };
    let hash_changed =
        request.content_hash.is_some() && request.content_hash != record.content_hash;
    let reply = Creation {
        created: false,
        revived: None,
        hash_changed,
        previous: Vec::new(),
    };
    Decision::new(reply, written)
}
