//! A gateway as the driver of the machines: what each asks for, as an errand that the fleet carries out.
//!
//! Invariant: nothing is decided here. An errand is what a machine asked for, and what is heard goes back to it as it is.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mooring_delivery::{
    Action, Delivery, DeliveryOutcome, Errors, Event, Facts, Failure, InitializeFailure, Instances,
    Resolution, ResolveFailure, ResolvedBinding, Task, TaskOutcome,
};
use mooring_session::Refusal;
use mooring_session::names::{
    InstanceName, Principal, ServerName, Token, UpstreamSession, WorkerId,
};
use mooring_session::rules::Ownership;
use mooring_session::time::Millis;
use mooring_session::view::BindingView;
use mooring_session::workers::Drain;

use crate::clients::Call;
use crate::node::BEAT_TTL;
use crate::support::{Command, Reply, instance, worker};
use crate::upstreams::{INSTANCES, Place};

/// The errors of a simulated driver.
#[derive(Debug)]
pub(crate) struct Sim;

impl Errors for Sim {
    /// `None`: the store does not answer.
    type Store = Option<Refusal>;
    type Handshake = ();
    type Send = ();
    type Answer = ();

    fn refusal(error: &Option<Refusal>) -> Option<&Refusal> {
        error.as_ref()
    }
}

/// All instances are configured and count as reachable.
pub(crate) struct AllInstances;

impl Instances for AllInstances {
    fn contains(&self, name: &InstanceName) -> bool {
        self.move_targets().contains(name)
    }

    fn move_targets(&self) -> Vec<InstanceName> {
        INSTANCES.map(instance).to_vec()
    }

    fn candidates(&self) -> Vec<InstanceName> {
        self.move_targets()
    }

    fn has_target_beside(&self, name: &InstanceName) -> bool {
        self.move_targets().iter().any(|other| other != name)
    }
}

/// For whom a job runs, and where.
pub(crate) struct Identity {
    pub(crate) who: Principal,
    pub(crate) place: Place,
    pub(crate) server: ServerName,
    pub(crate) worker: WorkerId,
    pub(crate) claim_lease: Millis,
    pub(crate) ends_on_loss: bool,
}

impl Identity {
    pub(crate) fn ownership(&self) -> Ownership {
        match self.place.1 {
            "pipe" => Ownership::Owned,
            _ => Ownership::Shared,
        }
    }

    pub(crate) fn facts(&self) -> Facts<'_> {
        Facts {
            principal: &self.who,
            server: &self.server,
            instances: &AllInstances,
            ownership: self.ownership(),
            ends_on_loss: self.ends_on_loss,
            worker: &self.worker,
            claim_lease: self.claim_lease,
            answer_timeout: Duration::from_millis(500),
        }
    }
}

/// What runs in a job.
pub(crate) enum Machine {
    Deliver(Box<Delivery<Sim>>, Call),
    Resolve(Box<Resolution<Sim>>),
    /// One command of a client or a reaper.
    Command(Box<Command>),
}

/// What a machine asks for.
#[derive(Debug)]
pub(crate) enum Errand {
    /// A command, and whether only its end matters.
    Store(Box<Command>, Drops),
    Token,
    Wait(Duration),
    /// Wait for an event, at most so long.
    AwaitClaim(Duration),
    Initialize(BindingView),
    DiscardNew(u64),
    DiscardPrevious(UpstreamSession),
    Renew(WorkerId, u64),
    EndSession,
    Nothing,
    Send(BindingView),
    Read,
    Probe(BindingView),
    ProbeOthers(InstanceName),
    ReadTool,
    End(End),
}

/// Whether the reply of a command is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drops {
    Reply,
    Nothing,
}

/// How a machine ended.
#[derive(Debug)]
pub(crate) enum End {
    Answered(DeliveryOutcome),
    Failed(Failure<Sim>),
    ResolvedBinding(ResolvedBinding),
    NotResolved(ResolveFailure<Sim>),
}

/// What was heard of an errand.
#[derive(Debug)]
pub(crate) enum Heard {
    /// The reply of the store; none if it does not answer.
    Store(Option<Result<Reply, Refusal>>),
    Task(TaskOutcome<Sim>),
    Event(Event<Sim>),
}

impl Machine {
    /// What to do next.
    pub(crate) fn errand(&mut self, facts: &Facts<'_>) -> Errand {
        match self {
            Self::Deliver(delivery, _) => match delivery.action(facts) {
                Action::Resolve(task) => of_task(task),
                Action::Send { binding, .. } => Errand::Send(binding.clone()),
                Action::Read(_) => Errand::Read,
                Action::Probe(binding) => Errand::Probe(binding.clone()),
                Action::ProbeOthers(binding) => Errand::ProbeOthers(binding.instance.clone()),
                Action::ReadTool(_) => Errand::ReadTool,
                Action::Wait(pause) => Errand::Wait(pause),
                Action::Answer(delivered) => Errand::End(End::Answered(delivered)),
                Action::Fail(failure) => Errand::End(End::Failed(failure)),
            },
            Self::Resolve(resolution) => match resolution.take_result() {
                Some(Ok(resolved)) => Errand::End(End::ResolvedBinding(resolved)),
                Some(Err(failure)) => Errand::End(End::NotResolved(failure)),
                None => of_task(resolution.task(facts).unwrap()),
            },
            Self::Command(command) => Errand::Store(command.clone(), Drops::Nothing),
        }
    }

    /// Goes on after an errand.
    pub(crate) fn hear(
        &mut self,
        heard: Heard,
        said: Option<&(Command, Drops)>,
        facts: &Facts<'_>,
        now: Instant,
    ) {
        let heard = match (heard, said) {
            (Heard::Store(reply), Some((command, drops))) => Heard::Task(task_outcome(
                command,
                *drops,
                reply.ok_or(None).and_then(|one| one.map_err(Some)),
            )),
            (heard, _) => heard,
        };
        match (self, heard) {
            (Self::Deliver(delivery, _), Heard::Task(outcome)) => {
                delivery.handle(Event::Resolving(outcome), facts, now);
            }
            (Self::Deliver(delivery, _), Heard::Event(event)) => delivery.handle(event, facts, now),
            (Self::Resolve(resolution), Heard::Task(outcome)) => {
                resolution.handle(outcome, facts, now);
            }
            _ => panic!("an outcome of something else was heard"),
        }
    }
}

fn of_task(task: Task<'_>) -> Errand {
    let store = |command| Errand::Store(Box::new(command), Drops::Nothing);
    let drops = |command| Errand::Store(Box::new(command), Drops::Reply);
    match task {
        Task::Route(request) => store(Command::Route(request)),
        Task::Bind(request) => store(Command::Bind(*request)),
        Task::Rebind(request) => store(Command::Rebind(*request)),
        Task::Confirm(request) => store(Command::Confirm(*request)),
        Task::Unbind(request) => drops(Command::Unbind(*request)),
        Task::LetLapse(request) => drops(Command::Bind(*request)),
        Task::WatchClaim => Errand::AwaitClaim(Duration::ZERO),
        Task::AwaitClaim(at_most) => Errand::AwaitClaim(at_most),
        Task::DrawToken => Errand::Token,
        Task::Initialize(claim) => Errand::Initialize(claim.binding.clone()),
        Task::Restore { .. } => Errand::Nothing,
        Task::DiscardNew(claim) => Errand::DiscardNew(claim.binding.epoch),
        Task::DiscardPrevious {
            upstream_session, ..
        } => Errand::DiscardPrevious(upstream_session.clone()),
        Task::RenewAtOwner(lost) => {
            Errand::Renew(lost.owner.as_ref().unwrap().worker.clone(), lost.epoch)
        }
        Task::EndSession => Errand::EndSession,
    }
}

fn task_outcome(
    command: &Command,
    drops: Drops,
    reply: Result<Reply, Option<Refusal>>,
) -> TaskOutcome<Sim> {
    if drops == Drops::Reply {
        return TaskOutcome::Done;
    }
    match (command, reply) {
        (_, Ok(Reply::Route(reply))) => TaskOutcome::Routed(Ok(reply)),
        (_, Ok(Reply::Bind(reply))) => TaskOutcome::Bound(Ok(reply)),
        (_, Ok(Reply::Rebind(reply))) => TaskOutcome::Rebound(Ok(reply)),
        (_, Ok(Reply::Confirm(reply))) => TaskOutcome::Confirmed(Ok(reply)),
        (Command::Route(_), Err(error)) => TaskOutcome::Routed(Err(error)),
        (Command::Bind(_), Err(error)) => TaskOutcome::Bound(Err(error)),
        (Command::Rebind(_), Err(error)) => TaskOutcome::Rebound(Err(error)),
        (Command::Confirm(_), Err(error)) => TaskOutcome::Confirmed(Err(error)),
        (command, reply) => panic!("{command:?} was answered with {reply:?}"),
    }
}

/// Why an instance was not initialized.
pub(crate) const UNANSWERED: Heard = Heard::Task(TaskOutcome::Initialized(Err(
    InitializeFailure::Unanswered(()),
)));
/// It rejects the client.
pub(crate) const REFUSED: Heard = Heard::Task(TaskOutcome::Initialized(Err(
    InitializeFailure::Refused(()),
)));

/// A connection that a process owns.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) epoch: u64,
    pub(crate) session: String,
    pub(crate) is_open: bool,
}

/// One gateway process.
pub(crate) struct Process {
    number: usize,
    boot: u64,
    pub(crate) is_up: bool,
    pub(crate) drain: Drain,
    pub(crate) stalled_until: u64,
    /// When the latest heartbeat that was acknowledged was sent.
    pub(crate) beat_at: u64,
    pub(crate) connections: BTreeMap<Place, Connection>,
}

impl Process {
    pub(crate) fn new(number: usize) -> Self {
        Self {
            number,
            boot: 1,
            is_up: true,
            drain: Drain::Serving,
            stalled_until: 0,
            beat_at: 0,
            connections: BTreeMap::new(),
        }
    }

    pub(crate) fn worker(&self) -> WorkerId {
        worker(&format!("gateway-{}:{}", self.number, self.boot))
    }

    /// A new boot, unless it is up: then it just goes on.
    pub(crate) fn start(&mut self) {
        if !self.is_up {
            self.boot += 1;
        }
        self.is_up = true;
        self.drain = Drain::Serving;
        self.stalled_until = 0;
    }

    /// Whether it may use its connections.
    pub(crate) fn is_fence_open(&self, now: u64) -> bool {
        now < self.beat_at + BEAT_TTL.get() * 2 / 3
    }
}

/// One machine at work, and where it is in its conversation: what is heard of an earlier step is nothing to it any more.
pub(crate) struct Job {
    pub(crate) machine: Machine,
    pub(crate) identity: Rc<Identity>,
    pub(crate) process: usize,
    /// Whose it is.
    pub(crate) purpose: Purpose,
    pub(crate) step: u64,
    pub(crate) said: Option<(Command, Drops)>,
    pub(crate) retries: u32,
    pub(crate) began_at: u64,
    /// The upstream session that it initialized last.
    pub(crate) made: Option<String>,
    /// Whether the reply of the last attempt is a result.
    pub(crate) has_result: bool,
}

impl Job {
    /// Says a command to the store.
    pub(crate) fn says(&mut self, command: Command, drops: Drops) {
        self.said = Some((command, drops));
    }
}

/// What a job is for.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    /// The request of a client.
    Client(usize),
    /// Recording that a loss was told.
    Report {
        client: usize,
        generation: u64,
        epoch: u64,
    },
    /// Looking whether the connection of this epoch has to be renewed, for the job that asked and its step.
    Renewal { asker: u64, step: u64, epoch: u64 },
    /// Renewing it.
    Renewed { asker: u64, step: u64 },
}

pub(crate) fn token_of(number: u64) -> Token {
    crate::support::token(&format!("token-{number}"))
}
