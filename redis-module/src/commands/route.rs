//! `SESSION.ROUTE key principal server worker`
//!
//! The hot path: one round trip before every call that a gateway dispatches. It reads six fields in one go instead
//! of the record, copies none of them, and most of the time writes nothing.

use mooring_session::codec::{self, CorruptRecord, Head};
use mooring_session::names::{Principal, ServerName, WorkerId};
use mooring_session::record::{Life, Phase};
use mooring_session::rules::{self, Driven, RouteState};
use mooring_session::{Refusal, Written};

use crate::arguments::Parser;
use crate::digest::digest;
use crate::failure::Failure;
use crate::ffi::{self, Arguments, Context, Key, KeyKind, Level, OwnedText, Text};
use crate::field_names::{BindingFields, RouteFields};
use crate::handler::{Command, Outcome};
use crate::module::{Module, Surroundings};
use crate::record_io;
use crate::registrar::{ArgumentSpec, CommandSpec, KeyAccess};
use crate::reply::{self, OwnerLine, RouteLine};

struct RouteCommand;

/// What Redis shall know of it.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.route",
    entry: ffi::entry::<RouteCommand>(),
    flags: c"write fast",
    arity: 5,
    key: KeyAccess::Update,
    summary: c"Tells where a session's calls to a server go, and notes the use.",
    complexity: c"O(1)",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output"),
    categories: c"write fast session",
    core_categories: c"write fast",
    arguments: &[
        ArgumentSpec::key(),
        ArgumentSpec::text(c"principal"),
        ArgumentSpec::text(c"server"),
        ArgumentSpec::text(c"worker"),
    ],
    reply: "`state` `unbound` alone; or `state` `claimed`|`bound`|`orphaned`, `instance`, `driver`, \
            `epoch`, and where there is one `upstream_session`, `owner` with `owner_alive` and `owner_address`, \
            `lease_until`, and `worker_lost` (the dead worker that drove it before, told once). What is absent is \
            left out: this is the hot path, and every field costs",
};

impl Command for RouteCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let request = parse(arguments)?;
        let key = arguments.get(1).ok_or(Failure::Internal)?;
        apply_and_reply(context, module, key, &request)?;
        Ok(Outcome::Quiet)
    }
}

/// The words as they came. A principal that equals the record's and a server that has been asked for before need no
/// other check, so most calls need none.
struct Request<'a> {
    principal: &'a [u8],
    server: &'a [u8],
    worker: WorkerId,
}

impl Request<'_> {
    /// A bad principal is told before anything about the record, and so is a foreign one.
    fn refuse(&self, refusal: Refusal) -> Failure {
        match Principal::parse(self.principal) {
            Ok(_) => refusal.into(),
            Err(error) => error.into(),
        }
    }
}

fn parse(arguments: Arguments<'_>) -> Result<Request<'_>, Failure> {
    let mut words = Parser::new(arguments);
    words.key()?;
    let request = Request {
        principal: words.value()?,
        server: words.value()?,
        worker: words.name(WorkerId::parse)?,
    };
    words.end()?;
    Ok(request)
}

/// The fields of the hash, as they were read.
struct Stored {
    life: Option<OwnedText>,
    principal: Option<OwnedText>,
    head: Option<OwnedText>,
    instance: Option<OwnedText>,
    upstream_session: Option<OwnedText>,
    driver: Option<OwnedText>,
}

impl Stored {
    fn read(key: &Key<'_>, fields: &RouteFields<'_>) -> Self {
        let binding = fields.binding;
        let [life, principal, head, instance, upstream_session, driver] = key.read([
            fields.life,
            fields.principal,
            binding.head.text(),
            binding.instance.text(),
            binding.upstream_session.text(),
            binding.driver.text(),
        ]);
        Self {
            life,
            principal,
            head,
            instance,
            upstream_session,
            driver,
        }
    }
}

/// The answer is written while the strings that were read still live, so that none of them is copied.
fn apply_and_reply(
    context: &Context,
    module: &mut Module,
    name: Text<'_>,
    request: &Request<'_>,
) -> Result<(), Failure> {
    let fields = module.fields.of(request.server)?;
    let key = context.open(name);
    match key.kind() {
        KeyKind::Hash => {}
        KeyKind::Empty => return Err(request.refuse(Refusal::NoSession)),
        KeyKind::Other => return Err(Failure::WrongType),
    }
    let stored = Stored::read(&key, &fields);
    let principal = required(stored.principal.as_ref(), fields.principal)?;
    if principal != request.principal {
        return Err(request.refuse(Refusal::Denied));
    }
    let life_before = codec::decode_life(required(stored.life.as_ref(), fields.life)?)?;
    let mut life = life_before;
    let mut binding = Binding::read(&stored, fields.binding, fields.server)?;

    let surroundings = Surroundings::of(&module.workers, module.started, context.unix_ms());
    let rules_context = surroundings.context();
    let driven = binding.as_mut().map(Binding::driven);
    let decided = rules::route_binding(&mut life, driven, &request.worker, &rules_context)?;

    if life != life_before {
        store_life(context, name, &key, fields.life, &life);
    }
    module.figures.note_touch(decided.written);
    let Some(binding) = binding else {
        module.figures.misses += 1;
        reply::unbound(context);
        return Ok(());
    };
    module.figures.hits += 1;
    if decided.written == Written::Record {
        let field = fields.binding.driver.text();
        store_driver(context, name, &key, field, &binding);
    }
    let lost = decided.reply.worker_lost.map(|lost| lost.worker);
    if let Some(lost) = &lost {
        module.figures.worker_losses += 1;
        log(context, name, fields.server, lost, &request.worker);
    }
    let line = binding.line(decided.reply.state, lost.as_ref(), &rules_context);
    reply::routed(context, &line);
    Ok(())
}

/// One binding as it stands in the hash.
struct Binding<'a> {
    head: Head,
    instance: &'a [u8],
    upstream_session: Option<&'a [u8]>,
    owner: Option<WorkerId>,
    driver: WorkerId,
}

impl<'a> Binding<'a> {
    fn read(
        stored: &'a Stored,
        fields: &BindingFields,
        server: &ServerName,
    ) -> Result<Option<Self>, CorruptRecord> {
        let Some(head) = &stored.head else {
            return Ok(None);
        };
        let driver = required(stored.driver.as_ref(), fields.driver.text())?;
        let (driver, owner) = codec::decode_driver(server, driver)?;
        Ok(Some(Self {
            head: codec::decode_head(server, head.as_bytes())?,
            instance: required(stored.instance.as_ref(), fields.instance.text())?,
            upstream_session: stored.upstream_session.as_ref().map(OwnedText::as_bytes),
            owner,
            driver,
        }))
    }

    fn driven(&mut self) -> Driven<'_> {
        Driven {
            phase: self.head.phase,
            owner: self.owner.as_ref(),
            driver: &mut self.driver,
        }
    }

    fn line<'b>(
        &'b self,
        state: RouteState,
        worker_lost: Option<&'b WorkerId>,
        context: &'b mooring_session::Context<'_>,
    ) -> RouteLine<'b> {
        RouteLine {
            state,
            instance: self.instance,
            upstream_session: self.upstream_session,
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
        }
    }
}

fn required<'a>(value: Option<&'a OwnedText>, field: Text<'_>) -> Result<&'a [u8], CorruptRecord> {
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
    field: Text<'_>,
    binding: &Binding<'_>,
) {
    let driver = codec::encode_driver(&binding.driver, binding.owner.as_ref());
    let value = OwnedText::new(driver.as_bytes());
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
