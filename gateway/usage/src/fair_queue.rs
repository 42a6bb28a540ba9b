//! The order in which one thread runs the tasks of its users: start-time fair queueing (Goyal, Vin and Cheng, 1996), with
//! processor time as what is shared and rounds of the thread's run queue as the clock.
//!
//! Invariants: in one round a user runs for [`ROUND_NS`] and at most one task more, in the order of arrival; tasks that still
//! wait get a later round, and every round runs at least one task that waits, so no user starves and no time is left
//! unused. A user who does not run saves up nothing. A user who is alone on the thread never waits.
//!
//! Pure: the time is an argument, and wakers are returned.

use std::collections::{HashMap, VecDeque};
use std::task::Waker;

use crate::FlowId;

/// The processor time of one user in a round, in nanoseconds: a few steps of a call. Shorter rounds would spend more on
/// asking the system for events, longer ones would be noticed by users whose calls have many steps.
pub(crate) const ROUND_NS: u64 = 50_000;
/// How far one long step can set its user back, in nanoseconds of what the others run.
const DEBT_MAX_NS: u64 = 100_000_000;
/// How long a user without tasks counts as one of several.
const REMEMBERED_NS: u64 = 1_000_000_000;
/// Pause between looks for users to forget.
const FORGET_EVERY_NS: u64 = REMEMBERED_NS / 4;
/// Most users that are remembered before those are looked for who may be forgotten.
const FLOWS_REMEMBERED: usize = 1024;

/// The users of one thread.
#[derive(Debug)]
pub(crate) struct FairQueue {
    flows: HashMap<FlowId, Flow>,
    /// The one user, if there is no other.
    only: Option<FlowId>,
    /// Those with tasks that wait.
    backlogged: Vec<FlowId>,
    /// The virtual time at which the round began.
    round_start: u64,
    forget_at: u64,
    forget_from: usize,
}

/// One user.
#[derive(Debug, Default)]
struct Flow {
    /// The virtual time up to which its share is used.
    used_until: u64,
    ran_at: u64,
    /// The tasks that wait; none in place of those that do not any more.
    waiting: VecDeque<Option<Waker>>,
    /// The ticket of the first of them.
    first: u64,
    is_backlogged: bool,
}

/// What a task that was woken may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Run. There is no other user, so nothing is counted.
    Alone,
    /// Run, and [count](FairQueue::count) the time.
    Counted,
    /// Nothing: it is woken in its turn.
    Waits,
}

impl FairQueue {
    pub(crate) fn new() -> Self {
        Self {
            flows: HashMap::new(),
            only: None,
            backlogged: Vec::new(),
            round_start: 0,
            forget_at: 0,
            forget_from: FLOWS_REMEMBERED,
        }
    }

    /// Decides about a task of this user. `ticket` is the task's place among those that wait, and `waker` wakes it.
    pub(crate) fn admit(
        &mut self,
        id: FlowId,
        ticket: &mut Option<u64>,
        waker: &Waker,
    ) -> Admission {
        if self.only == Some(id) && ticket.is_none() {
            return Admission::Alone;
        }
        let round_end = self.round_end();
        let Some(flow) = self.flows.get_mut(&id) else {
            // Who was charged for nothing is no other user: such as an address, if the steps that read requests find
            // their user.
            *ticket = None;
            return Admission::Counted;
        };
        let admission = flow.admit(round_end, ticket, waker);
        if admission == Admission::Waits && !flow.is_backlogged {
            flow.is_backlogged = true;
            self.backlogged.push(id);
        }
        admission
    }

    /// Counts what a task of this user ran, from and until these nanoseconds, and returns the waker of its next one if
    /// it may run in this round too.
    pub(crate) fn count(&mut self, id: FlowId, from: u64, until: u64) -> Option<Waker> {
        if self.only == Some(id) {
            return None;
        }
        if self.flows.len() >= self.forget_from && !self.flows.contains_key(&id) {
            self.forget(u64::MAX);
        }
        let (start, end) = (self.round_start, self.round_end());
        let flow = self.flows.entry(id).or_default();
        let used = flow.used_until.max(start) + until.saturating_sub(from);
        flow.used_until = used.min(start + DEBT_MAX_NS);
        flow.ran_at = until;
        let next = match flow.used_until < end {
            true => flow.next_waiting(),
            false => None,
        };
        self.note_only();
        next
    }

    /// Whether a task of this user would have to wait now.
    pub(crate) fn is_used_up(&self, id: FlowId) -> bool {
        self.only != Some(id)
            && self
                .flows
                .get(&id)
                .is_some_and(|flow| !flow.waiting.is_empty() || flow.used_until >= self.round_end())
    }

    /// Whether tasks wait for the next round.
    pub(crate) const fn has_waiting(&self) -> bool {
        !self.backlogged.is_empty()
    }

    /// Begins the next round, at this nanosecond, and returns the wakers of those who run first.
    pub(crate) fn next_round(&mut self, now: u64) -> Vec<Waker> {
        if now >= self.forget_at {
            self.forget_at = now + FORGET_EVERY_NS;
            self.forget(now.saturating_sub(REMEMBERED_NS));
        }
        let flows = &mut self.flows;
        self.backlogged
            .retain(|id| flows.get_mut(id).is_some_and(Flow::is_still_backlogged));
        let used_until = |id| flows.get(id).map(|flow| flow.used_until);
        let Some(least) = self.backlogged.iter().filter_map(used_until).min() else {
            return Vec::new();
        };
        self.round_start = least.max(self.round_end());
        let round_end = self.round_end();
        let mut woken = Vec::with_capacity(self.backlogged.len());
        for id in &self.backlogged {
            if let Some(flow) = self.flows.get_mut(id)
                && flow.used_until < round_end
            {
                woken.extend(flow.next_waiting());
                // Nobody else is there any more.
                while self.only.is_some()
                    && let Some(next) = flow.next_waiting()
                {
                    woken.push(next);
                }
            }
        }
        woken
    }

    /// Forgets a task that waited and has ended.
    pub(crate) fn leave(&mut self, id: FlowId, ticket: u64) {
        if let Some(flow) = self.flows.get_mut(&id)
            && let Some(place) = flow.place_of(ticket)
        {
            *place = None;
        }
    }

    /// The wakers of all that wait, who are not served any more.
    pub(crate) fn close(&mut self) -> Vec<Waker> {
        let waiting = std::mem::take(self).flows.into_values();
        waiting.flat_map(|flow| flow.waiting).flatten().collect()
    }

    const fn round_end(&self) -> u64 {
        self.round_start + ROUND_NS
    }

    fn note_only(&mut self) {
        if self.only.is_some() != (self.flows.len() == 1) {
            self.only = match self.flows.len() {
                1 => self.flows.keys().next().copied(),
                _ => None,
            };
        }
    }

    /// Forgets users without tasks that wait and without debts, who have not run since this nanosecond.
    fn forget(&mut self, since: u64) {
        let end = self.round_end();
        self.flows.retain(|_, flow| {
            !flow.waiting.is_empty() || flow.used_until >= end || flow.ran_at >= since
        });
        self.forget_from = (2 * self.flows.len()).max(FLOWS_REMEMBERED);
        self.only = None;
        self.note_only();
    }
}

impl Default for FairQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl Flow {
    fn admit(&mut self, round_end: u64, ticket: &mut Option<u64>, waker: &Waker) -> Admission {
        match *ticket {
            Some(mine) => {
                let Some(place) = self.place_of(mine) else {
                    // It was woken in its turn.
                    *ticket = None;
                    return Admission::Counted;
                };
                if !(place.as_ref()).is_some_and(|known| known.will_wake(waker)) {
                    *place = Some(waker.clone());
                }
                Admission::Waits
            }
            None if self.waiting.is_empty() && self.used_until < round_end => Admission::Counted,
            None => {
                *ticket = Some(self.first + self.waiting.len() as u64);
                self.waiting.push_back(Some(waker.clone()));
                Admission::Waits
            }
        }
    }

    fn is_still_backlogged(&mut self) -> bool {
        while let Some(None) = self.waiting.front() {
            self.waiting.pop_front();
            self.first += 1;
        }
        self.is_backlogged = !self.waiting.is_empty();
        self.is_backlogged
    }

    fn place_of(&mut self, ticket: u64) -> Option<&mut Option<Waker>> {
        let place = usize::try_from(ticket.checked_sub(self.first)?).ok()?;
        self.waiting.get_mut(place)
    }

    /// The next that waits, which waits no longer.
    fn next_waiting(&mut self) -> Option<Waker> {
        loop {
            let next = self.waiting.pop_front()?;
            self.first += 1;
            if next.is_some() {
                return next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    const STEP_NS: u64 = ROUND_NS / 4;

    /// A run queue in which tasks of users wait, as a runtime has one, and a clock that moves in steps only.
    #[derive(Default)]
    struct Thread {
        queue: FairQueue,
        now: u64,
        ready: Arc<Ready>,
        tasks: Vec<Task>,
    }

    #[derive(Default)]
    struct Ready(std::sync::Mutex<VecDeque<usize>>);

    struct Task {
        user: FlowId,
        step_ns: u64,
        ticket: Option<u64>,
        waker: Waker,
        ran: usize,
    }

    struct TaskWaker(usize, Arc<Ready>, AtomicUsize);

    impl Wake for TaskWaker {
        fn wake(self: Arc<Self>) {
            self.2.fetch_add(1, Ordering::Relaxed);
            self.1.0.lock().unwrap().push_back(self.0);
        }
    }

    impl Thread {
        /// A task that is ready.
        fn spawn(&mut self, user: FlowId, step_ns: u64) -> usize {
            let id = self.tasks.len();
            let waker = TaskWaker(id, Arc::clone(&self.ready), AtomicUsize::new(0));
            self.tasks.push(Task {
                user,
                step_ns,
                ticket: None,
                waker: Waker::from(Arc::new(waker)),
                ran: 0,
            });
            self.ready.0.lock().unwrap().push_back(id);
            id
        }

        /// Runs everything that is ready now, and begins the next round. Tasks that ran are ready again if `again` says so.
        fn round(&mut self, again: impl Fn(usize) -> bool) -> Vec<usize> {
            let mut ran = Vec::new();
            let mut repeated = Vec::new();
            loop {
                let Some(id) = self.ready.0.lock().unwrap().pop_front() else {
                    break;
                };
                let task = self.tasks.get_mut(id).unwrap();
                match self.queue.admit(task.user, &mut task.ticket, &task.waker) {
                    Admission::Waits => continue,
                    Admission::Alone => self.now += task.step_ns,
                    Admission::Counted => {
                        let from = self.now;
                        self.now += task.step_ns;
                        if let Some(next) = self.queue.count(task.user, from, self.now) {
                            next.wake();
                        }
                    }
                }
                task.ran += 1;
                ran.push(id);
                if again(id) {
                    repeated.push(id);
                }
            }
            self.ready.0.lock().unwrap().extend(repeated);
            (self.queue.next_round(self.now))
                .into_iter()
                .for_each(Waker::wake);
            ran
        }

        fn ran_of(&self, user: FlowId) -> u64 {
            let of_user = self.tasks.iter().filter(|task| task.user == user);
            of_user.map(|task| task.ran as u64 * task.step_ns).sum()
        }
    }

    fn users() -> [FlowId; 3] {
        std::array::from_fn(|_| FlowId::of_next_user())
    }

    #[test]
    fn one_task_of_a_user_runs_beside_a_hundred_of_another_in_every_round() {
        let [ada, bob, _] = users();
        let mut thread = Thread::default();
        for _ in 0..100 {
            thread.spawn(ada, STEP_NS);
        }
        let of_bob = thread.spawn(bob, STEP_NS);
        // Until Bob came, Ada was alone.
        thread.round(|_| true);
        for _ in 0..100 {
            let ran = thread.round(|_| true);
            let before_bob = ran.iter().take_while(|id| **id != of_bob).count();
            assert!(before_bob <= 5, "{before_bob} of Ada's before Bob's");
            assert!(ran.len() <= 1 + 5, "{} in a round", ran.len());
        }
    }

    #[test]
    fn every_task_of_a_flooding_user_runs_in_turn() {
        let [ada, bob, _] = users();
        let mut thread = Thread::default();
        thread.spawn(bob, STEP_NS);
        for _ in 0..100 {
            thread.spawn(ada, STEP_NS);
        }
        for _ in 0..1000 {
            thread.round(|_| true);
        }
        let of_ada = || thread.tasks.iter().filter(|task| task.user == ada);
        let least = of_ada().map(|task| task.ran).min().unwrap();
        let most = of_ada().map(|task| task.ran).max().unwrap();
        assert!(least > 30 && most - least <= 1, "{least} to {most}");
    }

    #[test]
    fn users_with_steps_of_different_lengths_get_the_same_time() {
        let [ada, bob, carl] = users();
        let mut thread = Thread::default();
        for _ in 0..10 {
            thread.spawn(ada, 20 * ROUND_NS);
            thread.spawn(bob, STEP_NS);
            thread.spawn(carl, ROUND_NS);
        }
        while thread.now < 10_000 * ROUND_NS {
            thread.round(|_| true);
        }
        let times = [ada, bob, carl].map(|user| thread.ran_of(user));
        let (least, most) = (times.iter().min().unwrap(), times.iter().max().unwrap());
        assert!(most - least <= 50 * ROUND_NS, "{times:?}");
    }

    #[test]
    fn a_user_who_floods_beside_an_idle_one_waits_for_nobody() {
        let [ada, bob, _] = users();
        let mut thread = Thread::default();
        let of_bob = thread.spawn(bob, STEP_NS);
        for _ in 0..10 {
            thread.spawn(ada, 100 * ROUND_NS);
        }
        thread.round(|id| id != of_bob);
        for _ in 0..100 {
            assert_eq!(thread.round(|_| true).len(), 1, "a task runs in each round");
        }
        // Bob is forgotten after a second, and she is alone.
        thread.now += REMEMBERED_NS;
        thread.round(|_| true);
        thread.round(|_| true);
        assert_eq!(thread.queue.only, Some(ada));
        assert_eq!(thread.round(|_| true).len(), 10, "none of them waits");
    }

    #[test]
    fn an_address_whose_steps_are_charged_to_their_user_is_no_other_user() {
        let [address, ada, bob] = users();
        let mut queue = FairQueue::new();
        let admit = |queue: &mut FairQueue, id| queue.admit(id, &mut None, Waker::noop());
        for step in 0..1_000 {
            assert_eq!(admit(&mut queue, address), Admission::Counted);
            queue.count(ada, step * ROUND_NS, (step + 1) * ROUND_NS);
            assert_eq!(admit(&mut queue, ada), Admission::Alone);
        }
        assert_eq!(admit(&mut queue, bob), Admission::Counted);
        queue.count(bob, 0, STEP_NS);
        // But for the first step, what she ran alone is not counted.
        queue.round_start += ROUND_NS;
        assert_eq!(admit(&mut queue, ada), Admission::Counted);
    }

    #[test]
    fn a_task_that_ends_while_it_waits_loses_no_turn() {
        let [ada, bob, _] = users();
        let mut thread = Thread::default();
        thread.spawn(bob, STEP_NS);
        for _ in 0..20 {
            thread.spawn(ada, ROUND_NS);
        }
        thread.round(|_| false);
        let waiting: Vec<_> = (thread.tasks.iter())
            .filter_map(|task| Some((task.user, task.ticket?)))
            .collect();
        assert!(waiting.len() > 10);
        let (kept, ended) = waiting.split_last().unwrap();
        for (user, ticket) in ended {
            thread.queue.leave(*user, *ticket);
        }
        // One of those that ended was woken already.
        let mut rounds = 0;
        while thread.tasks.last().unwrap().ran == 0 {
            thread.ready.0.lock().unwrap().retain(|id| *id == 20);
            thread.round(|_| false);
            rounds += 1;
            assert!(rounds <= 3, "{kept:?}");
        }
        thread.round(|_| false);
        assert!(!thread.queue.has_waiting());
    }

    #[test]
    fn users_who_come_and_go_are_forgotten() {
        let mut thread = Thread::default();
        for _ in 0..10 * FLOWS_REMEMBERED {
            thread.spawn(FlowId::of_next_user(), 1);
            thread.round(|_| false);
        }
        assert!(thread.queue.flows.len() <= FLOWS_REMEMBERED);
    }
}
