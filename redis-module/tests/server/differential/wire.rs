//! The rules' answers as the contract writes them, in RESP3: a second reading of the contract beside the module's own.

use mooring_session::rules::{
    BindReply, CreateReply, EndReply, RebindReply, RouteReply, RouteState, TouchReply,
};
use mooring_session::view::{BindingView, RecordView};

use crate::resp::Value;

fn text(text: impl AsRef<str>) -> Value {
    Value::Text(text.as_ref().as_bytes().to_vec())
}

fn integer(number: u64) -> Value {
    Value::Integer(i64::try_from(number).expect("a number that Redis can say"))
}

fn flag(value: bool) -> Value {
    Value::Integer(i64::from(value))
}

fn optional<T>(value: Option<T>, show: impl FnOnce(T) -> Value) -> Value {
    value.map_or(Value::Null, show)
}

fn map(fields: Vec<(&str, Value)>) -> Value {
    let pairs = fields.into_iter().map(|(name, value)| (text(name), value));
    Value::Map(pairs.collect())
}

fn binding_fields(view: &BindingView) -> Vec<(&'static str, Value)> {
    let owner = view.owner.as_ref();
    let address = owner.and_then(|owner| owner.address.as_deref());
    vec![
        ("server", text(view.server.as_str())),
        ("state", text(view.state.as_str())),
        ("instance", text(view.instance.as_str())),
        (
            "upstream_session",
            optional(view.upstream_session.as_ref(), |s| text(s.as_str())),
        ),
        (
            "owner",
            optional(owner, |owner| text(owner.worker.as_str())),
        ),
        ("owner_alive", optional(owner, |owner| flag(owner.alive))),
        ("owner_address", optional(address, text)),
        ("driver", text(view.driver.as_str())),
        ("epoch", integer(view.epoch)),
        ("bound_at", integer(view.bound_at.unix_ms())),
        (
            "lease_until",
            optional(view.lease_until, |until| integer(until.unix_ms())),
        ),
        ("rebinds", integer(view.rebinds)),
        (
            "last_reason",
            optional(view.last_reason.as_ref(), |reason| text(reason.as_str())),
        ),
    ]
}

fn bindings(views: &[BindingView]) -> Value {
    Value::Array(views.iter().map(binding).collect())
}

fn record_fields(view: &RecordView) -> Vec<(&'static str, Value)> {
    let labels = view.labels.iter();
    let labels = labels.map(|(name, value)| (text(name.as_str()), text(value.as_str())));
    vec![
        ("id", text(view.id.as_str())),
        ("gen", integer(view.generation)),
        ("principal", text(view.principal.as_str())),
        ("state", text(view.state.as_str())),
        ("created_at", integer(view.created_at.unix_ms())),
        ("last_used_at", integer(view.last_used_at.unix_ms())),
        ("expires_at", integer(view.expires_at.unix_ms())),
        ("ttl_ms", integer(view.ttl.get())),
        (
            "content_hash",
            optional(view.content_hash.as_ref(), |hash| text(hash.as_str())),
        ),
        ("labels", Value::Map(labels.collect())),
        ("bindings", bindings(&view.bindings)),
    ]
}

pub(super) fn binding(view: &BindingView) -> Value {
    map(binding_fields(view))
}

pub(super) fn record(view: &RecordView) -> Value {
    map(record_fields(view))
}

/// Of a session that begins on nothing the caller is told what it does not know.
pub(super) fn created(created: &CreateReply) -> Value {
    if created.created && created.revived.is_none() {
        let record = &created.record;
        return map(vec![
            ("created", flag(true)),
            ("gen", integer(record.generation)),
            ("created_at", integer(record.created_at.unix_ms())),
            ("expires_at", integer(record.expires_at.unix_ms())),
        ]);
    }
    let mut fields = vec![
        ("created", flag(created.created)),
        (
            "revived",
            optional(created.revived.as_ref(), |state| text(state.as_str())),
        ),
        ("hash_changed", flag(created.hash_changed)),
        ("previous", bindings(&created.previous)),
    ];
    fields.extend(record_fields(&created.record));
    map(fields)
}

pub(super) fn touched(touched: &TouchReply) -> Value {
    map(vec![("expires_at", integer(touched.expires_at.unix_ms()))])
}

pub(super) fn ended(ended: &EndReply) -> Value {
    let mut fields = vec![("ended_now", flag(ended.ended_now))];
    fields.extend(record_fields(&ended.record));
    map(fields)
}

/// The one answer that leaves out what is absent.
pub(super) fn routed(routed: &RouteReply) -> Value {
    let Some(view) = &routed.binding else {
        return map(vec![("state", text(RouteState::Unbound.as_str()))]);
    };
    let mut fields = vec![
        ("state", text(view.state.as_str())),
        ("instance", text(view.instance.as_str())),
        ("driver", text(view.driver.as_str())),
        ("epoch", integer(view.epoch)),
    ];
    if let Some(session) = &view.upstream_session {
        fields.push(("upstream_session", text(session.as_str())));
    }
    if let Some(owner) = &view.owner {
        fields.push(("owner", text(owner.worker.as_str())));
        fields.push(("owner_alive", flag(owner.alive)));
        fields.push(("owner_address", optional(owner.address.as_deref(), text)));
    }
    if let Some(until) = view.lease_until {
        fields.push(("lease_until", integer(until.unix_ms())));
    }
    if let Some(lost) = &routed.worker_lost {
        fields.push(("worker_lost", text(lost.worker.as_str())));
    }
    if let Some(loss) = &routed.unreported_loss {
        fields.push(("lost_instance", text(loss.instance.as_str())));
        if let Some(reason) = &loss.reason {
            fields.push(("lost_reason", text(reason.as_str())));
        }
    }
    map(fields)
}

pub(super) fn bound(bound: &BindReply) -> Value {
    let mut fields = vec![("won", flag(bound.won))];
    fields.extend(binding_fields(&bound.binding));
    map(fields)
}

pub(super) fn rebound(rebound: &RebindReply) -> Value {
    let mut fields = vec![
        ("won", flag(rebound.won)),
        (
            "previous",
            optional(rebound.previous.as_ref(), |s| text(s.as_str())),
        ),
    ];
    fields.extend(binding_fields(&rebound.binding));
    map(fields)
}

pub(super) fn forgotten() -> Value {
    map(vec![("forgotten", flag(true))])
}

pub(super) fn alive() -> Value {
    map(vec![("alive", flag(true))])
}

pub(super) fn gone(was_alive: bool) -> Value {
    map(vec![("was_alive", flag(was_alive))])
}
