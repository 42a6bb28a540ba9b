//! One request after another, as a gateway serves them: find the session, find or make its binding, call.

use std::collections::{BTreeMap, BTreeSet};

use mooring_session::names::{InstanceName, Principal, ServerName, WorkerId};
use mooring_session::rules::{
    BindRequest, ClaimRequest, ConfirmRequest, CreateRequest, EndCondition, EndRequest,
    ForgetRequest, LossReport, Ownership, RebindRequest, Revival, RouteRequest, TouchRequest,
    UnbindRequest,
};
use mooring_session::time::Millis;
use mooring_session::view::{BindingState, BindingView};
use mooring_session::{Decision, Refusal};

use crate::network::Chance;
use crate::support::{
    Command, Outcome, Reply, instance, principal, server, session_id, token, upstream,
};

const INSTANCES: [&str; 3] = ["a", "b", "c"];
const TTL: Millis = Millis::new(3_000);

/// What the instances remember, and which upstream session each epoch was seen to have.
#[derive(Default)]
pub(crate) struct Upstreams {
    sessions: BTreeSet<(InstanceName, String)>,
    by_epoch: BTreeMap<(String, ServerName, u64), String>,
    made: u64,
}

impl Upstreams {
    pub(crate) fn lose_one_instance(&mut self, chance: &mut Chance) {
        let lost = instance(chance.pick(&INSTANCES));
        self.sessions.retain(|(instance, _)| *instance != lost);
    }

    fn initialise(&mut self, at: &InstanceName) -> String {
        self.made += 1;
        let session = format!("upstream-{}", self.made);
        self.sessions.insert((at.clone(), session.clone()));
        session
    }

    fn delete(&mut self, at: &InstanceName, session: &str) {
        self.sessions.remove(&(at.clone(), session.to_owned()));
    }

    fn fresh_token(&mut self) -> mooring_session::names::Token {
        self.made += 1;
        token(&format!("token-{}", self.made))
    }

    /// Calls, and says whether the instance still knew the session. All calls of one epoch must meet in one session.
    fn call(&mut self, key: &str, binding: &BindingView) -> bool {
        let session = binding.upstream_session.as_ref().unwrap().to_string();
        let seen = (key.to_owned(), binding.server.clone(), binding.epoch);
        let first = self.by_epoch.entry(seen).or_insert(session.clone());
        assert_eq!(*first, session, "one epoch led to two upstream sessions");
        self.sessions.contains(&(binding.instance.clone(), session))
    }
}

/// What a task does next.
pub(crate) enum Next {
    Say(String, Box<Command>),
    Wait(u64),
}

#[derive(Clone)]
enum Stage {
    /// About to ask where calls go.
    Idle,
    Asked,
    /// Holds a claim and makes an upstream session.
    Initialising(BindingView, mooring_session::names::Token),
    /// Has told that it made one.
    Confirming(BindingView, String),
    Calling(BindingView),
    Cleaning,
}

pub(crate) struct Task {
    key: String,
    keys: usize,
    who: Principal,
    server: ServerName,
    stage: Stage,
    /// The token of the attempt under way.
    attempt: Option<mooring_session::names::Token>,
    /// Calls that came through.
    pub(crate) calls: u64,
}

impl Task {
    pub(crate) fn new(number: usize, keys: usize) -> Self {
        Self {
            key: format!("mcpgw:session_affinity:s{}", number % keys),
            keys,
            who: principal(if number == 0 { "mallory" } else { "alice" }),
            server: server(if number % 3 == 2 { "pipe" } else { "tools" }),
            stage: Stage::Idle,
            attempt: None,
            calls: 0,
        }
    }

    pub(crate) fn is_intruder(&self) -> bool {
        self.who.as_str() == "mallory"
    }

    /// The request is given up; the next one is for any session.
    pub(crate) fn restart(&mut self, chance: &mut Chance) {
        let number = chance.between(0, self.keys as u64 - 1);
        self.key = format!("mcpgw:session_affinity:s{number}");
        self.stage = Stage::Idle;
    }

    /// Goes one step on: after an answer, or after a wait.
    pub(crate) fn advance(
        &mut self,
        outcome: Option<&Outcome>,
        caller: &WorkerId,
        chance: &mut Chance,
        upstreams: &mut Upstreams,
    ) -> Next {
        match (outcome, self.stage.clone()) {
            (None, Stage::Initialising(binding, held)) => {
                self.initialised(&binding, held, caller, chance, upstreams)
            }
            (None, Stage::Calling(binding)) => self.call(&binding, caller, chance, upstreams),
            (None, _) => self.ask(caller, chance),
            (Some(Ok(Decision { reply, .. })), stage) => {
                self.answered(reply, &stage, caller, chance, upstreams)
            }
            (Some(Err(refusal)), stage) => {
                if let Stage::Confirming(binding, session) = stage {
                    upstreams.delete(&binding.instance, &session);
                }
                self.refused(refusal, chance)
            }
        }
    }

    fn say(&self, command: Command) -> Next {
        Next::Say(self.key.clone(), Box::new(command))
    }

    fn wait(&mut self, stage: Stage, ms: u64) -> Next {
        self.stage = stage;
        Next::Wait(ms)
    }

    fn ask(&mut self, caller: &WorkerId, chance: &mut Chance) -> Next {
        self.stage = Stage::Asked;
        if chance.percent(3) {
            let ttl = Millis::new(chance.pick(&[1_500, 3_000, 6_000]));
            return self.say(Command::Touch(TouchRequest {
                principal: self.who.clone(),
                ttl: Some(ttl),
                content_hash: None,
                labels: BTreeMap::new(),
                reported: None,
            }));
        }
        self.say(Command::Route(RouteRequest {
            principal: self.who.clone(),
            server: self.server.clone(),
            worker: caller.clone(),
        }))
    }

    fn answered(
        &mut self,
        reply: &Reply,
        stage: &Stage,
        caller: &WorkerId,
        chance: &mut Chance,
        upstreams: &mut Upstreams,
    ) -> Next {
        match reply {
            Reply::Route(reply) => match &reply.binding {
                None => self.bind(caller, chance, upstreams),
                Some(binding) => self.use_binding(binding, caller, chance, upstreams),
            },
            Reply::Bind(reply) if reply.won => self.won(&reply.binding, chance),
            Reply::Rebind(reply) if reply.won => {
                if let Some(previous) = &reply.previous {
                    for name in INSTANCES {
                        upstreams.delete(&instance(name), previous.as_str());
                    }
                }
                self.won(&reply.binding, chance)
            }
            Reply::Confirm(binding) => {
                self.stage = Stage::Calling(binding.clone());
                Next::Wait(chance.between(1, 40))
            }
            Reply::Claim(record) if matches!(stage, Stage::Cleaning) => {
                let generation = record.generation;
                self.say(Command::Forget(ForgetRequest {
                    generation,
                    worker: caller.clone(),
                }))
            }
            _ => self.wait(Stage::Idle, chance.between(5, 40)),
        }
    }

    fn refused(&mut self, refusal: &Refusal, chance: &mut Chance) -> Next {
        let is_missing = matches!(refusal, Refusal::NoSession | Refusal::Ended);
        // The intruder creates nothing: every session is alice's.
        if is_missing && !self.is_intruder() && !chance.percent(20) {
            let id = self.key.rsplit(':').next().unwrap();
            let revival = if chance.percent(90) {
                Revival::Allowed
            } else {
                Revival::Refused
            };
            return self.say(Command::Create(CreateRequest {
                id: session_id(id),
                principal: self.who.clone(),
                ttl: TTL,
                content_hash: None,
                labels: BTreeMap::new(),
                revival,
                cap: None,
            }));
        }
        self.wait(Stage::Idle, chance.between(10, 80))
    }

    fn ownership(&self) -> Ownership {
        if self.server.as_str() == "pipe" {
            Ownership::Owned
        } else {
            Ownership::Shared
        }
    }

    fn bind(&mut self, caller: &WorkerId, chance: &mut Chance, upstreams: &mut Upstreams) -> Next {
        let attempt = upstreams.fresh_token();
        self.attempt = Some(attempt.clone());
        self.say(Command::Bind(BindRequest {
            principal: self.who.clone(),
            server: self.server.clone(),
            worker: caller.clone(),
            token: attempt,
            lease: Millis::new(chance.pick(&[60, 250, 2_000])),
            instances: INSTANCES.map(instance).to_vec(),
            upstream_session: None,
            ownership: self.ownership(),
        }))
    }

    fn rebind(
        &mut self,
        binding: &BindingView,
        attempt: mooring_session::names::Token,
        caller: &WorkerId,
        chance: &mut Chance,
    ) -> Next {
        self.stage = Stage::Asked;
        self.attempt = Some(attempt.clone());
        self.say(Command::Rebind(RebindRequest {
            principal: self.who.clone(),
            server: self.server.clone(),
            epoch: binding.epoch,
            worker: caller.clone(),
            token: attempt,
            lease: Millis::new(chance.pick(&[60, 250, 2_000])),
            instances: INSTANCES.map(instance).to_vec(),
            avoid: chance.percent(50).then(|| binding.instance.clone()),
            reason: None,
            upstream_session: None,
            ownership: self.ownership(),
            report: if chance.percent(30) {
                LossReport::ByNextCall
            } else {
                LossReport::ByCaller
            },
        }))
    }

    fn use_binding(
        &mut self,
        binding: &BindingView,
        caller: &WorkerId,
        chance: &mut Chance,
        upstreams: &mut Upstreams,
    ) -> Next {
        match binding.state {
            BindingState::Bound => {
                self.wait(Stage::Calling(binding.clone()), chance.between(1, 40))
            }
            BindingState::Claimed => self.wait(Stage::Idle, chance.between(10, 60)),
            BindingState::Orphaned => {
                let attempt = upstreams.fresh_token();
                self.rebind(binding, attempt, caller, chance)
            }
        }
    }

    fn won(&mut self, binding: &BindingView, chance: &mut Chance) -> Next {
        match (binding.state, self.attempt.clone()) {
            (BindingState::Bound, _) => {
                self.wait(Stage::Calling(binding.clone()), chance.between(1, 40))
            }
            (_, Some(held)) => {
                let takes = chance.between(5, 400);
                self.wait(Stage::Initialising(binding.clone(), held), takes)
            }
            (_, None) => self.wait(Stage::Idle, 1),
        }
    }

    /// Initializing failed: the claim is given up or moved on; or it worked, and that is told.
    fn initialised(
        &mut self,
        binding: &BindingView,
        held: mooring_session::names::Token,
        caller: &WorkerId,
        chance: &mut Chance,
        upstreams: &mut Upstreams,
    ) -> Next {
        match chance.between(0, 9) {
            0 => {
                self.stage = Stage::Asked;
                self.say(Command::Unbind(UnbindRequest {
                    principal: self.who.clone(),
                    server: self.server.clone(),
                    epoch: binding.epoch,
                    token: Some(held),
                }))
            }
            1 => self.rebind(binding, held, caller, chance),
            _ => {
                let session = upstreams.initialise(&binding.instance);
                self.stage = Stage::Confirming(binding.clone(), session.clone());
                self.say(Command::Confirm(ConfirmRequest {
                    principal: self.who.clone(),
                    server: self.server.clone(),
                    epoch: binding.epoch,
                    token: held,
                    upstream_session: Some(upstream(&session)),
                }))
            }
        }
    }

    fn call(
        &mut self,
        binding: &BindingView,
        caller: &WorkerId,
        chance: &mut Chance,
        upstreams: &mut Upstreams,
    ) -> Next {
        if !upstreams.call(&self.key, binding) {
            let attempt = upstreams.fresh_token();
            return self.rebind(binding, attempt, caller, chance);
        }
        self.calls += 1;
        match chance.between(0, 99) {
            0..=4 => {
                self.stage = Stage::Asked;
                self.say(Command::Unbind(UnbindRequest {
                    principal: self.who.clone(),
                    server: self.server.clone(),
                    epoch: binding.epoch,
                    token: None,
                }))
            }
            5..=7 => {
                self.stage = Stage::Asked;
                let when = chance.pick(&[EndCondition::Always, EndCondition::Idle]);
                self.say(Command::End(EndRequest {
                    principal: Some(self.who.clone()),
                    when,
                }))
            }
            8..=25 => {
                // Another session, most likely an abandoned one, is cleaned.
                self.restart(chance);
                self.stage = Stage::Cleaning;
                self.say(Command::Claim(ClaimRequest {
                    worker: caller.clone(),
                    lease: Millis::new(chance.pick(&[100, 2_000])),
                }))
            }
            26..=35 => {
                self.restart(chance);
                self.wait(Stage::Idle, chance.between(2_000, 12_000))
            }
            _ => self.wait(Stage::Idle, chance.between(5, 800)),
        }
    }
}
