//! Carries out what machines ask for: over a network to the store, to instances and to other gateways.

use mooring_delivery::{Event, ProbeOutcome, Resolution, SendFault, TaskOutcome, ToolReading};
use mooring_session::names::{InstanceName, WorkerId};
use mooring_session::rules::Ownership;
use mooring_session::view::BindingView;
use mooring_session::workers::Drain;

use crate::fleet::{Fleet, Happening};
use crate::gateway::{
    Connection, Drops, Errand, Heard, Machine, Purpose, REFUSED, UNANSWERED, token_of,
};
use crate::network::Passage;
use crate::support::{Command, upstream};
use crate::upstreams::{Health, Message};

/// How long a gateway waits for an answer of the store before it says the same again.
const ANSWER_TIMEOUT_MS: u64 = 100;
const RETRIES: u32 = 4;
/// After which time a silent instance counts as lost.
const SILENT_LOST_AFTER_MS: u64 = 3_000;
/// How long the owner of a connection may take to renew it.
const RENEWED_WITHIN_MS: u64 = 5_000;

/// What is on its way to an instance or to the owner of a connection.
pub(crate) enum Sent {
    Message {
        message: Message,
        binding: BindingView,
        is_reply_lost: bool,
    },
    Probe(BindingView),
    ProbeOthers(InstanceName),
    Initialize(BindingView),
    Renew(WorkerId, u64),
}

impl Fleet {
    pub(crate) fn carry_out(&mut self, number: u64, errand: Errand) {
        let step = self.jobs[&number].step;
        let done = || Heard::Task(TaskOutcome::Done);
        match errand {
            Errand::Store(command, drops) => self.say(number, *command, drops),
            Errand::EndSession => {
                let ending = mooring_session::rules::EndRequest {
                    principal: Some(self.jobs[&number].identity.who.clone()),
                    when: mooring_session::rules::EndCondition::Always,
                };
                self.say(number, Command::End(ending), Drops::Reply);
            }
            Errand::Token => {
                self.numbers += 1;
                let token = token_of(self.numbers);
                self.hear_after(0, number, step, Heard::Task(TaskOutcome::Drawn(token)));
            }
            Errand::Wait(pause) => {
                let ms = u64::try_from(pause.as_millis()).unwrap();
                self.hear_after(ms, number, step, Heard::Event(Event::Waited));
            }
            Errand::AwaitClaim(at_most) => {
                let at_most = u64::try_from(at_most.as_millis()).unwrap();
                let receives_events = self.receives_events;
                let ms = match receives_events && at_most > 0 {
                    true => self.chance.between(1, at_most),
                    false => at_most,
                };
                let woken = TaskOutcome::Woken { receives_events };
                self.hear_after(ms, number, step, Heard::Task(woken));
            }
            Errand::Initialize(binding) => {
                let place = self.jobs[&number].identity.place.clone();
                self.upstreams.begin_initialize(&place, binding.epoch);
                // In a storm it may take longer than the claim's lease.
                let lease = self.jobs[&number].identity.claim_lease.get();
                let longest = if self.is_storm() {
                    lease * 2
                } else {
                    lease / 2
                };
                let takes = self.chance.between(5, longest);
                self.send(takes, number, Sent::Initialize(binding));
            }
            Errand::DiscardNew(epoch) => {
                self.note("new session discarded");
                self.discard_new(number, epoch);
                self.hear_after(5, number, step, done());
            }
            Errand::DiscardPrevious(session) => {
                self.note("old session discarded");
                self.drop_session(session.as_str());
                self.hear_after(0, number, step, done());
            }
            Errand::Renew(owner, epoch) => {
                self.hear_after(RENEWED_WITHIN_MS, number, step, done());
                self.send(5, number, Sent::Renew(owner, epoch));
            }
            Errand::Nothing => self.hear_after(1, number, step, done()),
            Errand::Send(binding) => self.send_message(number, binding),
            Errand::Read => {
                let has_result = self.jobs[&number].has_result;
                let is_broken = self.is_storm() && !has_result && self.chance.percent(5);
                let read = if is_broken { Err(()) } else { Ok(!has_result) };
                self.hear_after(1, number, step, Heard::Event(Event::Read(read)));
            }
            Errand::Probe(binding) => self.send(5, number, Sent::Probe(binding)),
            Errand::ProbeOthers(instance) => self.send(5, number, Sent::ProbeOthers(instance)),
            Errand::ReadTool => {
                let Machine::Deliver(_, call) = &self.jobs[&number].machine else {
                    panic!("only messages have tools");
                };
                let read = Event::ToolRead(match call.message.is_repeatable {
                    true => ToolReading::Repeatable,
                    false => ToolReading::NotRepeatable,
                });
                self.hear_after(3, number, step, Heard::Event(read));
            }
            Errand::End(_) => panic!("the end is no errand"),
        }
    }

    /// Sends a command to the store.
    fn say(&mut self, number: u64, command: Command, drops: Drops) {
        self.jobs.get_mut(&number).unwrap().says(command, drops);
        self.say_once(number);
    }

    fn say_once(&mut self, number: u64) {
        let job = &self.jobs[&number];
        let Some((command, _)) = job.said.clone() else {
            return;
        };
        let (step, key) = (job.step, job.identity.place.0.clone());
        let is_storm = self.is_storm();
        let passage = Passage::of(&mut self.chance, is_storm);
        for after in passage.arrives_after {
            let arrive = Happening::AtStore {
                job: number,
                step,
                key: key.clone(),
                command: Box::new(command.clone()),
                answer_takes: (!passage.is_answer_lost).then_some(passage.answer_takes),
            };
            self.queue.post(self.now + after, arrive);
        }
        let silent = Happening::StoreSilent { job: number, step };
        self.queue.post(self.now + ANSWER_TIMEOUT_MS, silent);
    }

    /// The same command with the same token, as long as it is worth it; then the store counts as away.
    pub(crate) fn say_again(&mut self, number: u64) {
        let job = self.jobs.get_mut(&number).unwrap();
        job.retries += 1;
        if job.retries > RETRIES {
            let step = job.step;
            self.hear_after(0, number, step, Heard::Store(None));
        } else {
            self.say_once(number);
        }
    }

    fn send(&mut self, after: u64, number: u64, sent: Sent) {
        let step = self.jobs[&number].step;
        let arrive = Happening::Arrive {
            job: number,
            step,
            errand: Box::new(sent),
        };
        self.queue.post(self.now + after, arrive);
    }

    fn discard_new(&mut self, number: u64, epoch: u64) {
        let job = self.jobs.get_mut(&number).unwrap();
        let (place, process) = (job.identity.place.clone(), job.process);
        if let Some(made) = job.made.take() {
            self.drop_session(&made);
        }
        let held = self.processes[process].connections.get(&place);
        if held.is_some_and(|held| held.epoch <= epoch) {
            self.close(process, &place);
        }
    }

    /// In a storm the connection breaks before the message arrives, on its way, or before the reply is there.
    fn send_message(&mut self, number: u64, binding: BindingView) {
        let job = self.jobs.get_mut(&number).unwrap();
        let Machine::Deliver(_, call) = &job.machine else {
            panic!("only deliveries send");
        };
        let (message, step) = (call.message.clone(), job.step);
        job.has_result = false;
        if self.upstreams.has_run(message.call) {
            self.note("sent again");
        }
        let fault = match &binding.owner {
            Some(owner) if *owner.worker != *self.jobs[&number].identity.worker => {
                SendFault::OwnerBroken
            }
            _ => SendFault::Broken,
        };
        let broken = Heard::Event(Event::NotAnswered(fault, ()));
        let is_storm = self.is_storm();
        let mut takes = self.chance.between(1, 60);
        if is_storm && self.chance.percent(3) {
            return self.hear_after(takes, number, step, broken);
        }
        if is_storm && self.chance.percent(3) {
            self.hear_after(takes, number, step, broken);
            takes = self.chance.between(takes, 3_000);
        }
        let is_reply_lost = is_storm && self.chance.percent(4);
        let sent = Sent::Message {
            message,
            binding,
            is_reply_lost,
        };
        self.send(takes, number, sent);
    }

    pub(crate) fn arrive(&mut self, number: u64, step: u64, sent: Sent) {
        let heard = match sent {
            Sent::Message {
                message,
                binding,
                is_reply_lost,
            } => {
                let heard = match &binding.owner {
                    Some(owner) => {
                        let owner = owner.worker.clone();
                        self.run_at_owner(number, &message, &binding, &owner)
                    }
                    None => self.run_at_instance(&message, &binding),
                };
                let event = match heard {
                    Ok(has_result) if !is_reply_lost => {
                        if let Some(job) = self.jobs.get_mut(&number).filter(|job| job.step == step)
                        {
                            job.has_result = has_result;
                        }
                        let may_be_unknown = !has_result || self.chance.percent(3);
                        Event::Answered { may_be_unknown }
                    }
                    Ok(_) => Event::NotAnswered(self.broken(number, &binding), ()),
                    Err(fault) => Event::NotAnswered(fault, ()),
                };
                Heard::Event(event)
            }
            Sent::Probe(binding) => Heard::Event(Event::Probed(self.probe(&binding))),
            Sent::ProbeOthers(instance) => Heard::Event(Event::OthersAnswer(
                self.upstreams.any_other_serves(&instance),
            )),
            Sent::Initialize(binding) => self.initialize(number, &binding),
            Sent::Renew(owner, epoch) => return self.begin_renewal(number, step, &owner, epoch),
        };
        let takes = self.chance.between(1, 20);
        self.hear_after(takes, number, step, heard);
    }

    fn broken(&self, number: u64, binding: &BindingView) -> SendFault {
        let is_own = (self.jobs.get(&number)).is_some_and(|job| {
            binding.owner.as_ref().map(|owner| &owner.worker) == Some(&job.identity.worker)
        });
        match binding.owner.is_some() && !is_own {
            true => SendFault::OwnerBroken,
            false => SendFault::Broken,
        }
    }

    /// Runs a message at an instance: whether the reply is a result, or how it was not delivered.
    fn run_at_instance(
        &mut self,
        message: &Message,
        binding: &BindingView,
    ) -> Result<bool, SendFault> {
        match self.upstreams.health(&binding.instance) {
            Health::Refusing => Err(SendFault::Refused),
            Health::Silent { since } if self.now >= since + SILENT_LOST_AFTER_MS => {
                Err(SendFault::Unreachable)
            }
            Health::Silent { .. } => Err(SendFault::NotConnected),
            Health::Serving => {
                let session = binding.upstream_session.as_ref().unwrap().as_str();
                let is_known = self.upstreams.knows(session);
                if is_known {
                    self.upstreams.run(message, session, binding.epoch);
                }
                Ok(is_known)
            }
        }
    }

    /// Runs a message over the connection of its owner.
    fn run_at_owner(
        &mut self,
        number: u64,
        message: &Message,
        binding: &BindingView,
        owner: &WorkerId,
    ) -> Result<bool, SendFault> {
        let now = self.now;
        let found = (self.processes.iter_mut()).find(|one| one.is_up && one.worker() == *owner);
        let Some(process) = found else {
            // A later boot at its address says that it is another gateway.
            return Err(match self.chance.percent(50) {
                true => SendFault::NotHere,
                false => SendFault::NotServed,
            });
        };
        if process.stalled_until > now {
            // It is delivered when the process goes on; until then nothing is known of it.
            let later = process.stalled_until - now;
            let sent = Sent::Message {
                message: message.clone(),
                binding: binding.clone(),
                is_reply_lost: true,
            };
            let step = u64::MAX;
            let arrive = Happening::Arrive {
                job: number,
                step,
                errand: Box::new(sent),
            };
            self.queue.post(now + later, arrive);
            return Err(self.broken(number, binding));
        }
        if process.drain == Drain::Draining {
            return Err(SendFault::OwnerDraining);
        }
        if !process.is_fence_open(now) {
            return Err(SendFault::NotServed);
        }
        let connection = process.connections.get(&message.place).cloned();
        let Some(connection) = connection.filter(|held| held.epoch == binding.epoch) else {
            return Err(SendFault::NotHere);
        };
        if !connection.is_open {
            return Err(SendFault::Ended);
        }
        self.upstreams.served_by_owner(message, binding.epoch);
        self.upstreams
            .run(message, &connection.session, binding.epoch);
        Ok(true)
    }

    fn probe(&mut self, binding: &BindingView) -> ProbeOutcome {
        if self.is_storm() && self.chance.percent(5) {
            return ProbeOutcome::Unclear;
        }
        if let Some(owner) = &binding.owner {
            let now = self.now;
            let found =
                (self.processes.iter()).find(|one| one.is_up && one.worker() == owner.worker);
            return match found {
                None => ProbeOutcome::InstanceLost,
                Some(process) if process.stalled_until > now => ProbeOutcome::Unclear,
                Some(process) if process.drain == Drain::Draining => ProbeOutcome::Unclear,
                Some(process) if !process.is_fence_open(now) => ProbeOutcome::InstanceLost,
                Some(process) => {
                    let is_open = (process.connections.values())
                        .any(|held| held.epoch == binding.epoch && held.is_open);
                    match is_open {
                        true => ProbeOutcome::Alive,
                        false => ProbeOutcome::SessionLost,
                    }
                }
            };
        }
        match self.upstreams.health(&binding.instance) {
            Health::Refusing => ProbeOutcome::InstanceLost,
            Health::Silent { .. } => ProbeOutcome::Unclear,
            Health::Serving => {
                let session = binding.upstream_session.as_ref().unwrap();
                match self.upstreams.knows(session.as_str()) {
                    true => ProbeOutcome::Alive,
                    false => ProbeOutcome::SessionLost,
                }
            }
        }
    }

    fn initialize(&mut self, number: u64, binding: &BindingView) -> Heard {
        let Some(job) = self.jobs.get(&number) else {
            // Its gateway is gone. What it made there stays, until the instance drops it.
            return UNANSWERED;
        };
        let (identity, process) = (std::rc::Rc::clone(&job.identity), job.process);
        let (is_storm, place) = (self.is_storm(), &identity.place);
        if is_storm && self.chance.percent(3) {
            return REFUSED;
        }
        let made = match identity.ownership() {
            Ownership::Owned if is_storm && self.chance.percent(5) => return UNANSWERED,
            Ownership::Owned => {
                let made = (self.upstreams).initialize(place, identity.worker.as_str(), self.now);
                self.keep(process, place, binding.epoch, &made);
                made
            }
            Ownership::Shared if self.upstreams.health(&binding.instance) != Health::Serving => {
                return UNANSWERED;
            }
            Ownership::Shared => {
                let made = (self.upstreams).initialize(place, binding.instance.as_str(), self.now);
                if is_storm && self.chance.percent(4) {
                    return UNANSWERED;
                }
                made
            }
        };
        self.jobs.get_mut(&number).unwrap().made = Some(made.clone());
        Heard::Task(TaskOutcome::Initialized(Ok(Some(upstream(&made)))))
    }

    /// A process keeps a new connection, in place of one of an earlier epoch.
    fn keep(&mut self, process: usize, place: &crate::upstreams::Place, epoch: u64, made: &str) {
        let held = self.processes[process].connections.get(place);
        if held.is_some_and(|held| held.epoch > epoch) {
            return self.upstreams.delete(made);
        }
        self.close(process, place);
        let connection = Connection {
            epoch,
            session: made.to_owned(),
            is_open: true,
        };
        (self.processes[process].connections).insert(place.clone(), connection);
    }

    fn begin_renewal(&mut self, asker: u64, step: u64, owner: &WorkerId, epoch: u64) {
        let Some(place) = self.jobs.get(&asker).map(|job| job.identity.place.clone()) else {
            return;
        };
        let now = self.now;
        let found = (self.processes.iter()).position(|one| {
            one.is_up
                && one.worker() == *owner
                && one.stalled_until <= now
                && one.is_fence_open(now)
        });
        let Some(process) = found else {
            return self.hear_after(5, asker, step, Heard::Task(TaskOutcome::Done));
        };
        let resolution = Resolution::resolve(mooring_delivery::OnLoss::Recover);
        let machine = Machine::Resolve(Box::new(resolution));
        let purpose = Purpose::Renewal { asker, step, epoch };
        let renewal = self.begin(process, &place, "alice", machine, purpose);
        self.advance(renewal);
    }
}
