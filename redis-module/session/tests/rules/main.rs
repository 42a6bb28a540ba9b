//! Each rule against each state a record can be in: tables through one [`check`].
//!
//! Invariant of every row, beside what it expects: a refusal changes nothing, `RecordChange` is true, and the same
//! command said by another principal is `DENIED` wherever there is a record.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod bind;
mod cleaning;
mod clock_back;
mod confirm;
mod create;
mod end;
mod explain;
mod lifetime;
mod rate;
mod rebind;
mod route;
mod states;
mod touch;
mod unbind;
mod workers;

use mooring_session::names::{InstanceName, Principal, ServerName};
use mooring_session::record::Record;
use mooring_session::view::BindingView;
use mooring_session::{
    Context, Decision, NoIndex, Node, PrincipalSessions, RecordChange, Refusal, Tuning,
};

use states::{Crew, KEY, NOW, State, number_at, slot_in};
use support::{Command, Outcome, Reply, assert_written, principal};

/// Runs `command` on a record in each state and compares what it came to with the row's words.
#[track_caller]
fn check(command: &Command, rows: &[(State, &str)]) {
    for (state, expected) in rows {
        let (_, outcome) = run(command, *state);
        assert_eq!(describe(&outcome), *expected, "{command:?} on {state:?}");
        let slot = slot_in(*state);
        if slot.is_some() && command.principal().is_some() {
            let (_, outcome) = run(&command.clone().said_by(&principal("mallory")), *state);
            assert_eq!(
                outcome,
                Err(Refusal::Denied),
                "by another principal on {state:?}"
            );
        }
    }
}

/// Runs `command` at [`NOW`] on a record in `state`, and answers with what is there then.
#[track_caller]
fn run(command: &Command, state: State) -> (Option<Record>, Outcome) {
    let mut slot = slot_in(state);
    let outcome = run_on(&mut slot, command, NOW);
    (slot, outcome)
}

/// Runs `command` on `slot` at `now`, in milliseconds.
#[track_caller]
fn run_on(slot: &mut Option<Record>, command: &Command, now: u64) -> Outcome {
    let tuning = Tuning::default();
    let before = slot.clone();
    let outcome = command.run(slot, KEY, &context(now, &tuning));
    assert_written(before.as_ref(), slot.as_ref(), &outcome);
    outcome
}

/// The same on a node where somebody holds a turn of the session at the server of this name.
#[track_caller]
fn run_while_turn_held(server: &str, command: &Command, state: State) -> (Option<Record>, Outcome) {
    let tuning = Tuning::default();
    let node = TurnAt(support::server(server));
    let context = Context {
        node: &node,
        ..context(NOW, &tuning)
    };
    let mut slot = slot_in(state);
    let before = slot.clone();
    let outcome = command.run(&mut slot, KEY, &context);
    assert_written(before.as_ref(), slot.as_ref(), &outcome);
    (slot, outcome)
}

/// A node without indexes on which somebody holds a turn at this server.
struct TurnAt(ServerName);

impl Node for TurnAt {
    fn fullness(&self, _: &ServerName, _: &InstanceName) -> u64 {
        0
    }

    fn held_by(&self, _: &Principal) -> Option<PrincipalSessions> {
        None
    }

    fn holds_turn(&self, server: Option<&ServerName>) -> bool {
        server.is_none_or(|server| *server == self.0)
    }
}

fn context(now: u64, tuning: &Tuning) -> Context<'_> {
    Context {
        now: states::at(now),
        floor: 0,
        tuning,
        workers: &Crew,
        node: &NoIndex,
    }
}

/// What a command came to, in words: the refusal's code, or the answer and what was written.
fn describe(outcome: &Outcome) -> String {
    match outcome {
        Err(refusal) => refusal.code().to_owned(),
        Ok(Decision { reply, written }) => {
            format!("{}, {}", reply_in_words(reply), words(*written))
        }
    }
}

fn words(written: RecordChange) -> &'static str {
    match written {
        RecordChange::Nothing => "nothing",
        RecordChange::Lifetime => "lifetime",
        RecordChange::Record => "record",
        RecordChange::Removed => "removed",
    }
}

fn reply_in_words(reply: &Reply) -> String {
    match reply {
        Reply::Create(reply) => format!(
            "created {} generation {} previous {}",
            u8::from(reply.created),
            relative(reply.record.generation),
            reply.previous.len()
        ),
        Reply::Touch(reply) => format!("expires {}", relative(reply.expires_at.least_number())),
        Reply::Route(reply) => {
            let binding = reply
                .binding
                .as_ref()
                .map_or("unbound".to_owned(), binding_in_words);
            match &reply.worker_lost {
                Some(lost) => format!("{binding} lost {}", lost.worker),
                None => binding,
            }
        }
        Reply::Bind(reply) => format!(
            "won {} {}",
            u8::from(reply.won),
            binding_in_words(&reply.binding)
        ),
        Reply::Rebind(reply) => format!(
            "won {} {} left {}",
            u8::from(reply.won),
            binding_in_words(&reply.binding),
            reply.previous.as_ref().map_or("-", |p| p.as_str())
        ),
        Reply::Confirm(binding) | Reply::Unbind(binding) => binding_in_words(binding),
        Reply::End(reply) => format!(
            "ended {} bindings {}",
            u8::from(reply.ended_now),
            reply.record.bindings.len()
        ),
        Reply::Claim(record) => format!("bindings {}", record.bindings.len()),
        Reply::Forget(floor) => format!("floor {}", relative(*floor)),
    }
}

/// State, instance, epoch relative to [`NOW`] and upstream session.
fn binding_in_words(binding: &BindingView) -> String {
    format!(
        "{} {} {} {}",
        binding.state.as_str(),
        binding.instance,
        relative(binding.epoch),
        binding
            .upstream_session
            .as_ref()
            .map_or("-", |session| session.as_str())
    )
}

/// A number relative to the first of [`NOW`], in milliseconds of the clock: `+0` is the first of the command's own, and
/// `+0.001` the one after it.
fn relative(number: u64) -> String {
    let difference = i128::from(number) - i128::from(number_at(NOW));
    let sign = if difference < 0 { '-' } else { '+' };
    match (difference.abs() / 1_000, difference.abs() % 1_000) {
        (ms, 0) => format!("{sign}{ms}"),
        (ms, rest) => format!("{sign}{ms}.{rest:03}"),
    }
}
