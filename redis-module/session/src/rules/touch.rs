//! TOUCH: record a use, and set the given fields.

use std::collections::BTreeMap;

use super::{active, require_active};
use crate::context::{Context, Decision, RecordChange};
use crate::limits::LABELS_MAX;
use crate::names::{ContentHash, LabelName, LabelValue, Principal, ServerName};
use crate::record::{Record, SessionLifetime};
use crate::refusal::Refusal;
use crate::time::{Millis, Timestamp};

/// The request of TOUCH.
#[derive(Clone, Debug)]
pub struct TouchRequest {
    /// The principal that must own the session.
    pub principal: Principal,
    /// A new TTL; `None` keeps the current one.
    pub ttl: Option<Millis>,
    /// The content that is now in place.
    pub content_hash: Option<ContentHash>,
    /// Labels to set. Others stay.
    pub labels: BTreeMap<LabelName, LabelValue>,
    /// A loss that a reply has reported to the client.
    pub reported: Option<ReportedLoss>,
}

/// The loss with which an epoch of a binding began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedLoss {
    /// The server of the binding.
    pub server: ServerName,
    /// The epoch. A binding with another epoch has another loss, and is left alone.
    pub epoch: u64,
}

/// The reply of TOUCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TouchReply {
    /// When the session expires if it is not used.
    pub expires_at: Timestamp,
}

impl TouchRequest {
    /// Whether only the record's lifetime can change: then [`touch_lifetime`] is enough.
    #[must_use]
    pub fn changes_lifetime_only(&self) -> bool {
        self.content_hash.is_none() && self.labels.is_empty() && self.reported.is_none()
    }
}

/// TOUCH over the lifetime only, after the caller has compared the principal: for a store that can fetch that alone.
///
/// # Errors
/// `NOSESSION`, `ENDED`.
pub fn touch_lifetime(
    lifetime: &mut SessionLifetime,
    ttl: Option<Millis>,
    context: &Context<'_>,
) -> Result<Decision<TouchReply>, Refusal> {
    require_active(lifetime, context)?;
    let written = match lifetime.slide(context.now, ttl, context.tuning) {
        true => RecordChange::Lifetime,
        false => RecordChange::Nothing,
    };
    let used_at = context.now.max(lifetime.last_used_at);
    let reply = TouchReply {
        expires_at: used_at.plus(lifetime.ttl),
    };
    Ok(Decision::new(reply, written))
}

/// Slides the TTL and sets the given fields.
///
/// # Errors
/// `NOSESSION`, `ENDED`, `DENIED`; `LIMIT labels` if there would be too many labels.
pub fn touch(
    slot: &mut Option<Record>,
    request: &TouchRequest,
    context: &Context<'_>,
) -> Result<Decision<TouchReply>, Refusal> {
    let record = active(slot, &request.principal, context)?;
    let new_labels = request
        .labels
        .keys()
        .filter(|name| !record.labels.contains_key(*name))
        .count();
    if record.labels.len().saturating_add(new_labels) > LABELS_MAX {
        return Err(Refusal::Limit {
            what: "labels",
            value: LABELS_MAX,
        });
    }
    let Decision { reply, mut written } =
        touch_lifetime(&mut record.lifetime, request.ttl, context)?;
    if request.content_hash.is_some() && request.content_hash != record.content_hash {
        record.content_hash.clone_from(&request.content_hash);
        written = RecordChange::Record;
    }
    for (name, value) in &request.labels {
        if record.labels.get(name) != Some(value) {
            record.labels.insert(name.clone(), value.clone());
            written = RecordChange::Record;
        }
    }
    if let Some(ReportedLoss { server, epoch }) = &request.reported
        && let Some(binding) = record.bindings.get_mut(server)
        && binding.epoch == *epoch
        && binding.unreported_loss.take().is_some()
    {
        written = RecordChange::Record;
    }
    Ok(Decision::new(reply, written))
}
