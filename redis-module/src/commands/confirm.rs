//! `SESSION.CONFIRM key principal server epoch token [UPSTREAM upstream_session]`

use mooring_session::names::{Principal, ServerName, Token, UpstreamSession};
use mooring_session::rules::{self, Confirm};
use mooring_session::view::BindingView;

use crate::arguments::{OptionWord, Parser, SeenOptions, Words};
use crate::claims;
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context, Text};
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::record_io::Slot;
use crate::registrar::{ArgumentSpec, CommandSpec, KeyAccess};
use crate::reply;
use crate::rule_inputs::RuleInputs;

struct ConfirmCommand;

/// What Redis shall know of it.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.confirm",
    entry: ffi::entry::<ConfirmCommand>(),
    // No deny-oom: it settles what BIND or REBIND began, and frees about what it takes.
    flags: c"write fast",
    arity: -6,
    key: KeyAccess::Update,
    summary: c"Says that a claim is initialised: its binding is in use from now on.",
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
        ArgumentSpec::text(c"token"),
        ArgumentSpec::text(c"upstream_session")
            .after(c"UPSTREAM")
            .optional(),
    ],
    reply: "the binding",
    details: "\
The holder of a claim says that the upstream is initialised: the binding is `bound` from now on, with the upstream
session given. Saying so twice is no error. A caller that gets `STALE` lost the claim and deletes the upstream session
that it made.",
    errors: &[
        ErrorSpec::NO_SESSION,
        ErrorSpec::ENDED,
        ErrorSpec::DENIED,
        ErrorSpec::new("STALE", "the binding has another epoch or token, or is gone"),
        ErrorSpec::CORRUPT,
        ErrorSpec::WRONG_TYPE,
    ],
};

const OPTIONS: [OptionWord<()>; 1] = [OptionWord::once("UPSTREAM", ())];

impl Command for ConfirmCommand {
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

pub(super) fn parse<'a>(words: impl Words<'a>) -> Result<Confirm, Failure> {
    let mut words = Parser::new(words);
    words.key()?;
    let mut request = Confirm {
        principal: words.name(Principal::parse)?,
        server: words.name(ServerName::parse)?,
        epoch: words.epoch()?,
        token: words.name(Token::parse)?,
        upstream_session: None,
    };
    let mut seen = SeenOptions::default();
    while words.option(&OPTIONS, &mut seen)?.is_some() {
        request.upstream_session = Some(words.name(UpstreamSession::parse)?);
    }
    Ok(request)
}

fn apply(
    context: &Context,
    module: &mut Module,
    key: Text<'_>,
    request: &Confirm,
) -> Result<BindingView, Failure> {
    let mut slot = Slot::load(context, key)?;
    let inputs = RuleInputs::at(module, slot.moment());
    let decided = rules::confirm(&mut slot.record, request, &inputs.context())?;
    slot.store(decided.written, module);
    claims::settle(module, slot.moment(), &request.server);
    Ok(decided.reply)
}
