//! Parses the module's replies: maps (RESP3) or flat arrays of names and values (RESP2), by field name.
//!
//! Fields may be in any order; unknown ones are skipped, so that a newer module may add some; a null field counts as
//! absent. Errors name the field and never its value, which may be secret.

use std::collections::BTreeMap;

use mooring_session::names::{
    ContentHash, InstanceName, LabelName, LabelValue, NameError, Principal, Reason, ServerName,
    SessionId, UpstreamSession, WorkerId,
};
use mooring_session::record::SessionState;
use mooring_session::rules::{
    BindReply, CreateReply, CreateRequest, EndReply, RebindReply, RouteReply, TouchReply,
    UnreportedLoss, WorkerLost,
};
use mooring_session::time::{Millis, Timestamp};
use mooring_session::view::{BindingState, BindingView, OwnerView, RecordView};
use redis::Value;

use crate::blockers::{
    CleaningView, SessionBlockers, TurnHolderView, TurnQueueView, WaitingCallView,
};
use crate::key::SessionKey;

/// What is wrong with a reply.
pub(crate) type Problem = String;

/// The fields of one map, each taken once.
pub(super) struct Fields(Vec<(Value, Value)>);

impl Fields {
    pub(super) fn of(value: Value) -> Result<Self, Problem> {
        value
            .into_map_iter()
            .map(|pairs| Self(pairs.collect()))
            .map_err(|_| "it is not a map".to_owned())
    }

    /// Takes a field's value. Null counts as absent.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        let value = self.0.iter_mut().find_map(|(field, value)| {
            (bytes(field) == Some(name.as_bytes())).then(|| std::mem::take(value))
        })?;
        (value != Value::Nil).then_some(value)
    }

    pub(super) fn name<T>(
        &mut self,
        field: &str,
        parse: impl FnOnce(&[u8]) -> Result<T, NameError>,
    ) -> Result<T, Problem> {
        self.optional_name(field, parse)?
            .ok_or_else(|| missing(field))
    }

    pub(super) fn optional_name<T>(
        &mut self,
        field: &str,
        parse: impl FnOnce(&[u8]) -> Result<T, NameError>,
    ) -> Result<Option<T>, Problem> {
        self.take(field)
            .map(|value| {
                bytes(&value)
                    .and_then(|text| parse(text).ok())
                    .ok_or_else(|| unreadable(field))
            })
            .transpose()
    }

    pub(super) fn optional_number(&mut self, field: &str) -> Result<Option<u64>, Problem> {
        self.take(field)
            .map(|value| number(&value).ok_or_else(|| unreadable(field)))
            .transpose()
    }

    pub(super) fn number(&mut self, field: &str) -> Result<u64, Problem> {
        self.optional_number(field)?.ok_or_else(|| missing(field))
    }

    pub(super) fn moment(&mut self, field: &str) -> Result<Timestamp, Problem> {
        self.number(field).map(Timestamp::from_unix_ms)
    }

    pub(super) fn truth(&mut self, field: &str) -> Result<bool, Problem> {
        self.number(field).map(|number| number != 0)
    }

    pub(super) fn list<T>(
        &mut self,
        field: &str,
        read: impl Fn(Value) -> Result<T, Problem>,
    ) -> Result<Vec<T>, Problem> {
        self.take(field)
            .ok_or_else(|| missing(field))?
            .into_sequence()
            .map_err(|_| unreadable(field))?
            .into_iter()
            .map(read)
            .collect()
    }

    /// A text that is only shown.
    pub(super) fn short_text(&mut self, field: &str) -> Result<Box<str>, Problem> {
        let value = self.take(field).ok_or_else(|| missing(field))?;
        text(&value)
            .map(Into::into)
            .ok_or_else(|| unreadable(field))
    }

    /// The key of a session; none if it is not that of an MCP session under `prefix`.
    pub(super) fn key(&mut self, prefix: &str) -> Result<Option<SessionKey>, Problem> {
        let key = self.take("key").ok_or_else(|| missing("key"))?;
        let key = bytes(&key).ok_or_else(|| unreadable("key"))?;
        Ok(SessionKey::named(prefix, key))
    }

    /// Parses one binding.
    fn binding(&mut self) -> Result<BindingView, Problem> {
        let server = self.name("server", ServerName::parse)?;
        self.binding_of(server)
    }

    /// Parses one binding of a known server. ROUTE omits fields that routing does not need.
    fn binding_of(&mut self, server: ServerName) -> Result<BindingView, Problem> {
        let owner = self.optional_name("owner", WorkerId::parse)?;
        let (alive, address) = (
            self.optional_number("owner_alive")?,
            self.take("owner_address"),
        );
        Ok(BindingView {
            server,
            state: self.state()?,
            instance: self.name("instance", InstanceName::parse)?,
            upstream_session: self.optional_name("upstream_session", UpstreamSession::parse)?,
            owner: owner.map(|worker| OwnerView {
                worker,
                alive: alive.is_some_and(|alive| alive != 0),
                address: address.as_ref().and_then(text).map(Into::into),
            }),
            driver: self.name("driver", WorkerId::parse)?,
            epoch: self.number("epoch")?,
            bound_at: Timestamp::from_unix_ms(self.optional_number("bound_at")?.unwrap_or(0)),
            lease_until: self
                .optional_number("lease_until")?
                .map(Timestamp::from_unix_ms),
            rebinds: self.optional_number("rebinds")?.unwrap_or(0),
            last_reason: self.optional_name("last_reason", Reason::parse)?,
        })
    }

    fn state(&mut self) -> Result<BindingState, Problem> {
        let value = self.take("state").ok_or_else(|| missing("state"))?;
        state_of(&value).ok_or_else(|| unreadable("state"))
    }

    pub(super) fn record(&mut self) -> Result<RecordView, Problem> {
        Ok(RecordView {
            id: self.name("id", SessionId::parse)?,
            generation: self.number("gen")?,
            principal: self.name("principal", Principal::parse)?,
            state: self
                .optional_state("state")?
                .ok_or_else(|| missing("state"))?,
            created_at: self.moment("created_at")?,
            last_used_at: self.moment("last_used_at")?,
            expires_at: self.moment("expires_at")?,
            ttl: Millis::new(self.number("ttl_ms")?),
            content_hash: self.optional_name("content_hash", ContentHash::parse)?,
            labels: self.labels()?,
            bindings: self.list("bindings", binding)?,
        })
    }

    fn optional_state(&mut self, field: &str) -> Result<Option<SessionState>, Problem> {
        let Some(word) = self.take(field) else {
            return Ok(None);
        };
        [
            SessionState::Active,
            SessionState::Expired,
            SessionState::Ended,
        ]
        .into_iter()
        .find(|known| text(&word) == Some(known.as_str()))
        .map(Some)
        .ok_or_else(|| unreadable(field))
    }

    fn labels(&mut self) -> Result<BTreeMap<LabelName, LabelValue>, Problem> {
        let field = "labels";
        let value = self.take(field).ok_or_else(|| missing(field))?;
        Fields::of(value)?
            .0
            .iter()
            .map(|(name, value)| {
                let name = LabelName::parse(bytes(name)?).ok()?;
                Some((name, LabelValue::parse(bytes(value)?).ok()?))
            })
            .collect::<Option<_>>()
            .ok_or_else(|| unreadable(field))
    }
}

/// Parses one binding.
pub(super) fn binding(value: Value) -> Result<BindingView, Problem> {
    Fields::of(value)?.binding()
}

/// Parses one record.
pub(super) fn record(value: Value) -> Result<RecordView, Problem> {
    Fields::of(value)?.record()
}

/// Parses the reply of GET with TURNS.
pub(super) fn blockers(value: Value) -> Result<SessionBlockers, Problem> {
    let mut fields = Fields::of(value)?;
    let worker = fields.optional_name("cleaning_worker", WorkerId::parse)?;
    let left = fields.optional_number("cleaning_left_ms")?;
    Ok(SessionBlockers {
        cleaning: left.map(|left| CleaningView::new(worker.as_ref(), Millis::new(left))),
        turns: Some(fields.list("turns", turn_queue)?),
        record: fields.record()?,
    })
}

fn turn_queue(value: Value) -> Result<TurnQueueView, Problem> {
    let mut fields = Fields::of(value)?;
    let holder = fields.optional_name("holder", WorkerId::parse)?;
    let holder = holder.map(|worker| {
        Ok::<_, Problem>(TurnHolderView {
            gateway: worker.as_str().into(),
            call: fields.short_text("ticket")?,
            held_ms: fields.number("held_ms")?,
            left_ms: fields.number("left_ms")?,
            is_offered: fields.truth("offered")?,
            is_delegated: fields.truth("delegated")?,
        })
    });
    Ok(TurnQueueView {
        holder: holder.transpose()?,
        server: fields.name("server", ServerName::parse)?.as_str().into(),
        waiting: fields.number("waiting")?,
        next: fields.list("waiters", waiting_call)?,
    })
}

fn waiting_call(value: Value) -> Result<WaitingCallView, Problem> {
    let mut fields = Fields::of(value)?;
    Ok(WaitingCallView {
        gateway: fields.name("worker", WorkerId::parse)?.as_str().into(),
        call: fields.short_text("ticket")?,
        waited_ms: fields.number("waited_ms")?,
    })
}

/// Parses the reply of CREATE. Of a session that begins where nothing was it has only what the request has not.
pub(super) fn created(value: Value, request: &CreateRequest) -> Result<CreateReply, Problem> {
    let mut fields = Fields::of(value)?;
    let is_whole = fields.0.iter().any(|(field, _)| text(field) == Some("id"));
    if !is_whole {
        let created_at = fields.moment("created_at")?;
        return Ok(CreateReply {
            created: fields.truth("created")?,
            revived: None,
            hash_changed: false,
            previous: Vec::new(),
            record: RecordView {
                id: request.id.clone(),
                generation: fields.number("gen")?,
                principal: request.principal.clone(),
                state: SessionState::Active,
                created_at,
                last_used_at: created_at,
                expires_at: fields.moment("expires_at")?,
                ttl: request.ttl,
                content_hash: request.content_hash.clone(),
                labels: request.labels.clone(),
                bindings: Vec::new(),
            },
        });
    }
    Ok(CreateReply {
        created: fields.truth("created")?,
        revived: fields.optional_state("revived")?,
        hash_changed: fields.truth("hash_changed")?,
        previous: fields.list("previous", binding)?,
        record: fields.record()?,
    })
}

/// Parses the reply of TOUCH.
pub(super) fn touched(value: Value) -> Result<TouchReply, Problem> {
    Ok(TouchReply {
        expires_at: Fields::of(value)?.moment("expires_at")?,
    })
}

/// Parses the reply of END and KILL.
pub(super) fn ended(value: Value) -> Result<EndReply, Problem> {
    let mut fields = Fields::of(value)?;
    Ok(EndReply {
        ended_now: fields.truth("ended_now")?,
        record: fields.record()?,
    })
}

/// Parses the reply of ROUTE, which does not repeat the server in the request.
pub(super) fn routed(value: Value, server: &ServerName) -> Result<RouteReply, Problem> {
    routed_of(Fields::of(value)?, server)
}

pub(super) fn routed_of(mut fields: Fields, server: &ServerName) -> Result<RouteReply, Problem> {
    let is_unbound = fields
        .0
        .iter()
        .any(|(field, value)| text(field) == Some("state") && text(value) == Some("unbound"));
    if is_unbound {
        return Ok(RouteReply {
            binding: None,
            worker_lost: None,
            unreported_loss: None,
        });
    }
    let lost = fields.optional_name("worker_lost", WorkerId::parse)?;
    let lost_instance = fields.optional_name("lost_instance", InstanceName::parse)?;
    let reason = fields.optional_name("lost_reason", Reason::parse)?;
    Ok(RouteReply {
        binding: Some(fields.binding_of(server.clone())?),
        worker_lost: lost.map(|worker| WorkerLost { worker }),
        unreported_loss: lost_instance.map(|instance| UnreportedLoss { instance, reason }),
    })
}

/// Parses the reply of BIND.
pub(super) fn bound(value: Value) -> Result<BindReply, Problem> {
    let mut fields = Fields::of(value)?;
    Ok(BindReply {
        won: fields.truth("won")?,
        binding: fields.binding()?,
    })
}

/// Parses the reply of REBIND.
pub(super) fn rebound(value: Value) -> Result<RebindReply, Problem> {
    let mut fields = Fields::of(value)?;
    Ok(RebindReply {
        won: fields.truth("won")?,
        previous: fields.optional_name("previous", UpstreamSession::parse)?,
        binding: fields.binding()?,
    })
}

/// Parses the reply of WORKER.GONE: a number, or a map with that number.
pub(super) fn was_alive(value: Value) -> Result<bool, Problem> {
    if let Some(number) = number(&value) {
        return Ok(number != 0);
    }
    Fields::of(value)?.truth("was_alive")
}

/// Text, or null.
pub(super) fn optional_text(value: Value) -> Result<Option<String>, Problem> {
    match value {
        Value::Nil => Ok(None),
        value => text(&value)
            .map(|text| Some(text.to_owned()))
            .ok_or_else(|| "it is not a text".to_owned()),
    }
}

fn state_of(value: &Value) -> Option<BindingState> {
    let word = text(value)?;
    [
        BindingState::Claimed,
        BindingState::Bound,
        BindingState::Orphaned,
    ]
    .into_iter()
    .find(|state| state.as_str() == word)
}

pub(super) fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.as_bytes()),
        _ => None,
    }
}

pub(super) fn text(value: &Value) -> Option<&str> {
    bytes(value).and_then(|bytes| std::str::from_utf8(bytes).ok())
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::Boolean(truth) => Some(u64::from(*truth)),
        value => text(value)?.parse().ok(),
    }
}

fn missing(field: &str) -> Problem {
    format!("the field {field} is missing")
}

fn unreadable(field: &str) -> Problem {
    format!("the field {field} does not read as it must")
}
