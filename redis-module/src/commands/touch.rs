//! `SESSION.TOUCH key principal [TTL ms] [HASH content_hash] [LABEL name value]... [REPORTED server epoch]`

use std::collections::BTreeMap;

use mooring_session::names::{ContentHash, Principal, ServerName};
use mooring_session::rules::{self, ReportedLoss, Touch, TouchReply};

use crate::arguments::{OptionWord, Parser, SeenOptions, Words};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context, Text};
use crate::handler::{Command, Outcome};
use crate::module::Module;
use crate::record_io::Slot;
use crate::registrar::{ArgumentSpec, CommandSpec, KeyAccess};
use crate::reply;
use crate::rule_inputs::RuleInputs;

struct TouchCommand;

/// What Redis shall know of it.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.touch",
    entry: ffi::entry::<TouchCommand>(),
    // No deny-oom: a session in use must not be lost because memory is short.
    flags: c"write fast",
    arity: -3,
    key: KeyAccess::Update,
    summary: c"Notes a use of a session, and sets what is given.",
    complexity: c"O(N) with N being the number of fields of the record",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output"),
    categories: c"write fast session",
    core_categories: c"write fast",
    arguments: &[
        ArgumentSpec::key(),
        ArgumentSpec::text(c"principal"),
        ArgumentSpec::integer(c"ms").after(c"TTL").optional(),
        ArgumentSpec::text(c"content_hash")
            .after(c"HASH")
            .optional(),
        ArgumentSpec::block(
            c"label",
            c"LABEL",
            &[ArgumentSpec::text(c"name"), ArgumentSpec::text(c"value")],
        )
        .optional()
        .multiple(),
        ArgumentSpec::block(
            c"reported",
            c"REPORTED",
            &[
                ArgumentSpec::text(c"server"),
                ArgumentSpec::integer(c"epoch"),
            ],
        )
        .optional(),
    ],
    reply: "`expires_at`",
    details: "\
Slides the TTL, to a new value where one is given, and sets the content hash and the labels given; other labels
stay. A use that comes so soon after a written one that `mooring.touch-step` covers it is not written: the stored
deadline is always ahead by that step, so a session never expires early. `expires_at` is told without the step: a
session whose last uses were not written lasts up to that much longer. Where nothing but the TTL slid, client-side
caches are not invalidated and no WATCH is broken.

REPORTED says that a reply has told the client of the loss with which that epoch of the server's binding began: SESSION.ROUTE
tells of it no more. Of a binding that has another epoch, or of a loss that was reported before, it changes nothing.",
    errors: &[
        ErrorSpec::NO_SESSION,
        ErrorSpec::ENDED,
        ErrorSpec::DENIED,
        ErrorSpec::new("LIMIT", "the session would have more than 16 labels: `LIMIT labels 16`"),
        ErrorSpec::CORRUPT,
        ErrorSpec::WRONG_TYPE,
    ],
};

#[derive(Clone, Copy)]
enum Word {
    Ttl,
    Hash,
    Label,
    Reported,
}

const OPTIONS: [OptionWord<Word>; 4] = [
    OptionWord::once("TTL", Word::Ttl),
    OptionWord::once("HASH", Word::Hash),
    OptionWord::repeated("LABEL", Word::Label),
    OptionWord::once("REPORTED", Word::Reported),
];

impl Command for TouchCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let request = parse(arguments)?;
        let key = arguments.get(1).ok_or(Failure::Internal)?;
        let touched = apply(context, module, key, &request)?;
        reply::expires_at(context, touched.expires_at);
        Ok(Outcome::Quiet)
    }
}

pub(super) fn parse<'a>(words: impl Words<'a>) -> Result<Touch, Failure> {
    let mut words = Parser::new(words);
    words.key()?;
    let mut request = Touch {
        principal: words.name(Principal::parse)?,
        ttl: None,
        content_hash: None,
        labels: BTreeMap::new(),
        reported: None,
    };
    let mut seen = SeenOptions::default();
    while let Some(option) = words.option(&OPTIONS, &mut seen)? {
        match option {
            Word::Ttl => request.ttl = Some(words.ttl()?),
            Word::Hash => request.content_hash = Some(words.name(ContentHash::parse)?),
            Word::Label => words.label(&mut request.labels)?,
            Word::Reported => {
                request.reported = Some(ReportedLoss {
                    server: words.name(ServerName::parse)?,
                    epoch: words.epoch()?,
                });
            }
        }
    }
    Ok(request)
}

fn apply(
    context: &Context,
    module: &mut Module,
    key: Text<'_>,
    request: &Touch,
) -> Result<TouchReply, Failure> {
    let mut slot = Slot::load(context, key)?;
    let inputs = RuleInputs::at(module, slot.moment());
    let decided = rules::touch(&mut slot.record, request, &inputs.context())?;
    slot.store(decided.written, module);
    module.counters.note_touch(decided.written);
    Ok(decided.reply)
}
