//! `SESSION.BIND key principal server worker token LEASE ms INSTANCES n instance... [UPSTREAM upstream_session]
//! [OWNED]`

use mooring_session::names::{Principal, ServerName, Token, UpstreamSession, WorkerId};
use mooring_session::rules::{self, Bind, BindReply};
use mooring_session::view::BindingState;

use super::claim_clause::{self, ClaimClause, Part};
use crate::arguments::{OptionWord, Parser, SeenOptions, Words};
use crate::claims;
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context, Text};
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::moment::Moment;
use crate::record_io::Slot;
use crate::registrar::{ArgumentSpec, CommandSpec, KeyAccess};
use crate::reply;
use crate::rule_inputs::RuleInputs;

struct BindCommand;

/// What Redis shall know of it.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.bind",
    entry: ffi::entry::<BindCommand>(),
    flags: c"write deny-oom fast",
    arity: -11,
    key: KeyAccess::Update,
    summary: c"Binds a session to an instance of a server. The first bind wins; the others learn what holds.",
    complexity: c"O(N+I) with N being the number of fields of the record and I the number of instances",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output"),
    categories: c"write fast session",
    core_categories: c"write fast",
    arguments: &[
        ArgumentSpec::key(),
        ArgumentSpec::text(c"principal"),
        ArgumentSpec::text(c"server"),
        ArgumentSpec::text(c"worker"),
        ArgumentSpec::text(c"token"),
        claim_clause::LEASE,
        claim_clause::INSTANCES,
        ArgumentSpec::text(c"upstream_session")
            .after(c"UPSTREAM")
            .optional(),
        claim_clause::OWNED,
    ],
    reply: "`won` 0|1, then the binding",
    details: "\
Where the server is unbound, one of the instances is chosen and the caller gets a claim on it: the binding is
`claimed`, with a new epoch, until the lease, so that exactly one attempt initialises upstream. With UPSTREAM, which
says that it is initialised already, it is `bound` at once. Where the server is claimed or bound, nothing changes and
the answer tells what holds; the same token again renews the lease and is still `won` 1, so a lost answer does no harm.

The instance chosen is the one with the fewest live bindings on this node. One that sessions were just moved away from
counts as fuller for 30 seconds. Ties, and times when the index is not whole, are decided by the hash of the key.
OWNED says that only the caller's process can drive the binding.",
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

#[derive(Clone, Copy)]
enum Word {
    Claim(Part),
    Upstream,
}

const OPTIONS: [OptionWord<Word>; 4] = [
    Part::Lease.option(Word::Claim(Part::Lease)),
    Part::Instances.option(Word::Claim(Part::Instances)),
    OptionWord::once("UPSTREAM", Word::Upstream),
    Part::Owned.option(Word::Claim(Part::Owned)),
];

impl Command for BindCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let request = parse(arguments)?;
        let key = arguments.get(1).ok_or(Failure::Internal)?;
        let (bound, outcome) = apply(context, module, key, &request)?;
        reply::bound(context, &bound);
        Ok(outcome)
    }
}

pub(super) fn parse<'a>(words: impl Words<'a>) -> Result<Bind, Failure> {
    let mut words = Parser::new(words);
    words.key()?;
    let principal = words.name(Principal::parse)?;
    let server = words.name(ServerName::parse)?;
    let worker = words.name(WorkerId::parse)?;
    let token = words.name(Token::parse)?;
    let (mut claim, mut upstream_session) = (ClaimClause::new(), None);
    let mut seen = SeenOptions::default();
    while let Some(option) = words.option(&OPTIONS, &mut seen)? {
        match option {
            Word::Claim(part) => claim.take(part, &mut words)?,
            Word::Upstream => upstream_session = Some(words.name(UpstreamSession::parse)?),
        }
    }
    let (lease, instances, ownership) = claim.whole()?;
    Ok(Bind {
        principal,
        server,
        worker,
        token,
        lease,
        instances,
        upstream_session,
        ownership,
    })
}

fn apply(
    context: &Context,
    module: &mut Module,
    key: Text<'_>,
    request: &Bind,
) -> Result<(BindReply, Outcome), Failure> {
    let mut slot = Slot::load(context, key)?;
    let bindings_before = bindings(&slot);
    let inputs = RuleInputs::at(module, slot.moment());
    let rules_context = inputs.context();
    let decided = rules::bind(&mut slot.record, key.as_bytes(), request, &rules_context)?;
    slot.store(decided.written, module);
    tell(module, slot.moment(), request, &decided.reply);
    let is_new = bindings(&slot) > bindings_before;
    module.counters.binds += u64::from(is_new);
    let outcome = if is_new {
        Outcome::Transition(c"session.bound")
    } else {
        Outcome::Quiet
    };
    Ok((decided.reply, outcome))
}

/// Whoever lost against a claim hears of its end; a claim that is confirmed by this has come to it.
fn tell(module: &mut Module, moment: &Moment<'_>, request: &Bind, bound: &BindReply) {
    let binding = &bound.binding;
    if !bound.won {
        claims::watch_binding(module, moment, &request.worker, binding);
    } else if binding.state == BindingState::Bound {
        claims::settle(module, moment, &request.server);
    }
}

fn bindings(slot: &Slot<'_>) -> usize {
    slot.record
        .as_ref()
        .map_or(0, |record| record.bindings.len())
}
