//! `SESSION.TOUCH key principal [TTL ms] [HASH content_hash] [LABEL name value]... [REPORTED server epoch]`

use mooring_session::Decision;
use mooring_session::names::{ContentHash, Principal, ServerName};
use mooring_session::rules::{self, ReportedLoss, TouchReply, TouchRequest};

use crate::arguments::{self, LABEL, Parser, Words};
use crate::command_spec::{ArgumentSpec, CommandSpec, KeyAccess};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context, Text};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::moment::Moment;
use crate::record_io::{self, Slot};
use crate::reply;
use crate::rule_inputs::RuleInputs;

struct TouchCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.touch",
    entry: ffi::entry::<TouchCommand>(),
    // No deny-oom: a session in use must not be lost because memory is short.
    flags: c"write fast",
    arity: -3,
    key: KeyAccess::Update,
    summary: c"Records a use of a session, and sets the given fields.",
    complexity: c"O(1); with HASH, LABEL or REPORTED O(N) with N being the number of fields of the record",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output names_request"),
    categories: c"write fast",
    arguments: ARGUMENTS,
    reply: "`expires_at`",
    details: "\
Slides the TTL, or sets a new one if TTL is given, and sets the given content hash and labels; other labels stay. A
use that follows a written one so closely that `mooring.touch-step` covers it is not written: the stored deadline is
always ahead by that step, so a session never expires early. `expires_at` in the reply excludes the step: a session
whose last uses were not written lasts up to one step longer. If only the TTL slid, client-side caches are not
invalidated and no WATCH is broken.

REPORTED records that a reply has reported to the client the loss with which this epoch of the server's binding began:
SESSION.ROUTE no longer returns that loss. If the binding has another epoch, or the loss was reported before, nothing
changes.",
    errors: &[
        ErrorSpec::NO_SESSION,
        ErrorSpec::ENDED,
        ErrorSpec::DENIED,
        ErrorSpec::new("LIMIT", "the session would have more than 16 labels: `LIMIT labels 16`"),
        ErrorSpec::new("OOM", "the record would grow, and the server has reached `maxmemory` and never evicts"),
        ErrorSpec::CORRUPT,
        ErrorSpec::WRONG_TYPE,
    ],
};

grammar! {
    parse<'a>(key) -> TouchRequest {
        principal: text(c"principal", Principal::parse),
        ttl: optional(c"TTL", integer(c"ms", arguments::ttl)),
        content_hash: optional(c"HASH", text(c"content_hash", ContentHash::parse)),
        labels: repeated(c"LABEL", block(c"label", LABEL, arguments::label)),
        reported: optional(c"REPORTED", block(c"reported", REPORTED, reported_loss)),
    }
}

impl Command for TouchCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let request = parse(arguments)?;
        let key = arguments.get(1).ok_or(Failure::Internal)?;
        let decided = match request.changes_lifetime_only() {
            true => touch_lifetime(context, module, key, &request)?,
            false => touch(context, module, key, &request)?,
        };
        module.counters.note_touch(decided.written);
        reply::expires_at(context, decided.reply.expires_at);
        Ok(Outcome::Quiet)
    }
}

fn touch(
    context: &Context,
    module: &mut Module,
    key: Text<'_>,
    request: &TouchRequest,
) -> Result<Decision<TouchReply>, Failure> {
    let mut slot = Slot::load(context, key)?;
    let inputs = RuleInputs::at(module, slot.moment());
    let decided = rules::touch(&mut slot.record, request, &inputs.context())?;
    slot.refuse_growth(decided.written)?;
    slot.store(decided.written, module);
    Ok(decided)
}

/// Works like ROUTE: reads two fields, and writes one now and then.
fn touch_lifetime(
    context: &Context,
    module: &mut Module,
    name: Text<'_>,
    request: &TouchRequest,
) -> Result<Decision<TouchReply>, Failure> {
    let key = context.open(name);
    let fields = module.fields.of_use();
    let before = record_io::own_lifetime(&key, fields, request.principal.as_str())?;
    let moment = Moment::of(context, name);
    let inputs = RuleInputs::of(&module.workers, &module.time, moment.now);
    let mut lifetime = before;
    let decided = rules::touch_lifetime(&mut lifetime, request.ttl, &inputs.context())?;
    let (indexes, [field, _]) = (&mut module.indexes, fields);
    record_io::store_use(context, indexes, &moment, &key, field, [&before, &lifetime]);
    Ok(decided)
}

/// The parts of a loss that was reported, for COMMAND DOCS.
const REPORTED: &[ArgumentSpec] = &[
    ArgumentSpec::text(c"server"),
    ArgumentSpec::integer(c"epoch"),
];

fn reported_loss<'a>(words: &mut Parser<impl Words<'a>>) -> Result<ReportedLoss, Failure> {
    Ok(ReportedLoss {
        server: words.name(ServerName::parse)?,
        epoch: words.name(arguments::epoch)?,
    })
}
