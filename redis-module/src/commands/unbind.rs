//! `SESSION.UNBIND key principal server epoch [token]`

use mooring_session::names::{Principal, ServerName, Token};
use mooring_session::rules::{self, UnbindRequest};

use crate::arguments::{self, Parser};
use crate::claims;
use crate::command_spec::{ArgumentSpec, CommandSpec, KeyAccess};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::record_io;
use crate::reply;

struct UnbindCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.unbind",
    entry: ffi::entry::<UnbindCommand>(),
    flags: c"write fast",
    arity: -5,
    key: KeyAccess::Update,
    summary: c"Drops one binding of a session, or gives up a claim.",
    complexity: c"O(N) with N being the number of fields of the record",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output names_request"),
    categories: c"write fast",
    arguments: ARGUMENTS,
    reply: "the binding as it was",
    details: "\
Drops the binding if it has exactly that epoch. A live claim is given up only with its token.",
    errors: &[
        ErrorSpec::NO_SESSION,
        ErrorSpec::ENDED,
        ErrorSpec::DENIED,
        ErrorSpec::CORRUPT,
        ErrorSpec::WRONG_TYPE,
    ],
};

grammar! {
    parse<'a>(key) -> UnbindRequest {
        principal: text(c"principal", Principal::parse),
        server: text(c"server", ServerName::parse),
        epoch: integer(c"epoch", arguments::epoch),
        token: rest(ArgumentSpec::secret(c"token").optional(), |words: &mut Parser<_>| words.secret(Token::parse)),
    }
}

impl Command for UnbindCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let request = parse(arguments)?;
        let key = arguments.get(1).ok_or(Failure::Internal)?;
        let (slot, decided) = record_io::apply(context, module, key, |record, rules_context| {
            rules::unbind(record, &request, rules_context)
        })?;
        claims::settle(module, slot.moment(), &request.server);
        reply::binding(context, &decided.reply);
        Ok(Outcome::Transitions(&[c"session.unbound"]))
    }
}
