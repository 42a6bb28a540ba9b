//! What must hold after every command: who may see a record and until when, what a refusal and a use may write, and
//! that the record says what the [history](crate::history) says.

use std::collections::BTreeMap;

use mooring_session::names::WorkerId;
use mooring_session::record::{Phase, Record};
use mooring_session::rules::{RouteReply, RouteRequest};
use mooring_session::{Context, RecordChange, Refusal};

use crate::history::{KeyHistory, Progress};
use crate::support::{Command, Outcome, Reply};

/// Answers a violation unless the condition holds.
macro_rules! hold {
    ($condition:expr, $($violation:tt)+) => {
        if !$condition {
            return Err(format!($($violation)+));
        }
    };
}

pub(crate) use hold;

/// One command and everything around it.
pub(crate) struct Step<'a> {
    pub(crate) key: &'a str,
    pub(crate) command: &'a Command,
    pub(crate) outcome: &'a Outcome,
    pub(crate) before: Option<&'a Record>,
    pub(crate) after: Option<&'a Record>,
    pub(crate) context: &'a Context<'a>,
    /// How often each worker came to life.
    pub(crate) lives: &'a BTreeMap<WorkerId, u64>,
    /// How often the node forgot what it had heard of them.
    pub(crate) promotions: u64,
}

impl Step<'_> {
    pub(crate) fn now(&self) -> u64 {
        self.context.now.unix_ms()
    }
}

/// Everything that ever happened, by key.
#[derive(Clone, Default)]
pub(crate) struct History {
    keys: BTreeMap<String, KeyHistory>,
}

/// What a command came to, by name, for the count of what a run has seen.
pub(crate) fn event(command: &Command, outcome: &Outcome) -> &'static str {
    match (command, outcome) {
        (_, Err(Refusal::Denied)) => "denied",
        (_, Err(Refusal::Ended)) => "ended before",
        (_, Err(Refusal::Owned(_))) => "owned",
        (Command::Confirm(_), Err(Refusal::Stale(_))) => "late confirm",
        (Command::Unbind(_), Err(Refusal::Stale(_))) => "late unbind",
        (Command::Forget(_), Err(Refusal::Stale(_))) => "late forget",
        (_, Err(_)) => "refused otherwise",
        (_, Ok(decided)) => match &decided.reply {
            Reply::Create(reply) if reply.created && reply.previous.is_empty() => "created",
            Reply::Create(reply) if reply.created => "revived",
            Reply::Route(reply) if reply.worker_lost.is_some() => "worker lost",
            Reply::Bind(reply) if reply.won => "bound",
            Reply::Bind(_) => "bind lost",
            Reply::Confirm(_) => "confirmed",
            Reply::Rebind(reply) if reply.won => "rebound",
            Reply::Rebind(_) => "rebind lost",
            Reply::Unbind(_) => "unbound",
            Reply::End(_) => "ended",
            Reply::Claim(_) => "cleaned",
            Reply::Forget(_) => "forgotten",
            Reply::Create(_) | Reply::Touch(_) | Reply::Route(_) => "used",
        },
    }
}

impl History {
    /// Redis dropped the key at its tombstone's end.
    pub(crate) fn dropped(&mut self, key: &str) {
        if let Some(history) = self.keys.get_mut(key) {
            history.incarnation = None;
        }
    }

    /// Goes back to an earlier history. Epochs that were issued since then must not come again.
    pub(crate) fn lose_writes(&mut self, earlier: Self) {
        let lost = std::mem::replace(self, earlier);
        for (key, lost) in lost.keys {
            let history = self.keys.entry(key).or_default();
            history.epochs.extend(lost.epochs);
        }
    }

    /// Judges one step, and remembers it.
    pub(crate) fn observe(&mut self, step: &Step<'_>) -> Result<(), String> {
        let history = self.keys.entry(step.key.to_owned()).or_default();
        hold!(
            history.incarnation.is_some() == step.before.is_some(),
            "a record came or went by no command"
        );
        history.judge_access(step)?;
        match step.outcome {
            Ok(decided) => history.learn(step, &decided.reply)?,
            Err(refusal) => {
                hold!(step.before == step.after, "a refusal changed the record");
                history.judge_refusal(step, refusal)?;
            }
        }
        history.compare(step.after)
    }
}

impl KeyHistory {
    /// Who may see the record, and until when it lives.
    fn judge_access(&self, step: &Step<'_>) -> Result<(), String> {
        let refusal = step.outcome.as_ref().err();
        let Some(incarnation) = &self.incarnation else {
            hold!(
                matches!(step.command, Command::Create(_)) || refusal == Some(&Refusal::NoSession),
                "something was found under an empty key"
            );
            return Ok(());
        };
        let is_own = step
            .command
            .principal()
            .is_none_or(|principal| *principal == incarnation.principal);
        hold!(
            is_own != (refusal == Some(&Refusal::Denied)),
            "DENIED must be the answer to another principal, and to no other"
        );
        let needs_an_active_session = !matches!(
            step.command,
            Command::Create(_) | Command::End(_) | Command::Claim(_) | Command::Forget(_)
        );
        if !is_own || !needs_an_active_session {
            return Ok(());
        }
        hold!(
            incarnation.ended == (refusal == Some(&Refusal::Ended)),
            "ENDED must be the answer after an END, and only then"
        );
        if incarnation.ended {
            return Ok(());
        }
        let is_gone = refusal == Some(&Refusal::NoSession);
        let step_ms = incarnation.ttl / step.context.tuning.touch_step;
        hold!(
            !is_gone || step.now() >= incarnation.last_use + incarnation.ttl,
            "expired early: last used at {}, ttl {}",
            incarnation.last_use,
            incarnation.ttl
        );
        hold!(
            is_gone || step.now() < self.latest_use + incarnation.ttl + step_ms,
            "expired more than one touch step late: last used at {}, ttl {}",
            self.latest_use,
            incarnation.ttl
        );
        Ok(())
    }

    /// A death is told once, to the first who comes; and a use that is not due writes nothing.
    pub(crate) fn judge_route(
        &mut self,
        step: &Step<'_>,
        request: &RouteRequest,
        reply: &RouteReply,
    ) -> Result<(), String> {
        let workers = step.context.workers;
        let before = step.before.ok_or("ROUTE answered without a record")?;
        let binding = before.bindings.get(&request.server);
        let lost = binding.filter(|binding| {
            binding.owner.is_none()
                && binding.phase == Phase::Bound
                && binding.driver != request.worker
                && !workers.is_alive(&binding.driver)
                && workers.is_alive(&request.worker)
        });
        hold!(
            lost.map(|binding| &binding.driver)
                == reply.worker_lost.as_ref().map(|lost| &lost.worker),
            "a dead driver must be told to the first live user, and nothing else"
        );
        if let Some(binding) = lost {
            let life = step.lives.get(&binding.driver).copied().unwrap_or(0);
            let death = (
                request.server.clone(),
                binding.epoch,
                binding.driver.clone(),
                life + step.promotions,
            );
            hold!(self.told.insert(death), "one death was told twice");
        }
        let step_ms = before.lifetime.ttl.get() / step.context.tuning.touch_step;
        let is_due = step.now() >= before.lifetime.last_used_at.unix_ms() + step_ms;
        let written = step.outcome.as_ref().map(|decided| decided.written);
        hold!(
            is_due || lost.is_some() || written == Ok(RecordChange::Nothing),
            "a use that was not due was written"
        );
        hold!(
            !is_due || written != Ok(RecordChange::Nothing),
            "a use that was due was not written"
        );
        Ok(())
    }

    /// A holder must not be refused what it holds.
    fn judge_refusal(&self, step: &Step<'_>, refusal: &Refusal) -> Result<(), String> {
        let Some(incarnation) = &self.incarnation else {
            return Ok(());
        };
        if let (Command::Confirm(request), Refusal::Stale(_)) = (step.command, refusal) {
            let holds = incarnation
                .attempts
                .get(&request.server)
                .is_some_and(|held| {
                    held.epoch == request.epoch
                        && held.token == request.token
                        && matches!(held.progress, Progress::Claimed { .. })
                });
            hold!(!holds, "the holder of a claim could not confirm it");
        }
        if let (Command::Create(_), Refusal::NoSession) = (step.command, refusal) {
            hold!(
                step.now() >= incarnation.last_use + incarnation.ttl,
                "CREATE called a living session expired"
            );
        }
        Ok(())
    }

    /// The record says what the history says.
    fn compare(&self, record: Option<&Record>) -> Result<(), String> {
        let (Some(incarnation), Some(record)) = (&self.incarnation, record) else {
            hold!(
                self.incarnation.is_none() && record.is_none(),
                "the record and the history differ in whether there is one"
            );
            return Ok(());
        };
        hold!(
            incarnation.generation == record.generation
                && incarnation.principal == record.principal,
            "generation or principal changed by no command"
        );
        hold!(
            incarnation.attempts.len() == record.bindings.len(),
            "a binding came or went by no command"
        );
        for (server, held) in &incarnation.attempts {
            let Some(binding) = record.bindings.get(server) else {
                return Err(format!("the binding to {server} is gone"));
            };
            let progress = match binding.phase {
                Phase::Claimed { lease_until } => Progress::Claimed {
                    since: binding.bound_at.unix_ms(),
                    until: lease_until.unix_ms(),
                },
                Phase::Bound => Progress::Bound(binding.upstream_session.clone()),
            };
            let is_claimed = matches!(held.progress, Progress::Claimed { .. });
            hold!(
                (
                    held.epoch,
                    &held.token,
                    &held.instance,
                    &held.owner,
                    &held.progress
                ) == (
                    binding.epoch,
                    &binding.token,
                    &binding.instance,
                    &binding.owner,
                    &progress
                ) && (!is_claimed || held.left_behind == binding.previous),
                "the binding to {server} is {binding:?}, and must be {held:?}"
            );
        }
        Ok(())
    }
}
