//! What ROUTE and ENTER do: where a session's calls to a server go, and whose turn it is.
//!
//! It reads three fields in one go instead of the record, copies none of them, and most of the time writes nothing. Two
//! more are read where a loss is still to be reported, which the third one says.

use mooring_session::codec::{self, BindingHead, CorruptRecord};
use mooring_session::names::{InstanceName, NameError, Principal, ServerName, WorkerId};
use mooring_session::record::{Life, Phase};
use mooring_session::rules::{self, BindingParts, RouteState};
use mooring_session::turns::{TurnRequest, TurnStatus};
use mooring_session::view::BindingState;
use mooring_session::{RecordChange, Refusal};

use super::turn::Queues;
use crate::claims;
use crate::digest::digest;
use crate::failure::Failure;
use crate::ffi::{Context, Key, KeyKind, Level, OwnedText, Text};
use crate::field_names::{BindingFields, RouteFields};
use crate::keyspace;
use crate::module::Module;
use crate::moment::Moment;
use crate::record_io;
use crate::reply::{self, OwnerLine, RouteLine};
use crate::rule_inputs::RuleInputs;

/// The words as they came. A principal that equals the record's and a server that has been asked for before need no
/// other check, so most calls need none.
pub(super) struct RouteRequest<'a> {
    pub(super) principal: &'a [u8],
    pub(super) server: &'a [u8],
    pub(super) worker: WorkerId,
    /// The turn that is asked for, if one is.
    pub(super) turn: Option<TurnRequest>,
}

/// Leaves a word as it came, for [`RouteRequest`].
pub(super) fn unparsed(word: &[u8]) -> Result<&[u8], NameError> {
    Ok(word)
}

impl RouteRequest<'_> {
    /// A bad principal is told before anything about the record, and so is a foreign one.
    fn refuse(&self, refusal: Refusal) -> Failure {
        match Principal::parse(self.principal) {
            Ok(_) => refusal.into(),
            Err(error) => error.into(),
        }
    }
}

/// The fields of the hash, as they were read.
struct StoredFields {
    life: Option<OwnedText>,
    principal: Option<OwnedText>,
    head: Option<OwnedText>,
}

impl StoredFields {
    /// Reads what the key holds, which must be the principal's own.
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
        let [life, principal, head] =
            key.read([fields.life, fields.principal, fields.binding.head.text()]);
        Self {
            life,
            principal,
            head,
        }
    }
}

/// Decides, writes and answers. The answer is written while the strings that were read still live, so that none of them
/// is copied.
pub(super) fn serve(
    context: &Context,
    module: &mut Module,
    name: Text<'_>,
    request: &RouteRequest<'_>,
) -> Result<(), Failure> {
    let fields = module.fields.of(request.server)?;
    let key = context.open(name);
    let stored = StoredFields::own(&key, &fields, request)?;
    let life_before = codec::decode_life(present(stored.life.as_ref(), fields.life)?)?;
    let mut life = life_before;
    let mut binding = StoredBinding::read(&stored, fields.server)?;

    let moment = Moment::of(context, name);
    let inputs = RuleInputs::of(&module.workers, &module.time, moment.now);
    let rules_context = inputs.context();
    let driven = binding.as_mut().map(StoredBinding::driven);
    let decided = rules::route_binding(&mut life, driven, &request.worker, &rules_context)?;
    // Before anything is written: a turn that is refused refuses the command.
    let asked = request.turn.as_ref().map(|turn| {
        let queues = Queues {
            turns: &mut module.turns,
            news: &mut module.news,
            workers: rules_context.workers,
            mono: module.time.now(),
        };
        queues.enter(&moment, fields.server, turn)
    });
    let turn = asked.transpose()?;

    let Moment { now, database, .. } = moment;
    if life == life_before {
        module.indexes.note_use(database, name.as_bytes(), now);
    } else {
        store_life(context, name, &key, fields.life, &life);
        module.indexes.slide(database, name.as_bytes(), &life, now);
    }
    module.counters.note_touch(decided.written);
    let Some(binding) = binding else {
        module.counters.misses += 1;
        reply::unbound(context, turn);
        return Ok(());
    };
    module.counters.hits += 1;
    if decided.written == RecordChange::Record {
        store_driver(context, name, &key, fields.binding, &binding);
    }
    let lost = decided.reply.worker_lost.map(|lost| lost.worker);
    if let Some(lost) = &lost {
        module.counters.worker_losses += 1;
        log(context, name, fields.server, lost, &request.worker);
    }
    let unreported_loss = StoredLoss::read(&key, fields.binding, fields.server, &binding.head)?;
    let line = RouteLine {
        lost_instance: unreported_loss.as_ref().map(|loss| loss.instance.as_str()),
        lost_reason: (unreported_loss.as_ref())
            .and_then(|loss| loss.reason.as_ref())
            .map(OwnedText::as_bytes),
        ..binding.line(decided.reply.state, lost.as_ref(), turn, &rules_context)
    };
    reply::routed(context, &line);
    if line.state == RouteState::Binding(BindingState::Claimed) {
        let until = module
            .time
            .now()
            .plus(claims::left(&moment, line.lease_until));
        let (worker, server) = (&request.worker, fields.server);
        claims::watch(&mut module.news, &moment, worker, server, until);
    }
    if decided.written == RecordChange::Record {
        // The driver changed, which the index counts by; seldom enough to read the whole record.
        keyspace::refresh(module, context, name);
    }
    Ok(())
}

/// One binding as it is stored in the hash.
struct StoredBinding<'a> {
    head: BindingHead<'a>,
    owner: Option<WorkerId>,
    driver: WorkerId,
}

impl<'a> StoredBinding<'a> {
    fn read(stored: &'a StoredFields, server: &ServerName) -> Result<Option<Self>, CorruptRecord> {
        let Some(head) = &stored.head else {
            return Ok(None);
        };
        let head = BindingHead::decode(server.as_str(), head.as_bytes())?;
        let field = || CorruptRecord::field(codec::field_name('b', server.as_str()).as_bytes());
        let worker = |name: &str| WorkerId::parse(name.as_bytes()).map_err(|_| field());
        Ok(Some(Self {
            owner: head.owner.map(worker).transpose()?,
            driver: worker(head.driver)?,
            head,
        }))
    }

    fn driven(&mut self) -> BindingParts<'_> {
        BindingParts {
            phase: self.head.phase,
            bound_at: self.head.bound_at,
            owner: self.owner.as_ref(),
            driver: &mut self.driver,
        }
    }

    fn line<'b>(
        &'b self,
        state: RouteState,
        worker_lost: Option<&'b WorkerId>,
        turn: Option<TurnStatus>,
        context: &'b mooring_session::Context<'_>,
    ) -> RouteLine<'b> {
        RouteLine {
            state,
            instance: self.head.instance.as_bytes(),
            upstream_session: self.head.upstream_session.map(str::as_bytes),
            owner: self.owner.as_ref().map(|owner| OwnerLine {
                worker: owner.as_str().as_bytes(),
                alive: context.workers.is_alive(owner),
                address: context.workers.address(owner),
            }),
            driver: self.driver.as_str().as_bytes(),
            epoch: self.head.epoch,
            lease_until: match self.head.phase {
                Phase::Claimed { lease_until } => Some(lease_until),
                Phase::Bound => None,
            },
            worker_lost: worker_lost.map(|lost| lost.as_str().as_bytes()),
            lost_instance: None,
            lost_reason: None,
            turn,
        }
    }
}

/// A loss that is still to be reported, as it stands in the hash.
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

fn store_life(context: &Context, name: Text<'_>, key: &Key<'_>, field: Text<'_>, life: &Life) {
    let value = OwnedText::new(codec::encode_life(life).as_bytes());
    record_io::set(context, name, key, &[[field, value.text()]]);
    record_io::expire(context, name, key, life);
}

fn store_driver(
    context: &Context,
    name: Text<'_>,
    key: &Key<'_>,
    fields: &BindingFields,
    binding: &StoredBinding<'_>,
) {
    let field = fields.head.text();
    let head = BindingHead {
        driver: binding.driver.as_str(),
        ..binding.head
    };
    let value = OwnedText::new(head.encode().as_bytes());
    record_io::set(context, name, key, &[[field, value.text()]]);
    context.signal_modified(name);
}

fn log(context: &Context, key: Text<'_>, server: &ServerName, from: &WorkerId, to: &WorkerId) {
    let line = format!(
        "session continued by another worker: key={} server={server} from={from} to={to} reason=\"worker lost\"",
        digest(key.as_bytes()),
    );
    context.log(Level::Notice, &line);
}
