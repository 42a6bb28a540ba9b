//! `SESSION.CONFIRM key principal server epoch token [UPSTREAM upstream_session]`

use mooring_session::names::{Principal, ServerName, Token, UpstreamSession};
use mooring_session::rules::{self, Confirm};
use mooring_session::view::BindingView;

use crate::arguments::{OptionWord, Parser, Seen};
use crate::failure::Failure;
use crate::ffi::{self, Arguments, Context, Text};
use crate::handler::{Command, Outcome};
use crate::module::{Module, Surroundings};
use crate::record_io::Slot;
use crate::registrar::{ArgumentSpec, CommandSpec, KeyAccess};
use crate::reply;

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

fn parse(arguments: Arguments<'_>) -> Result<Confirm, Failure> {
    let mut words = Parser::new(arguments);
    words.key()?;
    let mut request = Confirm {
        principal: words.name(Principal::parse)?,
        server: words.name(ServerName::parse)?,
        epoch: words.epoch()?,
        token: words.name(Token::parse)?,
        upstream_session: None,
    };
    let mut seen = Seen::default();
    while words.option(&OPTIONS, &mut seen)?.is_some() {
        request.upstream_session = Some(words.name(UpstreamSession::parse)?);
    }
    Ok(request)
}

fn apply(
    context: &Context,
    module: &Module,
    key: Text<'_>,
    request: &Confirm,
) -> Result<BindingView, Failure> {
    let mut slot = Slot::load(context, key)?;
    let surroundings = Surroundings::at(module, context.unix_ms());
    let decided = rules::confirm(&mut slot.record, request, &surroundings.context())?;
    slot.store(decided.written, &module.fields);
    Ok(decided.reply)
}
