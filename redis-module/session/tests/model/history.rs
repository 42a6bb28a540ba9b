//! What happened under one key, as the commands and their answers tell it.
//!
//! Built from what was asked and answered, never from the record: so a rule that forgets something is caught even
//! where its answer and its record agree. What an answer may not say is judged here as it is learnt.

use std::collections::{BTreeMap, BTreeSet};

use mooring_session::limits::{CLOCK_BACK_MAX, END_CLEANING_LEASE, LEASE_MAX};
use mooring_session::names::{
    InstanceName, Principal, ServerName, Token, UpstreamSession, WorkerId,
};
use mooring_session::rules::{
    BindRequest, ConfirmRequest, CreateReply, CreateRequest, Ownership, RebindRequest,
    UnbindRequest,
};
use mooring_session::time::Millis;
use mooring_session::view::BindingView;

use crate::invariants::{Step, hold};
use crate::support::{Command, Reply};

#[derive(Clone, Default)]
pub(crate) struct KeyHistory {
    pub(crate) generations: BTreeSet<u64>,
    pub(crate) epochs: BTreeSet<u64>,
    /// The incarnation that stands; none where there is no record.
    pub(crate) incarnation: Option<Incarnation>,
    /// The latest moment that any use of the key ever had on the wall clock.
    pub(crate) latest_use: u64,
    /// Which deaths were told: server, epoch, worker, and which of its lives.
    pub(crate) told: BTreeSet<(ServerName, u64, WorkerId, u64)>,
}

#[derive(Clone)]
pub(crate) struct Incarnation {
    pub(crate) generation: u64,
    pub(crate) principal: Principal,
    pub(crate) ended: bool,
    /// The wall clock at the last use, to the millisecond.
    pub(crate) last_use: u64,
    pub(crate) ttl: u64,
    pub(crate) attempts: BTreeMap<ServerName, Attempt>,
    pub(crate) cleaner: Option<Cleaner>,
}

/// Who has the cleaning of a tombstone, and until when nobody else gets it.
#[derive(Clone)]
pub(crate) struct Cleaner {
    /// None for the caller of END.
    pub(crate) worker: Option<WorkerId>,
    pub(crate) until: u64,
}

/// The claim or binding that holds for one server.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) epoch: u64,
    pub(crate) token: Token,
    pub(crate) instance: InstanceName,
    pub(crate) owner: Option<WorkerId>,
    pub(crate) progress: Progress,
    pub(crate) left_behind: Option<UpstreamSession>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Claimed { since: u64, until: u64 },
    Bound(Option<UpstreamSession>),
}

impl Progress {
    fn claimed(now: u64, lease: Millis) -> Self {
        Self::Claimed {
            since: now,
            until: now + lease.get(),
        }
    }

    /// The holder's claim is renewed; it does not begin later than now.
    fn renew(&mut self, now: u64, lease: Millis) {
        if let Self::Claimed { since, until } = self {
            *since = now.min(*since);
            *until = now + lease.get();
        }
    }

    /// Whether nobody else may move it: its lease runs, and the wall clock has not stepped back since.
    fn is_claim_live(&self, now: u64) -> bool {
        matches!(self, Self::Claimed { since, until }
            if *since <= now + CLOCK_BACK_MAX.get() && is_lease_live(*until, now))
    }
}

fn is_lease_live(until: u64, now: u64) -> bool {
    now < until && until <= now + LEASE_MAX.get() + CLOCK_BACK_MAX.get()
}

impl KeyHistory {
    /// Remembers an answer, and judges whether it could be given.
    pub(crate) fn learn(&mut self, step: &Step<'_>, reply: &Reply) -> Result<(), String> {
        match (step.command, reply) {
            (Command::Create(request), Reply::Create(reply)) => {
                self.learn_create(request, reply, step.now())?;
            }
            (Command::Touch(request), Reply::Touch(_)) => {
                if let Some(ttl) = request.ttl {
                    self.incarnation()?.ttl = ttl.get();
                }
            }
            (Command::Route(request), Reply::Route(reply)) => {
                self.judge_route(step, request, reply)?;
            }
            (Command::Bind(request), Reply::Bind(reply)) => {
                self.learn_bind(step, request, reply.won, &reply.binding)?;
            }
            (Command::Confirm(request), Reply::Confirm(_)) => {
                self.learn_confirm(request)?;
            }
            (Command::Rebind(request), Reply::Rebind(reply)) => {
                hold!(
                    reply.won || reply.previous.is_none(),
                    "a loser was told the upstream session left behind"
                );
                self.learn_rebind(step, request, reply.won, &reply.binding)?;
                let held = self.incarnation()?.attempts.get(&request.server);
                hold!(
                    !reply.won
                        || held.is_none_or(|held| {
                            matches!(held.progress, Progress::Bound(_))
                                || held.left_behind == reply.previous
                        }),
                    "the winner was not told the upstream session left behind"
                );
            }
            (Command::Unbind(request), Reply::Unbind(_)) => self.learn_unbind(request)?,
            (Command::End(_) | Command::Claim(_) | Command::Forget(_), _) => {
                return self.learn_farewell(step, reply);
            }
            (command, reply) => return Err(format!("{command:?} was answered with {reply:?}")),
        }
        self.latest_use = self.latest_use.max(step.now());
        self.incarnation()?.last_use = step.now();
        Ok(())
    }

    fn learn_unbind(&mut self, request: &UnbindRequest) -> Result<(), String> {
        let attempts = &mut self.incarnation()?.attempts;
        let held = attempts.remove(&request.server);
        let matches = held.is_some_and(|held| {
            held.epoch == request.epoch
                && match &request.token {
                    Some(token) => *token == held.token,
                    None => matches!(held.progress, Progress::Bound(_)),
                }
        });
        hold!(matches, "an UNBIND of something else was let through");
        Ok(())
    }

    /// The answers that are no use of the session.
    fn learn_farewell(&mut self, step: &Step<'_>, reply: &Reply) -> Result<(), String> {
        match (step.command, reply) {
            (Command::End(_), Reply::End(reply)) => {
                let incarnation = self.incarnation()?;
                hold!(
                    reply.ended_now != incarnation.ended,
                    "a session is ended exactly once"
                );
                if reply.ended_now {
                    incarnation.cleaner = Some(Cleaner {
                        worker: None,
                        until: step.now() + END_CLEANING_LEASE.get(),
                    });
                }
                incarnation.ended = true;
                self.latest_use = self.latest_use.max(step.now());
            }
            (Command::Claim(request), Reply::Claim(_)) => {
                let incarnation = self.incarnation()?;
                let worker = Some(request.worker.clone());
                hold!(
                    incarnation.cleaner.as_ref().is_none_or(|cleaner| {
                        cleaner.worker == worker || !is_lease_live(cleaner.until, step.now())
                    }),
                    "two clean one tombstone"
                );
                hold!(
                    incarnation.ended || step.now() >= incarnation.last_use + incarnation.ttl,
                    "a living session was taken for cleaning"
                );
                incarnation.cleaner = Some(Cleaner {
                    worker,
                    until: step.now() + request.lease.get(),
                });
            }
            (Command::Forget(request), Reply::Forget(_)) => {
                let incarnation = self.incarnation()?;
                hold!(
                    incarnation.generation == request.generation
                        && incarnation.cleaner.as_ref().is_some_and(|cleaner| {
                            cleaner
                                .worker
                                .as_ref()
                                .is_none_or(|worker| *worker == request.worker)
                        }),
                    "a FORGET of something else was let through"
                );
                self.incarnation = None;
            }
            (command, reply) => return Err(format!("{command:?} was answered with {reply:?}")),
        }
        Ok(())
    }

    fn incarnation(&mut self) -> Result<&mut Incarnation, String> {
        self.incarnation
            .as_mut()
            .ok_or_else(|| "an answer without a record".to_owned())
    }

    fn learn_create(
        &mut self,
        request: &CreateRequest,
        reply: &CreateReply,
        now: u64,
    ) -> Result<(), String> {
        if !reply.created {
            let incarnation = self.incarnation()?;
            hold!(
                !incarnation.ended && incarnation.generation == reply.record.generation,
                "CREATE found another incarnation"
            );
            incarnation.ttl = request.ttl.get();
            return Ok(());
        }
        let generation = reply.record.generation;
        hold!(
            self.generations
                .last()
                .is_none_or(|last| generation > *last),
            "generation {generation} went back or repeats"
        );
        if let Some(old) = &self.incarnation {
            hold!(
                old.ended || now >= old.last_use + old.ttl,
                "a living session was replaced"
            );
            let given: BTreeSet<_> = reply.previous.iter().map(|view| &view.server).collect();
            hold!(
                given == old.attempts.keys().collect(),
                "what the old incarnation held was not handed over"
            );
        }
        self.generations.insert(generation);
        self.incarnation = Some(Incarnation {
            generation,
            principal: request.principal.clone(),
            ended: false,
            last_use: now,
            ttl: request.ttl.get(),
            attempts: BTreeMap::new(),
            cleaner: None,
        });
        Ok(())
    }

    /// Notes a new claim or binding, whose epoch must be above all that this key ever had.
    fn issue(&mut self, server: &ServerName, attempt: Attempt) -> Result<(), String> {
        let epoch = attempt.epoch;
        hold!(
            self.epochs.last().is_none_or(|last| epoch > *last),
            "epoch {epoch} went back or repeats"
        );
        self.epochs.insert(epoch);
        self.incarnation()?.attempts.insert(server.clone(), attempt);
        Ok(())
    }

    fn learn_bind(
        &mut self,
        step: &Step<'_>,
        request: &BindRequest,
        won: bool,
        binding: &BindingView,
    ) -> Result<(), String> {
        let progress = match &request.upstream_session {
            Some(session) => Progress::Bound(Some(session.clone())),
            None => Progress::claimed(step.now(), request.lease),
        };
        let Some(held) = self.incarnation()?.attempts.get_mut(&request.server) else {
            hold!(won, "the first BIND did not win");
            let attempt = Attempt {
                epoch: binding.epoch,
                token: request.token.clone(),
                instance: binding.instance.clone(),
                owner: (request.ownership == Ownership::Owned).then(|| request.worker.clone()),
                progress,
                left_behind: None,
            };
            return self.issue(&request.server, attempt);
        };
        judge_holder(held, &request.token, won, binding)?;
        if won && matches!(held.progress, Progress::Claimed { .. }) {
            match progress {
                Progress::Claimed { .. } => held.progress.renew(step.now(), request.lease),
                Progress::Bound(_) => held.progress = progress,
            }
        }
        Ok(())
    }

    fn learn_confirm(&mut self, request: &ConfirmRequest) -> Result<(), String> {
        let held = self.incarnation()?.attempts.get_mut(&request.server);
        let Some(held) = held else {
            return Err("a CONFIRM of nothing was let through".to_owned());
        };
        hold!(
            held.epoch == request.epoch && held.token == request.token,
            "a late CONFIRM was let through"
        );
        let confirmed = Progress::Bound(request.upstream_session.clone());
        hold!(
            matches!(held.progress, Progress::Claimed { .. }) || held.progress == confirmed,
            "a second CONFIRM changed a binding"
        );
        held.progress = confirmed;
        Ok(())
    }

    fn learn_rebind(
        &mut self,
        step: &Step<'_>,
        request: &RebindRequest,
        won: bool,
        binding: &BindingView,
    ) -> Result<(), String> {
        let held = self.incarnation()?.attempts.get_mut(&request.server);
        let Some(held) = held else {
            return Err("a REBIND of nothing was let through".to_owned());
        };
        let is_anothers = held.token != request.token && held.progress.is_claim_live(step.now());
        let moves = held.epoch == request.epoch && !is_anothers;
        if !moves {
            judge_holder(held, &request.token, won, binding)?;
            if won && matches!(held.progress, Progress::Claimed { .. }) {
                match &request.upstream_session {
                    Some(session) => held.progress = Progress::Bound(Some(session.clone())),
                    None => held.progress.renew(step.now(), request.lease),
                }
            }
            return Ok(());
        }
        hold!(won, "the REBIND that matched did not win");
        hold!(
            held.owner.as_ref().is_none_or(|owner| {
                *owner == request.worker
                    || !step.context.workers.is_alive(owner)
                    || step.context.workers.is_draining(owner)
            }),
            "a binding was taken from its live owner"
        );
        let left_behind = match &held.progress {
            Progress::Bound(Some(session)) => Some(session.clone()),
            _ => held.left_behind.clone(),
        };
        let attempt = Attempt {
            epoch: binding.epoch,
            token: request.token.clone(),
            instance: binding.instance.clone(),
            owner: (request.ownership == Ownership::Owned).then(|| request.worker.clone()),
            progress: match &request.upstream_session {
                Some(session) => Progress::Bound(Some(session.clone())),
                None => Progress::claimed(step.now(), request.lease),
            },
            left_behind: left_behind.filter(|left| Some(left) != request.upstream_session.as_ref()),
        };
        self.issue(&request.server, attempt)
    }
}

/// Where something holds already, exactly its own token has won, and the epoch told is its epoch.
fn judge_holder(
    held: &Attempt,
    token: &Token,
    won: bool,
    binding: &BindingView,
) -> Result<(), String> {
    hold!(
        won == (held.token == *token),
        "won must mean holding the token that holds"
    );
    hold!(
        binding.epoch == held.epoch,
        "told epoch {}, holds {}",
        binding.epoch,
        held.epoch
    );
    hold!(
        binding.instance == held.instance,
        "told another instance than the one that holds"
    );
    Ok(())
}
