//! Random runs of many callers, judged by what they were told alone: at most one of them may believe that it has the
//! turn, they have it in the order of their arrival, nobody who waits and lives is forgotten, and numbers grow. Over
//! lapses, deaths, workers that do not listen, restarts of the node, and a wall clock that steps.

use std::collections::{BTreeMap, BTreeSet};

use mooring_session::Refusal;
use mooring_session::events::EventMailboxes;
use mooring_session::limits::TURN_CANCELLED_GRACE;
use mooring_session::refusal::Busy;
use mooring_session::time::Millis;
use mooring_session::turns::{Line, TurnRequest, TurnStatus, Turns};
use proptest::prelude::*;

use crate::fixture::{Node, QUIET_MS, request, worker};

const WORKERS: [&str; 4] = ["a", "b", "c", "d"];
const CALLS_EACH: usize = 3;

#[derive(Clone, Debug)]
enum Act {
    /// Asks, or asks again.
    Enter {
        call: usize,
        lease: u64,
        line: Line,
    },
    Leave(usize),
    /// Whoever asked for the call wants it no more.
    Withdraw(usize),
    Listen(usize),
    /// All listen, as they do most of the time.
    ListenAll,
    Pass(u64),
    Die(usize),
    Live(usize),
    StepClock(i64),
    /// The node forgets; those who believe that they hold a turn claim it again after so long.
    Restart(u64),
    /// The session's key is given away and taken back; the same as after a restart.
    ComeBack(u64),
    End,
}

fn act() -> impl Strategy<Value = Act> {
    let call = 0..WORKERS.len() * CALLS_EACH;
    let one = 0..WORKERS.len();
    let line = prop_oneof![4 => Just(Line::Last), 1 => Just(Line::First)];
    prop_oneof![
        30 => (call.clone(), prop_oneof![Just(50_u64), Just(500), Just(5_000)], line)
            .prop_map(|(call, lease, line)| Act::Enter { call, lease, line }),
        15 => call.clone().prop_map(Act::Leave),
        8 => call.prop_map(Act::Withdraw),
        10 => one.clone().prop_map(Act::Listen),
        20 => Just(Act::ListenAll),
        20 => prop_oneof![4 => 0_u64..60, 2 => 60_u64..900, 1 => 900_u64..7_000].prop_map(Act::Pass),
        2 => one.clone().prop_map(Act::Die),
        3 => one.prop_map(Act::Live),
        2 => prop_oneof![Just(-3_600_000_i64), Just(3_600_000), -2_000_i64..2_000].prop_map(Act::StepClock),
        1 => (0_u64..QUIET_MS).prop_map(Act::Restart),
        1 => (0_u64..QUIET_MS).prop_map(Act::ComeBack),
        1 => Just(Act::End),
    ]
}

fn ticket(call: usize) -> String {
    format!("{}{call}", WORKERS[call % WORKERS.len()])
}

/// What a caller believes of its turn.
#[derive(Clone, Copy)]
struct Belief {
    number: u64,
    until: u64,
    /// When it ends at the latest, as its call was cancelled.
    ends: Option<u64>,
}

/// One that was told to wait.
struct Waiting {
    call: usize,
    line: Line,
    lease: u64,
    /// Its worker died or did not listen for long enough to have missed its grant.
    may_be_passed_over: bool,
}

struct World {
    node: Node,
    beliefs: BTreeMap<usize, Belief>,
    /// In the order of arrival.
    waiting: Vec<Waiting>,
    heard_at: BTreeMap<&'static str, u64>,
    highest: u64,
    highest_since_restart: u64,
    dead: BTreeSet<&'static str>,
    clock_went_back: bool,
}

impl World {
    fn new() -> Self {
        let node = Node::new();
        let heard_at = WORKERS.map(|name| (name, node.mono)).into();
        Self {
            node,
            beliefs: BTreeMap::new(),
            waiting: Vec::new(),
            heard_at,
            highest: 0,
            highest_since_restart: 0,
            dead: BTreeSet::new(),
            clock_went_back: false,
        }
    }

    fn happen(&mut self, act: &Act) {
        match *act {
            Act::Enter { call, lease, line } => self.enter(call, lease, line, None),
            Act::Leave(call) => self.leave(call),
            Act::Withdraw(call) => self.withdraw(call),
            Act::Listen(one) => self.listen(WORKERS[one]),
            Act::ListenAll => self.listen_all(),
            Act::Pass(ms) => self.pass(ms),
            Act::Die(one) => self.die(WORKERS[one]),
            Act::Live(one) => {
                let name = WORKERS[one];
                self.node.deaths.0.remove(&worker(name));
                self.dead.remove(name);
            }
            Act::StepClock(by) => {
                self.clock_went_back |= by < 0;
                self.node.wall = self.node.wall.saturating_add_signed(by);
            }
            Act::Restart(claimed_after) => {
                self.node.turns = Turns::new(self.node.mono(), Millis::new(QUIET_MS));
                self.node.events = EventMailboxes::new();
                self.highest_since_restart = 0;
                self.claim_again(claimed_after);
            }
            Act::ComeBack(claimed_after) => {
                self.node.turns.restart_session(&crate::fixture::place());
                self.claim_again(claimed_after);
            }
            Act::End => {
                self.node.turns.drop_session(&crate::fixture::place());
                self.node.advance();
                self.beliefs.clear();
                self.waiting.clear();
            }
        }
    }

    fn is_dead(&self, call: usize) -> bool {
        self.dead.contains(WORKERS[call % WORKERS.len()])
    }

    fn enter(&mut self, call: usize, lease: u64, line: Line, held: Option<u64>) {
        let request = TurnRequest {
            lease: Millis::new(lease),
            line,
            held,
            ..request(&ticket(call))
        };
        let outcome = self.node.enter(&request);
        if self.is_dead(call) {
            assert!(outcome.is_err(), "the dead were let in");
            return;
        }
        match outcome {
            Ok(TurnStatus::Granted(number) | TurnStatus::Delegated(number)) => {
                let again = self.beliefs.get(&call).map(|belief| belief.number);
                if again != Some(number) {
                    self.is_next(call, line);
                    self.check_number(number, held);
                }
                self.believe(call, number, lease);
            }
            Ok(TurnStatus::Waiting) => {
                let belief = self.beliefs.remove(&call);
                let lives = belief.is_some_and(|belief| self.node.mono < belief.until);
                assert!(!lives, "a holder was told to wait");
                self.wait(call, lease, line);
            }
            Err(refusal) => assert!(held.is_some(), "{refusal}"),
        }
    }

    fn wait(&mut self, call: usize, lease: u64, line: Line) {
        let known = self.waiting.iter().position(|one| one.call == call);
        let line = match known {
            // It may have been passed over unheard, and then it stands where it is now told to.
            Some(at) if self.waiting[at].line <= line && !self.waiting[at].may_be_passed_over => {
                self.waiting[at].lease = lease;
                return;
            }
            Some(at) => self.waiting.remove(at).line.min(line),
            None => line,
        };
        let now = self.node.mono;
        let is_held = self.beliefs.values().any(|belief| now < belief.until);
        self.waiting.push(Waiting {
            call,
            line,
            lease,
            // Where it really stands is not known any more; or the turn may be on its way to another already.
            may_be_passed_over: known.is_some() || (line == Line::First && !is_held),
        });
        self.waiting.sort_by_key(|one| one.line);
    }

    /// Nobody who stands before may still wait.
    fn is_next(&mut self, call: usize, line: Line) {
        let at = self.waiting.iter().position(|one| one.call == call);
        let is_known = at.is_some();
        let at = at.unwrap_or_else(|| {
            let stands = self.waiting.iter().position(|one| one.line > line);
            stands.unwrap_or(self.waiting.len())
        });
        let unsure = at < self.waiting.len() && is_known && self.waiting[at].may_be_passed_over;
        for one in &self.waiting[..at] {
            assert!(
                one.may_be_passed_over || unsure || self.is_dead(one.call),
                "{} was passed over for {}",
                ticket(one.call),
                ticket(call)
            );
        }
        if is_known {
            self.waiting.remove(at);
        }
    }

    /// Numbers grow while the node lives, and beyond a restart too unless the wall clock went back.
    fn check_number(&mut self, number: u64, held: Option<u64>) {
        if held != Some(number) {
            let highest = if self.clock_went_back {
                self.highest_since_restart
            } else {
                self.highest
            };
            assert!(number > highest, "number {number} came again");
        }
        self.highest = self.highest.max(number);
        self.highest_since_restart = self.highest_since_restart.max(number);
    }

    fn believe(&mut self, call: usize, number: u64, lease: u64) {
        let now = self.node.mono;
        for (other, belief) in &self.beliefs {
            assert!(
                *other == call || belief.until <= now || self.is_dead(*other),
                "{} and {} have one turn",
                ticket(*other),
                ticket(call)
            );
        }
        let ends = self
            .beliefs
            .get(&call)
            .filter(|belief| belief.number == number);
        let ends = ends.and_then(|belief| belief.ends);
        let until = ends.map_or(now + lease, |ends| ends.min(now + lease));
        let belief = Belief {
            number,
            until,
            ends,
        };
        self.beliefs.insert(call, belief);
    }

    fn leave(&mut self, call: usize) {
        let outcome = self.node.leaves(&ticket(call));
        let belief = self.beliefs.remove(&call);
        let lives = belief.is_some_and(|belief| self.node.mono < belief.until);
        assert!(
            outcome.is_ok() || !lives || self.is_dead(call),
            "a holder could not leave"
        );
        let at = self.waiting.iter().position(|one| one.call == call);
        if let Some(at) = at {
            let one = self.waiting.remove(at);
            assert!(
                outcome.is_ok() || one.may_be_passed_over || self.is_dead(call),
                "a waiter was not there to withdraw"
            );
        }
    }

    fn withdraw(&mut self, call: usize) {
        let outcome = self.node.withdraws(&ticket(call));
        let belief = self.beliefs.get(&call);
        let lives = belief.is_some_and(|belief| self.node.mono < belief.until);
        assert!(
            outcome.is_err() || !lives || self.is_dead(call),
            "a holder was withdrawn"
        );
        if outcome == Err(Refusal::Busy(Busy::Turn))
            && let Some(belief) = self.beliefs.get_mut(&call)
        {
            let ends = self.node.mono + TURN_CANCELLED_GRACE.get();
            let ends = *belief.ends.get_or_insert(ends);
            belief.until = belief.until.min(ends);
        }
        if let Some(at) = self.waiting.iter().position(|one| one.call == call) {
            let is_sure = !self.waiting[at].may_be_passed_over && !self.is_dead(call);
            assert!(outcome.is_ok() || !is_sure, "a waiter was not withdrawn");
            if outcome.is_ok() {
                self.waiting.remove(at);
            }
        }
    }

    fn listen_all(&mut self) {
        for name in WORKERS {
            self.listen(name);
        }
    }

    fn listen(&mut self, name: &'static str) {
        if self.dead.contains(name) {
            return;
        }
        self.heard_at.insert(name, self.node.mono);
        for item in self.node.hears(name) {
            if item == "settled" {
                self.ask_for_all(name);
                continue;
            }
            if item.starts_with("no ") {
                continue;
            }
            let call: usize = item[1..].parse().unwrap();
            let lease = self.waiting.iter().find(|one| one.call == call);
            let Some(lease) = lease.map(|one| one.lease) else {
                // It was told by asking again, or has left since; the event is true all the same.
                assert!(self.beliefs.contains_key(&call), "{item} did not wait");
                continue;
            };
            // Asking again at once is what tells a gateway the number here.
            self.enter(call, lease, Line::Last, None);
            assert!(self.beliefs.contains_key(&call), "{item} was told wrongly");
        }
    }

    /// "Settled" says no more than that.
    fn ask_for_all(&mut self, name: &str) {
        let own: Vec<(usize, u64, Line)> = self
            .waiting
            .iter()
            .filter(|one| ticket(one.call).starts_with(name))
            .map(|one| (one.call, one.lease, one.line))
            .collect();
        for (call, lease, line) in own {
            self.enter(call, lease, line, None);
        }
    }

    fn pass(&mut self, ms: u64) {
        // In steps of the module's timer.
        let mut left = ms;
        while left > 0 {
            let step = left.min(100);
            left -= step;
            self.node.pass(step);
        }
        let now = self.node.mono;
        for one in &mut self.waiting {
            let name = WORKERS[one.call % WORKERS.len()];
            one.may_be_passed_over |= now - self.heard_at[name] >= 1_000;
        }
    }

    fn die(&mut self, name: &'static str) {
        self.dead.insert(name);
        self.node.dies(name);
        self.beliefs
            .retain(|call, _| WORKERS[call % WORKERS.len()] != name);
        for one in &mut self.waiting {
            one.may_be_passed_over |= WORKERS[one.call % WORKERS.len()] == name;
        }
    }

    fn claim_again(&mut self, claimed_after: u64) {
        self.waiting.clear();
        self.pass(claimed_after);
        let held: Vec<(usize, Belief)> = self
            .beliefs
            .iter()
            .filter(|(_, belief)| self.node.mono < belief.until)
            .map(|(call, belief)| (*call, *belief))
            .collect();
        for (call, belief) in held {
            self.enter(call, 500, Line::Last, Some(belief.number));
            assert_eq!(
                self.beliefs[&call].number, belief.number,
                "a holder did not get its turn again"
            );
        }
    }

    /// Nothing fails any more, and everybody leaves who has the turn: all who wait have it.
    fn calm(&mut self) {
        for name in WORKERS {
            self.node.deaths.0.remove(&worker(name));
        }
        self.dead.clear();
        self.listen_all();
        for name in WORKERS {
            self.ask_for_all(name);
        }
        for _ in 0..400 {
            self.pass(50);
            self.listen_all();
            let holders: Vec<usize> = self.beliefs.keys().copied().collect();
            for call in holders {
                self.leave(call);
            }
            if self.waiting.is_empty() {
                self.node.pass(QUIET_MS + 1_000);
                assert_eq!(self.node.turns.sizes(), (0, 0), "something is left over");
                assert_eq!(self.node.turns.next_deadline(), None);
                return;
            }
        }
        let left: Vec<String> = self.waiting.iter().map(|one| ticket(one.call)).collect();
        panic!("{left:?} wait for ever");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn one_at_a_time_in_order_and_nobody_forgotten(acts in prop::collection::vec(act(), 1..120)) {
        let mut world = World::new();
        for act in &acts {
            world.happen(act);
        }
        world.calm();
    }
}
