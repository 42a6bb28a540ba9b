//! `SESSION.UNBIND key principal server epoch [token]`

use mooring_session::names::{Principal, ServerName, Token};
use mooring_session::rules::{self, Unbind};
use mooring_session::view::BindingView;

use crate::arguments::{Parser, Words};
use crate::claims;
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context, Text};
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::record_io::Slot;
use crate::registrar::{ArgumentSpec, CommandSpec, KeyAccess};
use crate::reply;
use crate::rule_inputs::RuleInputs;

struct UnbindCommand;

/// What Redis shall know of it.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.unbind",
    entry: ffi::entry::<UnbindCommand>(),
    flags: c"write fast",
    arity: -5,
    key: KeyAccess::Update,
    summary: c"Drops one binding of a session, or gives up a claim.",
    complexity: c"O(N) with N being the number of fields of the record",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output"),
    categories: c"write fast session",
    core_categories: c"write fast",
    arguments: &[
        ArgumentSpec::key(),
        ArgumentSpec::text(c"principal"),
        ArgumentSpec::text(c"server"),
        ArgumentSpec::integer(c"epoch"),
        ArgumentSpec::text(c"token").optional(),
    ],
    reply: "the binding as it was",
    details: "\
Drops the binding of exactly that epoch. A live claim is given up only with its token.",
    errors: &[
        ErrorSpec::NO_SESSION,
        ErrorSpec::ENDED,
        ErrorSpec::DENIED,
        ErrorSpec::CORRUPT,
        ErrorSpec::WRONG_TYPE,
    ],
};

impl Command for UnbindCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let request = parse(arguments)?;
        let key = arguments.get(1).ok_or(Failure::Internal)?;
        let binding = apply(context, module, key, &request)?;
        reply::binding(context, &binding);
        Ok(Outcome::Quiet)
    }
}

pub(super) fn parse<'a>(words: impl Words<'a>) -> Result<Unbind, Failure> {
    let mut words = Parser::new(words);
    words.key()?;
    let mut request = Unbind {
        principal: words.name(Principal::parse)?,
        server: words.name(ServerName::parse)?,
        epoch: words.epoch()?,
        token: None,
    };
    if !words.is_at_end() {
        request.token = Some(words.name(Token::parse)?);
    }
    words.end()?;
    Ok(request)
}

fn apply(
    context: &Context,
    module: &mut Module,
    key: Text<'_>,
    request: &Unbind,
) -> Result<BindingView, Failure> {
    let mut slot = Slot::load(context, key)?;
    let inputs = RuleInputs::at(module, slot.moment());
    let decided = rules::unbind(&mut slot.record, request, &inputs.context())?;
    slot.store(decided.written, module);
    claims::settle(module, slot.moment(), &request.server);
    Ok(decided.reply)
}
