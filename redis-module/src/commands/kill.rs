//! `SESSION.KILL key`: the operator's END, which names no principal.

use mooring_session::Refusal;
use mooring_session::rules::{EndCondition, EndRequest};

use super::end;
use crate::command_spec::{CommandSpec, KeyAccess};
use crate::failure::{ErrorSpec, Failure};
use crate::ffi::{self, Arguments, Context};
use crate::grammar::grammar;
use crate::handler::{Command, Outcome};
use crate::keyspace;
use crate::module::Module;
use crate::record_io;
use crate::reply;

struct KillCommand;

/// The registration of the command.
pub(super) const SPEC: CommandSpec = CommandSpec {
    name: c"session.kill",
    entry: ffi::entry::<KillCommand>(),
    flags: c"write fast",
    arity: 2,
    key: KeyAccess::Update,
    summary: c"Ends the session of any principal: the operator's END.",
    complexity: c"O(N) with N being the number of fields of the record",
    since: c"0.1.0",
    tips: Some(c"nondeterministic_output names_request"),
    categories: c"write fast dangerous",
    arguments: ARGUMENTS,
    reply: "as SESSION.END; for a record that cannot be read, `ended_now` 1 and `unreadable`, the reason",
    details: "\
Ends the session as SESSION.END does, but for any principal. The command is in the ACL category `@dangerous`.

A record that cannot be read, because a field is corrupt or a newer version of the module wrote it, is dropped. It
leaves no tombstone, so its upstream sessions end with the upstream servers' own timeouts. A hash without the field
`s`, or under none of `mooring.prefixes`, does not belong to the module and is left alone.",
    errors: &[
        ErrorSpec::NO_SESSION,
        ErrorSpec::new(
            "ERR",
            "the hash under the key is no record and does not belong to the module: `corrupt session record: <field>`",
        ),
        ErrorSpec::WRONG_TYPE,
    ],
};

grammar! {
    parse<'a>(key) -> () {} => Ok(())
}

impl Command for KillCommand {
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure> {
        parse(arguments)?;
        let key = arguments.get(1).ok_or(Failure::Internal)?;
        let request = EndRequest {
            principal: None,
            when: EndCondition::Always,
        };
        match end::apply(context, module, key, &request) {
            Err(Failure::Refused(Refusal::Corrupt(reason)))
                if keyspace::may_be_ours(key.as_bytes()) =>
            {
                record_io::drop_unreadable(context, module, key, &reason)?;
                module.counters.ends += 1;
                reply::dropped(context, &reason);
                Ok(Outcome::Transitions(&[c"session.ended"]))
            }
            ended => {
                let ended = ended?;
                reply::ended(context, &ended);
                Ok(end::outcome(&ended))
            }
        }
    }
}
