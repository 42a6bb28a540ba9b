//! `SESSION.CREATE key id principal TTL ms [HASH content_hash] [LABEL name value]... [NOREVIVE]`

use std::collections::BTreeMap;

use mooring_session::names::{ContentHash, Principal, SessionId};
use mooring_session::record::Standing;
use mooring_session::rules::{self, Create, Created, Revival};
use mooring_session::time::Timestamp;

use crate::arguments::{OptionWord, Parser, Seen, required};
use crate::failure::Failure;
use crate::ffi::{self, Arguments, Context, Text};
use crate::handler::{Command, Outcome};
use crate::module::{Module, Surroundings};
use crate::record_io::Slot;
use crate::registrar::{ArgumentSpec, CommandSpec, KeyAccess};
use crate::reply;

struct CreateCommand;

/// What Redis shall know of it.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.create",
    entry: ffi::entry::<CreateCommand>(),
    flags: c"write deny-oom fast",
    arity: -6,
    key: KeyAccess::Update,
    summary: c"Creates a session, or gets the one that is there.",
    complexity: c"O(N) with N being the number of fields of the record",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output"),
    categories: c"write fast session",
    core_categories: c"write fast",
    arguments: &[
        ArgumentSpec::key(),
        ArgumentSpec::text(c"id"),
        ArgumentSpec::text(c"principal"),
        ArgumentSpec::integer(c"ms").after(c"TTL"),
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
        ArgumentSpec::word(c"norevive", c"NOREVIVE"),
    ],
    reply: "`created` 0|1, `hash_changed` 0|1, `previous` (bindings that the tombstone still held), then the record",
};

#[derive(Clone, Copy)]
enum Word {
    Ttl,
    Hash,
    Label,
    NoRevive,
}

const OPTIONS: [OptionWord<Word>; 4] = [
    OptionWord::once("TTL", Word::Ttl),
    OptionWord::once("HASH", Word::Hash),
    OptionWord::repeated("LABEL", Word::Label),
    OptionWord::once("NOREVIVE", Word::NoRevive),
];

impl Command for CreateCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        let request = parse(arguments)?;
        let key = arguments.get(1).ok_or(Failure::Internal)?;
        let created = apply(context, module, key, &request)?;
        reply::created(context, &created);
        Ok(match created.created {
            true => Outcome::Transition(c"session.created"),
            false => Outcome::Quiet,
        })
    }
}

fn parse(arguments: Arguments<'_>) -> Result<Create, Failure> {
    let mut words = Parser::new(arguments);
    words.key()?;
    let id = words.name(SessionId::parse)?;
    let principal = words.name(Principal::parse)?;
    let (mut ttl, mut content_hash, mut revival) = (None, None, Revival::Allowed);
    let mut labels = BTreeMap::new();
    let mut seen = Seen::default();
    while let Some(option) = words.option(&OPTIONS, &mut seen)? {
        match option {
            Word::Ttl => ttl = Some(words.ttl()?),
            Word::Hash => content_hash = Some(words.name(ContentHash::parse)?),
            Word::Label => words.label(&mut labels)?,
            Word::NoRevive => revival = Revival::Refused,
        }
    }
    Ok(Create {
        id,
        principal,
        ttl: required("TTL", ttl)?,
        content_hash,
        labels,
        revival,
        cap: None,
    })
}

fn apply(
    context: &Context,
    module: &mut Module,
    key: Text<'_>,
    request: &Create,
) -> Result<Created, Failure> {
    let now_unix_ms = context.unix_ms();
    let mut slot = Slot::load(context, key)?;
    let standing = slot
        .record
        .as_ref()
        .map(|record| record.life.standing(Timestamp::from_unix_ms(now_unix_ms)));
    let surroundings = Surroundings::at(module, now_unix_ms);
    let decided = rules::create(&mut slot.record, request, &surroundings.context())?;
    slot.store(decided.written, &module.fields);
    if decided.reply.created {
        module.figures.creates += 1;
        module.figures.expirations += u64::from(standing == Some(Standing::Expired));
    } else {
        module.figures.reuses += 1;
        module.figures.note_touch(decided.written);
    }
    Ok(decided.reply)
}
