//! ROUTE and ENTER: where a session's calls to a server go, and whose turn it is.
//!
//! The command reads three fields at once instead of the record, copies none of them, and usually writes nothing. It
//! reads two more if the third one, the binding's head, says that a loss is still to be reported.

use mooring_session::codec::{self, BindingHead, CorruptRecord};
use mooring_session::names::{InstanceName, NameError, Principal, ServerName, WorkerId};
use mooring_session::record::Phase;
use mooring_session::rules::{self, ReplacedDriver, RouteState};
use mooring_session::time::Millis;
use mooring_session::turns::{TurnRequest, TurnScope, TurnStatus};
use mooring_session::view::BindingState;
use mooring_session::{Refusal, SessionPlace};

use super::turn::Queues;
use crate::claims;
use crate::digest::session_digest;
use crate::failure::Failure;
use crate::ffi::{Context, Key, KeyKind, Level, OwnedText, Text};
use crate::field_names::{BindingFields, RouteFields};
use crate::keyspace;
use crate::module::Module;
use crate::moment::Moment;
use crate::record_io;
use crate::reply::{self, OwnerLine, RouteLine, TurnLine};
use crate::rule_inputs::RuleInputs;
use crate::settings;

/// The raw arguments. They are rarely parsed: a principal that equals the record's, and a server whose name is cached,
/// are valid.
pub(super) struct RouteRequest<'a> {
    pub(super) principal: &'a [u8],
    pub(super) server: &'a [u8],
    pub(super) worker: &'a str,
    /// The request for a turn, if there is one.
    pub(super) turn: Option<TurnRequest>,
    /// For how long the caller would like to use the route without asking.
    pub(super) delegation: Option<Millis>,
    /// The epoch of the binding that the caller knows as bound and driven by itself.
    pub(super) known_epoch: Option<u64>,
}

/// Returns the word as it was received, for [`RouteRequest`].
pub(super) fn unparsed(word: &[u8]) -> Result<&[u8], NameError> {
    Ok(word)
}

impl RouteRequest<'_> {
    /// Reports an invalid principal before anything about the record, and so a foreign one.
    fn refuse(&self, refusal: Refusal) -> Failure {
        match Principal::parse(self.principal) {
            Ok(_) => refusal.into(),
            Err(error) => error.into(),
        }
    }
}

/// The fields of the hash, as read.
struct StoredFields {
    lifetime: Option<OwnedText>,
    principal: Option<OwnedText>,
    head: Option<OwnedText>,
}

impl StoredFields {
    /// Reads the fields; the session must belong to the principal of the request.
    fn own(
        key: &Key<'_>,
        fields: &RouteFields<'_>,
        request: &RouteRequest<'_>,
    ) -> Result<Self, Failure> {
        match key.kind() {
            KeyKind::Hash => {}
            KeyKind::Empty => return Err(request.refuse(Refusal::NoSession)),
            KeyKind::String | KeyKind::Other => return Err(Failure::WrongType),
        }
        let stored = Self::read(key, fields);
        let principal = present(stored.principal.as_ref(), fields.principal)?;
        if principal != request.principal {
            return Err(request.refuse(Refusal::Denied));
        }
        Ok(stored)
    }

    fn read(key: &Key<'_>, fields: &RouteFields<'_>) -> Self {
        let [lifetime, principal, head] = key.read([
            fields.lifetime,
            fields.principal,
            fields.binding.head.text(),
        ]);
        Self {
            lifetime,
            principal,
            head,
        }
    }
}

/// Decides, writes and replies. The reply is written while the strings that were read are still borrowed, so that none
/// of them is copied.
pub(super) fn serve(
    context: &Context,
    module: &mut Module,
    name: Text<'_>,
    request: &mut RouteRequest<'_>,
) -> Result<(), Failure> {
    let fields = module.fields.of(request.server)?;
    let key = context.open(name);
    let stored = StoredFields::own(&key, &fields, request)?;
    let lifetime_before =
        codec::decode_lifetime(present(stored.lifetime.as_ref(), fields.lifetime)?)?;
    let mut lifetime = lifetime_before;
    let head = stored.head.as_ref().map(OwnedText::as_bytes);
    let head = head
        .map(|head| BindingHead::decode(fields.server.as_str(), head))
        .transpose()?;

    let moment = Moment::of(context, name);
    let inputs = RuleInputs::of(&module.workers, &module.time, moment.now);
    let rules_context = inputs.context();
    let decided =
        rules::route_binding(&mut lifetime, head.as_ref(), request.worker, &rules_context)?;
    let unreported_loss = match &head {
        Some(head) => StoredLoss::read(&key, fields.binding, fields.server, head)?,
        None => None,
    };
    let may_delegate = |worker: &WorkerId, lease: Millis| {
        let is_waiting = module.blocked_clients.has(worker);
        !settings::QUIESCE.get()
            && head.as_ref().is_some_and(|head| {
                (decided.reply).may_be_delegated(head, worker, lifetime.ttl, lease)
            })
            && (module.event_connections).reaches(worker, is_waiting, inputs.monotonic())
    };
    if let Some(turn) = &mut request.turn
        && turn.scope == TurnScope::Delegation
        && !may_delegate(&turn.worker, turn.lease)
    {
        turn.scope = TurnScope::Call;
    }
    let route_delegation = match request.delegation {
        Some(length) => {
            let worker = WorkerId::parse(request.worker.as_bytes())?;
            may_delegate(&worker, length).then_some((worker, length))
        }
        None => None,
    };
    // Before anything is written: if the turn is refused, the command fails.
    let asked = request.turn.as_ref().map(|turn| {
        let queues = Queues {
            turns: &mut module.turns,
            events: &mut module.events,
            workers: rules_context.workers,
            mono: inputs.monotonic(),
        };
        queues.enter(&moment, fields.server, turn)
    });
    let turn = asked.transpose()?;
    let turn = turn.map(|turn| TurnLine {
        turn,
        holder: match turn {
            TurnStatus::Granted(_) | TurnStatus::Delegated(_) => None,
            TurnStatus::Waiting => {
                let place = SessionPlace::new(moment.database, moment.key.as_bytes());
                let mono = inputs.monotonic();
                module.turns.holder_of(&place, fields.server, mono)
            }
        },
    });

    let mut delegated = None;
    if let Some((worker, length)) = &route_delegation {
        let until = inputs.monotonic().plus(*length);
        let is_watched =
            claims::watch_route(&mut module.events, &moment, worker, fields.server, until);
        delegated = is_watched.then_some(*length);
    }
    if let (Some(line), Some(asked)) = (&turn, &request.turn)
        && matches!(line.turn, TurnStatus::Delegated(_))
    {
        delegated = Some(asked.lease);
    }

    let lives = [&lifetime_before, &lifetime];
    record_io::store_use(
        context,
        &mut module.indexes,
        &moment,
        &key,
        fields.lifetime,
        lives,
    );
    module.counters.note_touch(decided.written);
    let Some(head) = head else {
        module.counters.misses += 1;
        reply::unbound(context, turn.as_ref());
        return Ok(());
    };
    module.counters.hits += 1;
    if decided
        .reply
        .is_known_at(request.known_epoch, &head, request.worker)
        && reply::unchanged(context, turn.as_ref(), delegated)
    {
        return Ok(());
    }
    let replaced = decided.reply.replaced;
    if replaced.is_some() {
        store_driver(context, name, &key, fields.binding, &head, request.worker);
    }
    let lost = (replaced == Some(ReplacedDriver::Dead)).then_some(head.driver);
    if let Some(lost) = lost {
        module.counters.worker_losses += 1;
        log(context, name, fields.server, lost, request.worker);
    }
    let line = RouteLine {
        state: decided.reply.state,
        instance: head.instance,
        upstream_session: head.upstream_session,
        owner: head.owner.map(|owner| OwnerLine {
            worker: owner,
            alive: rules_context.workers.is_alive(owner),
            address: rules_context.workers.address(owner),
        }),
        driver: replaced.map_or(head.driver, |_| request.worker),
        epoch: head.epoch,
        lease_until: match head.phase {
            Phase::Claimed { lease_until } => Some(lease_until),
            Phase::Bound => None,
        },
        worker_lost: lost,
        lost_instance: unreported_loss.as_ref().map(|loss| loss.instance.as_str()),
        lost_reason: (unreported_loss.as_ref())
            .and_then(|loss| loss.reason.as_ref())
            .map(OwnedText::as_bytes),
        turn,
        delegated,
    };
    reply::routed(context, &line);
    if line.state == RouteState::Binding(BindingState::Claimed) {
        let until = inputs
            .monotonic()
            .plus(claims::left(&moment, line.lease_until));
        let (worker, server) = (WorkerId::parse(request.worker.as_bytes())?, fields.server);
        claims::watch(&mut module.events, &moment, &worker, server, until);
    }
    if replaced.is_some() {
        // The index counts by driver. A change of driver is rare enough to read the whole record.
        keyspace::refresh(module, context, name);
    }
    Ok(())
}

/// A loss that is still to be reported, as stored in the hash.
struct StoredLoss {
    instance: InstanceName,
    reason: Option<OwnedText>,
}

impl StoredLoss {
    fn read(
        key: &Key<'_>,
        fields: &BindingFields,
        server: &ServerName,
        head: &BindingHead<'_>,
    ) -> Result<Option<Self>, CorruptRecord> {
        if !head.has_unreported_loss {
            return Ok(None);
        }
        let [loss, reason] = key.read([fields.unreported_loss.text(), fields.reason.text()]);
        let Some(loss) = loss else {
            return Ok(None);
        };
        let instance = codec::decode_unreported_loss(server.as_str(), head.epoch, loss.as_bytes())?;
        Ok(instance.map(|instance| Self { instance, reason }))
    }
}

fn present<'a>(value: Option<&'a OwnedText>, field: Text<'_>) -> Result<&'a [u8], CorruptRecord> {
    value.map(OwnedText::as_bytes).ok_or_else(|| corrupt(field))
}

fn corrupt(field: Text<'_>) -> CorruptRecord {
    CorruptRecord::field(field.as_bytes())
}

fn store_driver(
    context: &Context,
    name: Text<'_>,
    key: &Key<'_>,
    fields: &BindingFields,
    head: &BindingHead<'_>,
    driver: &str,
) {
    let head = BindingHead { driver, ..*head };
    let value = OwnedText::new(head.encode().as_bytes());
    record_io::set(context, name, key, &[[fields.head.text(), value.text()]]);
    context.signal_modified(name);
}

fn log(context: &Context, key: Text<'_>, server: &ServerName, from: &str, to: &str) {
    let line = format!(
        "session continued by another worker: session={} server={server} from={from} to={to} reason=\"worker lost\"",
        session_digest(key.as_bytes()),
    );
    context.log(Level::Notice, &line);
}
