//! What clients and owners do: the next message of a client, and what follows from its answer.

use std::collections::BTreeMap;

use mooring_delivery::{
    Delivery, Failure, Loss, LostBinding, MessageRules, OnLoss, Repetition, Resolution,
    ResolveFailure, ResolvedBinding, TaskOutcome,
};
use mooring_session::Refusal;
use mooring_session::names::WorkerId;
use mooring_session::rules::{
    ClaimRequest, CreateRequest, EndCondition, EndRequest, ForgetRequest, ReportedLoss, Revival,
    TouchRequest,
};
use mooring_session::time::Millis;
use mooring_session::view::RecordView;

use crate::clients::Call;
use crate::fleet::{Fleet, Happening, KEYS, PROCESSES, Weather};
use crate::gateway::{End, Heard, Job, Machine, Purpose, Sim};
use crate::support::{Command, Reply, principal, session_id};
use crate::upstreams::{Message, Place};

const TTL: Millis = Millis::new(8_000);
impl Fleet {
    pub(crate) fn act_after(&mut self, client: usize, ms: u64) {
        self.queue
            .post(self.now + ms, Happening::ClientActs { client });
    }

    /// A client sends its next message to any gateway that is up.
    pub(crate) fn act(&mut self, number: usize) {
        let process = usize::try_from(self.chance.between(0, PROCESSES as u64 - 1)).unwrap();
        if self.weather == Weather::Over {
            return;
        }
        if self.clients[number].job.is_some() || !self.processes[process].is_up {
            return self.act_after(number, 50);
        }
        let client = &self.clients[number];
        let (place, calls_tools) = (client.place.clone(), client.calls_tools);
        let (has_to_create, is_intruder) = (client.has_to_create, client.is_intruder);
        let who = if is_intruder { "mallory" } else { "alice" };
        let machine = if has_to_create && !is_intruder {
            Machine::Command(Box::new(creation(&place.0)))
        } else {
            match self.chance.between(0, 99) {
                0..=2 if self.is_storm() && calls_tools => Machine::Command(Box::new(ending())),
                3..=8 if self.is_storm() => {
                    let key = self.chance.between(0, KEYS as u64 - 1);
                    let key = format!("mcpgw:session_affinity:s{key}");
                    let worker = self.processes[process].worker();
                    self.clean(&key, &worker);
                    return self.act_after(number, 20);
                }
                9..=14 => Machine::Resolve(Box::new(Resolution::open())),
                // An abandoned session expires.
                15..=16 if self.is_storm() => {
                    let long = self.chance.between(2_000, 12_000);
                    return self.act_after(number, long);
                }
                _ => self.message(&place, calls_tools),
            }
        };
        let job = self.begin(process, &place, who, machine, Purpose::Client(number));
        self.clients[number].job = Some(job);
        self.advance(job);
    }

    /// The next message of a client.
    pub(crate) fn message(&mut self, place: &Place, calls_tools: bool) -> Machine {
        self.numbers += 1;
        let is_repeatable = self.chance.percent(30);
        let (on_loss, repetition) = match calls_tools {
            true => (OnLoss::RecoverAndReport, Repetition::ByTool),
            false if is_repeatable => (OnLoss::Recover, Repetition::Harmless),
            false => (OnLoss::GiveUp, Repetition::Never),
        };
        let call = Call {
            message: Message {
                call: self.numbers,
                place: place.clone(),
                generation: self.told.generation(&place.0),
                is_repeatable,
            },
            on_loss,
            repetition,
        };
        let rules = MessageRules {
            on_loss,
            repetition,
            epoch: None,
        };
        Machine::Deliver(Box::new(Delivery::new(rules)), call)
    }

    /// A machine has come to its end.
    pub(crate) fn ended(&mut self, number: u64, end: End) {
        let job = self.jobs.remove(&number).unwrap();
        // A connection may stay that is not recorded: the next one replaces it.
        if let Some(made) = job
            .made
            .as_deref()
            .filter(|_| job.identity.place.1 != "pipe")
        {
            self.upstreams.check_recorded(made);
        }
        match (job.purpose.clone(), end) {
            (Purpose::Client(client), End::Answered(delivered)) => {
                let Machine::Deliver(_, call) = &job.machine else {
                    panic!("only deliveries are answered");
                };
                self.note("answered");
                let noted = match job.has_result {
                    true => self.told.answered(call, &delivered, &self.upstreams),
                    false => None,
                };
                self.clients[client].results += u64::from(job.has_result);
                let generation = call.message.generation;
                match noted {
                    Some(epoch) => self.report(&job, client, generation, epoch),
                    None => self.next(client),
                }
            }
            (Purpose::Client(client), End::Failed(failure)) => {
                if let Machine::Deliver(_, call) = &job.machine {
                    self.told.failed(call, &failure, &mut self.upstreams);
                }
                self.failed(client, &failure);
            }
            (Purpose::Client(client), End::ResolvedBinding(_)) => self.next(client),
            (Purpose::Client(client), End::NotResolved(failure)) => {
                self.failed(client, &Failure::Resolve(failure));
            }
            (Purpose::Renewal { asker, step, epoch }, End::ResolvedBinding(resolved)) => {
                self.renew(&job, asker, step, epoch, &resolved);
            }
            (Purpose::Renewal { asker, step, .. } | Purpose::Renewed { asker, step }, _) => {
                self.hear_after(1, asker, step, Heard::Task(TaskOutcome::Done));
            }
            (Purpose::Report { .. }, _) => {}
        }
    }

    pub(crate) fn failed(&mut self, client: usize, failure: &Failure<Sim>) {
        self.note(match failure {
            Failure::OutcomeUnknown { .. } => "outcome unknown",
            Failure::LostAgain { .. } => "lost again",
            Failure::Unreachable(()) => "unreachable",
            Failure::Lost => "lost",
            Failure::Answer(()) => "answer unreadable",
            Failure::Resolve(ResolveFailure::Store(None)) => "store away",
            Failure::Resolve(ResolveFailure::Store(Some(_))) => "store refused",
            Failure::Resolve(ResolveFailure::ClaimPending) => "claim pending",
            Failure::Resolve(ResolveFailure::NoInstance(())) => "no instance",
            Failure::Resolve(ResolveFailure::Handshake(())) => "handshake refused",
            Failure::Resolve(_) => "lost by policy",
        });
        if let Failure::Resolve(
            ResolveFailure::Store(Some(Refusal::NoSession | Refusal::Ended))
            | ResolveFailure::LostByPolicy,
        ) = failure
        {
            self.clients[client].has_to_create = true;
        }
        self.next(client);
    }

    /// After a while, the client sends its next message.
    pub(crate) fn next(&mut self, client: usize) {
        self.clients[client].job = None;
        let pause = self.chance.between(5, 600);
        self.act_after(client, pause);
    }

    /// The result of a tool has told of a loss: the record notes it.
    pub(crate) fn report(&mut self, job: &Job, client: usize, generation: u64, epoch: u64) {
        self.note("loss told");
        let touch = TouchRequest {
            principal: job.identity.who.clone(),
            ttl: None,
            content_hash: None,
            labels: BTreeMap::new(),
            reported: Some(ReportedLoss {
                server: job.identity.server.clone(),
                epoch,
            }),
        };
        let machine = Machine::Command(Box::new(Command::Touch(touch)));
        let purpose = Purpose::Report {
            client,
            generation,
            epoch,
        };
        let report = self.begin(job.process, &job.identity.place, "alice", machine, purpose);
        self.clients[client].job = Some(report);
        self.advance(report);
    }

    /// A command of a client or of a gateway after a call has been answered, or not.
    pub(crate) fn command_ended(&mut self, number: u64, heard: Option<Result<Reply, Refusal>>) {
        let job = self.jobs.remove(&number).unwrap();
        let place = &job.identity.place;
        match job.purpose {
            Purpose::Report {
                client,
                generation,
                epoch,
            } => {
                if let Some(Ok(_)) = heard {
                    self.note("loss noted");
                    self.told.noted(place, generation, epoch);
                }
                self.next(client);
            }
            Purpose::Client(client) => {
                match heard {
                    Some(Ok(Reply::Create(_))) => self.clients[client].has_to_create = false,
                    Some(Ok(Reply::End(reply))) => {
                        if reply.ended_now {
                            self.forget(&place.0.clone(), &job.identity.worker, &reply.record);
                        }
                        self.clients[client].has_to_create = true;
                    }
                    _ => self.clients[client].has_to_create = true,
                }
                self.next(client);
            }
            Purpose::Renewal { .. } | Purpose::Renewed { .. } => {}
        }
    }

    /// An owner that was asked to renew a connection does, if it has ended and is its own.
    pub(crate) fn renew(
        &mut self,
        job: &Job,
        asker: u64,
        step: u64,
        epoch: u64,
        resolved: &ResolvedBinding,
    ) {
        let binding = &resolved.binding;
        let place = &job.identity.place;
        let connection = self.processes[job.process].connections.get(place);
        let has_ended = binding.epoch == epoch
            && connection.is_none_or(|one| one.epoch != epoch || !one.is_open);
        let is_own = (binding.owner.as_ref()).is_some_and(|one| one.worker == job.identity.worker);
        if !has_ended || !is_own {
            return self.hear_after(1, asker, step, Heard::Task(TaskOutcome::Done));
        }
        self.note("renewed at its owner");
        let lost = LostBinding::new(binding, Loss::ConnectionEnded);
        let machine = Machine::Resolve(Box::new(Resolution::recover(
            lost,
            OnLoss::Recover,
            &job.identity.facts(),
        )));
        let purpose = Purpose::Renewed { asker, step };
        let renewal = self.begin(job.process, place, "alice", machine, purpose);
        self.advance(renewal);
    }

    /// Claims a session that has ended, deletes what it holds, and drops it.
    pub(crate) fn clean(&mut self, key: &str, worker: &WorkerId) {
        let lease = Millis::new(2_000);
        let claim = Command::Claim(ClaimRequest {
            worker: worker.clone(),
            lease,
        });
        if let Ok(Reply::Claim(record)) = self.apply(key, &claim) {
            self.forget(key, worker, &record);
        }
    }

    /// Deletes what a session holds that has ended, and drops it.
    pub(crate) fn forget(&mut self, key: &str, worker: &WorkerId, record: &RecordView) {
        for binding in &record.bindings {
            if let Some(session) = &binding.upstream_session {
                self.drop_session(session.as_str());
            }
        }
        let generation = record.generation;
        let worker = worker.clone();
        let _ = self.apply(key, &Command::Forget(ForgetRequest { generation, worker }));
    }
}

/// The creation of a session by its client.
fn creation(key: &str) -> Command {
    Command::Create(CreateRequest {
        id: session_id(key.rsplit(':').next().unwrap()),
        principal: principal("alice"),
        ttl: TTL,
        content_hash: None,
        labels: BTreeMap::new(),
        revival: Revival::Allowed,
        cap: None,
    })
}

/// The end of a session by its client.
pub(crate) fn ending() -> Command {
    Command::End(EndRequest {
        principal: Some(principal("alice")),
        when: EndCondition::Always,
    })
}
