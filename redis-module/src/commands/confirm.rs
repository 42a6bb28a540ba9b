//! `SESSION.CONFIRM key principal server epoch token [UPSTREAM upstream_session]`

use mooring_session::RecordChange;
use mooring_session::names::{Principal, ServerName, Token, UpstreamSession};
use mooring_session::rules::{self, ConfirmRequest};

use crate::arguments;
use crate::claims;
use crate::command_spec::{CommandSpec, KeyAccess};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::record_io;
use crate::reply;

struct ConfirmCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.confirm",
    entry: ffi::entry::<ConfirmCommand>(),
    // No deny-oom: it settles what BIND or REBIND began, and frees about as much memory as it takes.
    flags: c"write fast",
    arity: -6,
    key: KeyAccess::Update,
    summary: c"Marks a claimed binding as initialized and in use.",
    complexity: c"O(N) with N being the number of fields of the record",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output names_request"),
    categories: c"write fast",
    arguments: ARGUMENTS,
    reply: "the binding",
    details: "\
The holder of a claim reports that the upstream is initialized. The binding becomes `bound`, with the given upstream
session. Confirming twice is no error. A caller that gets `STALE` has lost the claim and deletes the upstream session
that it created.",
    errors: &[
        ErrorSpec::NO_SESSION,
        ErrorSpec::ENDED,
        ErrorSpec::DENIED,
        ErrorSpec::new("STALE", "the binding has another epoch or token, or is gone"),
        ErrorSpec::CORRUPT,
        ErrorSpec::WRONG_TYPE,
    ],
};

grammar! {
    parse<'a>(key) -> ConfirmRequest {
        principal: text(c"principal", Principal::parse),
        server: text(c"server", ServerName::parse),
        epoch: integer(c"epoch", arguments::epoch),
        token: secret(c"token", Token::parse),
        upstream_session: optional(c"UPSTREAM", secret(c"upstream_session", UpstreamSession::parse)),
    }
}

impl Command for ConfirmCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let request = parse(arguments)?;
        let key = arguments.get(1).ok_or(Failure::Internal)?;
        let (slot, decided) = record_io::apply(context, module, key, |record, rules_context| {
            rules::confirm(record, &request, rules_context)
        })?;
        claims::settle(module, slot.moment(), &request.server);
        reply::binding(context, &decided.reply);
        Ok(match decided.written {
            RecordChange::Record => Outcome::Transitions(&[c"session.bound"]),
            // A repeated confirmation.
            _ => Outcome::Quiet,
        })
    }
}
