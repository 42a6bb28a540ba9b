//! `SESSION.BIND key principal server worker token LEASE ms INSTANCES n instance... [UPSTREAM upstream_session]
//! [OWNED]`

use mooring_session::RecordChange;
use mooring_session::names::{Principal, ServerName, Token, UpstreamSession, WorkerId};
use mooring_session::record::Record;
use mooring_session::rules::{self, BindReply, BindRequest, Ownership};
use mooring_session::view::BindingState;

use crate::arguments::{self, INSTANCES};
use crate::claims;
use crate::command_spec::{CommandSpec, KeyAccess};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::moment::Moment;
use crate::record_io;
use crate::reply;

struct BindCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.bind",
    entry: ffi::entry::<BindCommand>(),
    flags: c"write deny-oom fast",
    arity: -11,
    key: KeyAccess::Update,
    summary: c"Binds a session to an instance of a server. The first bind wins; the others get the current binding.",
    complexity: c"O(N+I) with N being the number of fields of the record and I the number of instances",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output names_request"),
    categories: c"write fast",
    arguments: ARGUMENTS,
    reply: "`won` 0|1, then the binding",
    details: "\
If the server is unbound, the module chooses one of the instances and gives the caller a claim on it: the binding is
`claimed`, with a new epoch, until the lease lapses, so that exactly one attempt initializes the upstream. With
UPSTREAM the upstream session exists already, and the binding is `bound` at once. If the server is claimed or bound,
nothing changes and the reply is the current binding. The same token renews the lease and still gets `won` 1, so a
lost reply is harmless.

The chosen instance is the one with the fewest live bindings on this node. An instance that sessions were just moved
away from counts as fuller for 30 seconds. The hash of the key decides ties, and every choice while the index is
incomplete. OWNED means that only the caller's process can drive the binding.",
    errors: &[
        ErrorSpec::NO_SESSION,
        ErrorSpec::ENDED,
        ErrorSpec::DENIED,
        ErrorSpec::new("BUSY", "OWNED was given and the worker is draining"),
        ErrorSpec::new("LIMIT", "the session has 64 bindings already: `LIMIT bindings 64`"),
        ErrorSpec::CORRUPT,
        ErrorSpec::WRONG_TYPE,
    ],
};

grammar! {
    parse<'a>(key) -> BindRequest {
        principal: text(c"principal", Principal::parse),
        server: text(c"server", ServerName::parse),
        worker: text(c"worker", WorkerId::parse),
        token: secret(c"token", Token::parse),
        lease: required(c"LEASE", integer(c"ms", arguments::lease)),
        instances: required(c"INSTANCES", block(c"candidates", INSTANCES, arguments::instances)),
        upstream_session: optional(c"UPSTREAM", secret(c"upstream_session", UpstreamSession::parse)),
        ownership: word(c"OWNED", c"owned", Ownership::Shared => Ownership::Owned),
    }
}

impl Command for BindCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let request = parse(arguments)?;
        let key = arguments.get(1).ok_or(Failure::Internal)?;
        let mut bindings_before = 0;
        let (slot, decided) = record_io::apply(context, module, key, |record, rules_context| {
            bindings_before = bindings(record.as_ref());
            rules::bind(record, key.as_bytes(), &request, rules_context)
        })?;
        notify_watchers(module, slot.moment(), &request, &decided.reply);
        reply::bound(context, &decided.reply);
        let is_new = bindings(slot.record.as_ref()) != bindings_before;
        module.counters.binds += u64::from(is_new);
        Ok(match (decided.written, &request.upstream_session) {
            // A retry with the upstream session confirms its claim.
            (RecordChange::Record, Some(_)) => Outcome::Transitions(&[c"session.bound"]),
            (RecordChange::Record, None) if is_new => Outcome::Transitions(&[c"session.claimed"]),
            _ => Outcome::Quiet,
        })
    }
}

/// A worker that lost against a claim is notified when it settles; a claim that this command confirms is settled.
fn notify_watchers(
    module: &mut Module,
    moment: &Moment<'_>,
    request: &BindRequest,
    bound: &BindReply,
) {
    let binding = &bound.binding;
    if !bound.won {
        claims::watch_binding(module, moment, &request.worker, binding);
    } else if binding.state == BindingState::Bound {
        claims::settle(module, moment, &request.server);
    }
}

fn bindings(record: Option<&Record>) -> usize {
    record.map_or(0, |record| record.bindings.len())
}
