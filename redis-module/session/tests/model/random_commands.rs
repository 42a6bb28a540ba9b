//! Sequences of commands without any sense, over few names so that they meet, under settings at their limits.
//!
//! Epochs and generations are drawn relative to what is there: the present one, an earlier one, one that never was.

use std::collections::BTreeMap;

use proptest::prelude::*;

use mooring_session::Tuning;
use mooring_session::names::{Principal, ServerName, WorkerId};
use mooring_session::record::Binding;
use mooring_session::rules::{
    BindRequest, ClaimRequest, ConfirmRequest, CreateRequest, EndCondition, EndRequest,
    ForgetRequest, LossReport, Ownership, RebindRequest, Revival, RouteRequest, TouchRequest,
    UnbindRequest,
};
use mooring_session::time::Millis;
use mooring_session::workers::Drain;

use crate::node::Node;
use crate::support::{Command, instance, principal, server, session_id, token, upstream, worker};

const KEY: &str = "mcpgw:session_affinity:s1";
const START: u64 = 1_700_000_000_000;

#[derive(Clone, Copy, Debug)]
enum Verb {
    Create(Revival),
    Touch(Option<u64>),
    End(EndCondition),
    Kill,
    Claim,
    Forget,
    OfBinding(BindingVerb),
}

#[derive(Clone, Copy, Debug)]
enum BindingVerb {
    Route,
    /// Whose it will be, and whether it comes with an upstream session.
    Bind(Ownership, bool),
    Confirm,
    /// Whose it will be, whether it avoids an instance, and whether it comes with an upstream session.
    Rebind(Ownership, bool, bool),
    /// Whether it says a token.
    Unbind(bool),
}

/// Everything random about one command; which parts matter depends on the verb.
#[derive(Clone, Copy, Debug)]
struct Draw {
    verb: Verb,
    is_mallory: bool,
    server: u8,
    worker: u8,
    token: u8,
    lease: u64,
    /// How far before the present epoch or generation: 0 is the present one.
    earlier: usize,
    ttl: u64,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Say(Draw),
    Pass(u64),
    StepClock(i64),
    Beat(u8, Drain),
    Gone(u8),
    Promote,
}

fn verb() -> impl Strategy<Value = Verb> {
    prop_oneof![
        3 => Just(Verb::Create(Revival::Allowed)),
        1 => Just(Verb::Create(Revival::Refused)),
        1 => proptest::option::of(1_000_u64..20_000).prop_map(Verb::Touch),
        1 => prop_oneof![Just(EndCondition::Always), Just(EndCondition::Idle)].prop_map(Verb::End),
        1 => Just(Verb::Kill),
        2 => Just(Verb::Claim),
        2 => Just(Verb::Forget),
        18 => binding_verb().prop_map(Verb::OfBinding),
    ]
}

fn binding_verb() -> impl Strategy<Value = BindingVerb> {
    let ownership = prop_oneof![3 => Just(Ownership::Shared), 1 => Just(Ownership::Owned)];
    let bind = (ownership.clone(), prop::bool::weighted(0.2));
    let rebind = (ownership, any::<bool>(), prop::bool::weighted(0.3));
    prop_oneof![
        4 => Just(BindingVerb::Route),
        4 => bind.prop_map(|(ownership, ready)| BindingVerb::Bind(ownership, ready)),
        4 => Just(BindingVerb::Confirm),
        4 => rebind.prop_map(|(ownership, avoids, ready)| {
            BindingVerb::Rebind(ownership, avoids, ready)
        }),
        2 => any::<bool>().prop_map(BindingVerb::Unbind),
    ]
}

fn draw() -> impl Strategy<Value = Draw> {
    (
        verb(),
        prop::bool::weighted(0.05),
        0_u8..2,
        0_u8..3,
        0_u8..2,
        prop_oneof![Just(10_u64), Just(500), Just(60_000)],
        prop_oneof![4 => Just(0_usize), 1 => 1_usize..4],
        prop_oneof![Just(1_000_u64), Just(16_000)],
    )
        .prop_map(
            |(verb, is_mallory, server, worker, token, lease, earlier, ttl)| Draw {
                verb,
                is_mallory,
                server,
                worker,
                token,
                lease,
                earlier,
                ttl,
            },
        )
}

fn action() -> impl Strategy<Value = Action> {
    let drain = prop_oneof![4 => Just(Drain::Serving), 1 => Just(Drain::Draining)];
    prop_oneof![
        20 => draw().prop_map(Action::Say),
        4 => prop_oneof![
            4 => 1_u64..600,
            2 => 600_u64..20_000,
            1 => 20_000_u64..2_000_000,
        ].prop_map(Action::Pass),
        1 => (-3_600_000_i64..3_600_000).prop_map(Action::StepClock),
        4 => (0_u8..3, drain).prop_map(|(worker, drain)| Action::Beat(worker, drain)),
        1 => (0_u8..3).prop_map(Action::Gone),
        1 => Just(Action::Promote),
    ]
}

fn tuning() -> impl Strategy<Value = Tuning> {
    (
        prop_oneof![Just(1_u64), Just(2), Just(10)],
        prop_oneof![Just(0_u64), Just(600_000)],
        prop_oneof![Just(1_u64), Just(2), Just(16), Just(1000)],
    )
        .prop_map(|(tombstone_ratio, tombstone_min, touch_step)| Tuning {
            tombstone_ratio,
            tombstone_min: Millis::new(tombstone_min),
            touch_step,
        })
}

fn worker_named(number: u8) -> WorkerId {
    worker(&format!("worker-{number}:1"))
}

/// The numbers that commands are drawn from: the latest last.
#[derive(Default)]
struct Known {
    epochs: Vec<u64>,
    generations: Vec<u64>,
}

impl Known {
    fn learn(&mut self, node: &mut Node) {
        let Some(record) = node.record(KEY) else {
            return;
        };
        if self.generations.last() != Some(&record.generation) {
            self.generations.push(record.generation);
        }
        for binding in record.bindings.values() {
            if !self.epochs.contains(&binding.epoch) {
                self.epochs.push(binding.epoch);
            }
        }
    }

    fn pick(numbers: &[u64], earlier: usize) -> u64 {
        numbers.iter().rev().nth(earlier).copied().unwrap_or(1)
    }
}

fn who(draw: &Draw) -> Principal {
    principal(if draw.is_mallory { "mallory" } else { "alice" })
}

fn command(draw: &Draw, node: &mut Node, known: &Known) -> Command {
    let caller = worker_named(draw.worker);
    match draw.verb {
        Verb::Create(revival) => Command::Create(CreateRequest {
            id: session_id("s1"),
            principal: who(draw),
            ttl: Millis::new(draw.ttl),
            content_hash: None,
            labels: BTreeMap::new(),
            revival,
            cap: None,
        }),
        Verb::Touch(ttl) => Command::Touch(TouchRequest {
            principal: who(draw),
            ttl: ttl.map(Millis::new),
            content_hash: None,
            labels: BTreeMap::new(),
            reported: None,
        }),
        Verb::End(when) => Command::End(EndRequest {
            principal: Some(who(draw)),
            when,
        }),
        Verb::Kill => Command::End(EndRequest {
            principal: None,
            when: EndCondition::Always,
        }),
        Verb::Claim => Command::Claim(ClaimRequest {
            worker: caller,
            lease: Millis::new(draw.lease),
        }),
        Verb::Forget => Command::Forget(ForgetRequest {
            generation: Known::pick(&known.generations, draw.earlier),
            worker: caller,
        }),
        Verb::OfBinding(verb) => {
            let target = server(&format!("server-{}", draw.server));
            let present = node
                .record(KEY)
                .and_then(|record| record.bindings.get(&target).cloned());
            binding_command(verb, draw, target, present.as_ref(), known)
        }
    }
}

fn binding_command(
    verb: BindingVerb,
    draw: &Draw,
    target: ServerName,
    present: Option<&Binding>,
    known: &Known,
) -> Command {
    let caller = worker_named(draw.worker);
    let attempt = token(&format!("token-{}-{}", draw.worker, draw.token));
    let session = upstream(&format!("upstream-{}-{}", draw.worker, draw.token));
    let lease = Millis::new(draw.lease);
    let instances = vec![instance("a"), instance("b"), instance("c")];
    // Half of the time the holder's own token, or else few sequences would ever confirm anything.
    let told = match present {
        Some(binding) if draw.token == 0 => binding.token.clone(),
        _ => attempt.clone(),
    };
    let epoch = match present {
        Some(binding) if draw.earlier == 0 => binding.epoch,
        _ => Known::pick(&known.epochs, draw.earlier),
    };
    match verb {
        BindingVerb::Route => Command::Route(RouteRequest {
            principal: who(draw),
            server: target,
            worker: caller,
        }),
        BindingVerb::Bind(ownership, ready) => Command::Bind(BindRequest {
            principal: who(draw),
            server: target,
            worker: caller,
            token: attempt,
            lease,
            instances,
            upstream_session: ready.then_some(session),
            ownership,
        }),
        BindingVerb::Confirm => Command::Confirm(ConfirmRequest {
            principal: who(draw),
            server: target,
            epoch,
            token: told,
            upstream_session: Some(session),
        }),
        BindingVerb::Rebind(ownership, avoids, ready) => Command::Rebind(RebindRequest {
            principal: who(draw),
            server: target,
            epoch,
            worker: caller,
            token: attempt,
            lease,
            instances,
            avoid: avoids.then(|| instance("a")),
            reason: None,
            upstream_session: ready.then_some(session),
            ownership,
            report: if draw.earlier == 0 {
                LossReport::ByNextCall
            } else {
                LossReport::ByCaller
            },
        }),
        BindingVerb::Unbind(with_token) => Command::Unbind(UnbindRequest {
            principal: who(draw),
            server: target,
            epoch,
            token: with_token.then_some(told),
        }),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1_500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_sequence_of_commands_breaks_a_promise(
        tuning in tuning(),
        actions in prop::collection::vec(action(), 1..120),
    ) {
        let mut node = Node::new(START, tuning);
        let mut known = Known::default();
        for action in actions {
            match action {
                Action::Say(draw) => {
                    let command = command(&draw, &mut node, &known);
                    // What it came to is judged by the node's history.
                    let _judged = node.apply(KEY, &command);
                    known.learn(&mut node);
                }
                Action::Pass(ms) => node.pass(ms),
                Action::StepClock(by_ms) => node.step_clock(by_ms),
                Action::Beat(number, drain) => node.beat(&worker_named(number), drain),
                Action::Gone(number) => node.gone(&worker_named(number)),
                Action::Promote => node.promote(),
            }
        }
    }
}
