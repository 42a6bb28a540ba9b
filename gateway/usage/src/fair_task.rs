//! Tasks whose processor time is shared fairly among the users of a thread.
//!
//! A runtime runs tasks in the order in which they became ready, so a user with two hundred of them has two hundred times
//! the processor of a user with one. A [fair](fair_task) task asks the [`FairQueue`] of its thread before each of its
//! steps. Invariants: a task that has to wait is woken, also if the thread stops sharing; without [`share_fairly`] on its
//! thread, and inside of another fair task, it runs as any other. A thread has one queue and never lends it out while
//! foreign code runs.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tokio::runtime::{Handle, RuntimeFlavor};

use mooring_traces::{TraceScope, enter_scope};

use crate::SHORT_BYTES_MAX;
use crate::fair_queue::{Admission, FairQueue};
use crate::thread_beside::ThreadBeside;

/// For whom a task runs: a user or, until the user is known, the address that the connection is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowId(u64);

/// Set in the ids of addresses.
const OF_ADDRESS: u64 = 1 << 63;

impl FlowId {
    /// Of one more user.
    pub(crate) fn of_next_user() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed) & !OF_ADDRESS)
    }

    /// Of an address. Those of one IPv6 network of 64 bits are one, since one host may have them all.
    #[must_use]
    pub fn of_address(address: IpAddr) -> Self {
        let network = match address.to_canonical() {
            IpAddr::V4(address) => u64::from(address.to_bits()),
            // Every address of today has its first bits in 2000::/3, or is local.
            IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
        };
        Self(network | OF_ADDRESS)
    }
}

thread_local! {
    static QUEUE: RefCell<ThreadQueue> = RefCell::new(ThreadQueue::default());
    /// The step that runs now.
    static RUNNING: Cell<Option<RunningStep>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct RunningStep {
    /// For whom the task was made.
    origin: FlowId,
    /// Whose time it takes.
    charged: FlowId,
    /// Whose turn the next step of the task waits for.
    next: FlowId,
}

#[derive(Default)]
struct ThreadQueue {
    queue: FairQueue,
    /// Since when time is counted; none while no task begins rounds.
    clock: Option<Instant>,
    /// Wakes the task that begins rounds, while no user waits for the next one.
    idle: Option<Waker>,
    /// Where requests with long steps run; none before the first.
    beside: Option<ThreadBeside>,
}

/// A future whose steps count as processor time of a user: see the module.
#[derive(Debug)]
pub struct FairTask<F> {
    future: Pin<Box<F>>,
    /// None for a task of the gateway itself, which never waits.
    flow: Option<FlowId>,
    /// For whom it was made.
    origin: Option<FlowId>,
    /// Its place among those that wait.
    ticket: Option<u64>,
    /// The span that its steps are part of; none if they are part of none, or of that of the task that polls it.
    scope: Option<TraceScope>,
}

/// A task that runs for `flow`, or for the users of its requests once these are [known](crate::UserUsage::charge_task).
pub fn fair_task<F: Future>(flow: FlowId, future: F) -> FairTask<F> {
    FairTask::new(Some(flow), future)
}

/// A task that runs for the same user as the one that makes it, and as part of the same span. Whatever a request starts as
/// a task of its own is made by this.
pub fn for_same_user<F: Future>(future: F) -> FairTask<F> {
    let mut task = FairTask::new(RUNNING.get().map(|step| step.charged), future);
    task.scope = TraceScope::current();
    task
}

/// Runs a request with long steps on the thread beside this one, for the same user; on this thread if it has no such thread
/// or is one itself. It continues if its caller is dropped. None if it panicked.
pub async fn run_beside<F>(request: F) -> Option<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let runtime = QUEUE.with_borrow_mut(ThreadQueue::runtime_beside);
    let runtime = runtime.unwrap_or_else(Handle::current);
    runtime.spawn(for_same_user(request)).await.ok()
}

/// Works on a text of this length, and on a long one [beside](run_beside) this thread. None if it panicked.
pub async fn work_on_text<T: Send + 'static>(
    length: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    match length {
        ..=SHORT_BYTES_MAX => Some(work()),
        _ => run_beside(async { work() }).await,
    }
}

/// Has the task that runs now run for `flow`, and wait where others of `flow` do.
pub(crate) async fn charge_to(flow: FlowId) {
    let Some(step) = RUNNING.get() else {
        return;
    };
    RUNNING.set(Some(RunningStep {
        charged: flow,
        next: flow,
        ..step
    }));
    let mut has_to_wait = QUEUE.with_borrow(|thread| thread.queue.is_used_up(flow));
    std::future::poll_fn(|context| {
        if !std::mem::take(&mut has_to_wait) {
            return Poll::Ready(());
        }
        // The next step waits for its turn.
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Dropped at the end of a request: the next step of its task runs for whom the task was made for, such as the address of
/// a proxy, which may send another user's request next.
#[derive(Debug)]
pub struct ChargeEnd;

impl Drop for ChargeEnd {
    fn drop(&mut self) {
        if let Some(step) = RUNNING.get() {
            RUNNING.set(Some(RunningStep {
                next: step.origin,
                ..step
            }));
        }
    }
}

/// Begins the rounds of this thread, for ever. Its runtime has to be one that only this thread drives; others are left as
/// they are.
pub async fn share_fairly() {
    if Handle::current().runtime_flavor() != RuntimeFlavor::CurrentThread {
        return;
    }
    let _closed_at_the_end = OpenQueue::open();
    loop {
        std::future::poll_fn(|context| {
            QUEUE.with_borrow_mut(|thread| match thread.queue.has_waiting() {
                true => Poll::Ready(()),
                false => {
                    thread.idle = Some(context.waker().clone());
                    Poll::Pending
                }
            })
        })
        .await;
        // The runtime first runs all that is ready, and asks the system for events.
        tokio::task::yield_now().await;
        let woken = QUEUE.with_borrow_mut(|thread| thread.queue.next_round(thread.now()));
        woken.into_iter().for_each(Waker::wake);
    }
}

/// While it exists, tasks of this thread wait for their turns.
struct OpenQueue;

impl OpenQueue {
    fn open() -> Self {
        QUEUE.with_borrow_mut(|thread| thread.clock = Some(Instant::now()));
        Self
    }
}

impl Drop for OpenQueue {
    fn drop(&mut self) {
        // At the end of the thread there is none any more.
        let closed = QUEUE.try_with(|thread| thread.take().queue.close());
        closed.into_iter().flatten().for_each(Waker::wake);
    }
}

impl ThreadQueue {
    fn runtime_beside(&mut self) -> Option<Handle> {
        if self.clock.is_none() || ThreadBeside::is_current() {
            return None;
        }
        if self.beside.is_none() {
            // Without one, other users wait.
            self.beside = ThreadBeside::start(share_fairly()).ok();
        }
        self.beside.as_ref().map(|beside| beside.runtime().clone())
    }

    /// Nanoseconds since the beginning.
    fn now(&self) -> u64 {
        let elapsed = self.clock.map_or(0, |begun| begun.elapsed().as_nanos());
        u64::try_from(elapsed).unwrap_or(u64::MAX)
    }
}

impl<F: Future> FairTask<F> {
    fn new(flow: Option<FlowId>, future: F) -> Self {
        Self {
            future: Box::pin(future),
            flow,
            origin: flow,
            ticket: None,
            scope: None,
        }
    }

    fn begin_step(&mut self, flow: FlowId, waker: &Waker) -> Step {
        QUEUE.with_borrow_mut(|thread| {
            if thread.clock.is_none() {
                self.ticket = None;
                return Step::Runs;
            }
            match thread.queue.admit(flow, &mut self.ticket, waker) {
                Admission::Alone => Step::Runs,
                Admission::Counted => Step::Counted { from: thread.now() },
                Admission::Waits => Step::Waits(thread.idle.take()),
            }
        })
    }

    /// Runs one step as part of its span.
    fn poll_in_scope(&mut self, context: &mut Context<'_>) -> Poll<F::Output> {
        match &self.scope {
            None => self.future.as_mut().poll(context),
            Some(scope) => enter_scope(Some(scope.clone()), || self.future.as_mut().poll(context)),
        }
    }

    /// Runs one step, and finds out for whom.
    fn run(&mut self, flow: FlowId, context: &mut Context<'_>) -> (FlowId, Poll<F::Output>) {
        /// The step ends, also by a panic.
        struct Running;
        impl Drop for Running {
            fn drop(&mut self) {
                RUNNING.set(None);
            }
        }
        let step = RunningStep {
            origin: self.origin.unwrap_or(flow),
            charged: flow,
            next: flow,
        };
        RUNNING.set(Some(step));
        let _running = Running;
        let polled = self.poll_in_scope(context);
        let RunningStep { charged, next, .. } = RUNNING.get().unwrap_or(step);
        self.flow = Some(next);
        (charged, polled)
    }
}

impl<F: Future> Future for FairTask<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let Some(flow) = this.flow.filter(|_| RUNNING.get().is_none()) else {
            return this.poll_in_scope(context);
        };
        match this.begin_step(flow, context.waker()) {
            Step::Waits(idle) => {
                if let Some(idle) = idle {
                    idle.wake();
                }
                Poll::Pending
            }
            Step::Runs => this.run(flow, context).1,
            Step::Counted { from } => {
                let (flow, polled) = this.run(flow, context);
                let next = QUEUE.with_borrow_mut(|thread| {
                    let until = thread.now();
                    thread.queue.count(flow, from, until)
                });
                if let Some(next) = next {
                    next.wake();
                }
                polled
            }
        }
    }
}

impl<F> Drop for FairTask<F> {
    fn drop(&mut self) {
        let (Some(flow), Some(ticket)) = (self.flow, self.ticket) else {
            return;
        };
        // At the end of the thread, or in the middle of a look at the queue, the place stays: it is passed over.
        let _ = QUEUE.try_with(|thread| {
            if let Ok(mut thread) = thread.try_borrow_mut() {
                thread.queue.leave(flow, ticket);
            }
        });
    }
}

enum Step {
    /// It runs uncounted.
    Runs,
    /// It runs, from this nanosecond on.
    Counted { from: u64 },
    /// It waits; who begins rounds may have to be woken.
    Waits(Option<Waker>),
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]
    use std::cell::Cell;
    use std::rc::Rc;
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::task::{JoinSet, LocalSet, yield_now};

    use super::*;

    /// Keeps the thread busy for longer than a round.
    fn work() {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(60) {
            std::hint::spin_loop();
        }
    }

    /// A hundred tasks of one user that never end, and one of another that steps as often as this: how many steps the
    /// first makes meanwhile.
    async fn steps_beside(steps: usize) -> usize {
        let [ada, bob] = std::array::from_fn(|_| FlowId::of_next_user());
        let count = Rc::new(Cell::new(0));
        let mut flood = JoinSet::new();
        for _ in 0..100 {
            let count = Rc::clone(&count);
            flood.spawn_local(fair_task(ada, async move {
                loop {
                    work();
                    count.set(count.get() + 1);
                    yield_now().await;
                }
            }));
        }
        let before = Rc::clone(&count);
        let bob = fair_task(bob, async move {
            yield_now().await;
            let begun = before.get();
            for _ in 0..steps {
                yield_now().await;
            }
            before.get() - begun
        });
        tokio::task::spawn_local(bob).await.unwrap()
    }

    #[tokio::test]
    async fn a_flooding_users_tasks_run_once_for_each_step_of_another_user() {
        let unfair = LocalSet::new().run_until(steps_beside(50)).await;
        assert!(unfair >= 50 * 100, "the control: {unfair}");
        let rounds = tokio::spawn(share_fairly());
        yield_now().await;
        let fair = LocalSet::new().run_until(steps_beside(50)).await;
        assert!(fair <= 3 * 50, "{fair}");
        rounds.abort();
    }

    #[tokio::test]
    async fn who_waits_is_woken_when_the_thread_stops_sharing() {
        let rounds = tokio::spawn(share_fairly());
        yield_now().await;
        let mut all = JoinSet::new();
        for _ in 0..2 {
            let user = FlowId::of_next_user();
            for _ in 0..10 {
                all.spawn(fair_task(user, async { work() }));
            }
        }
        rounds.abort();
        while let Some(ended) = all.join_next().await {
            ended.unwrap();
        }
        assert!(rounds.await.unwrap_err().is_cancelled());
    }

    #[tokio::test]
    async fn a_long_step_beside_a_thread_does_not_hold_its_tasks_up() {
        let (begun, has_begun) = oneshot::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let user = FlowId::of_next_user();
        let rounds = tokio::spawn(share_fairly());
        yield_now().await;
        let long = fair_task(
            user,
            run_beside(async move {
                begun.send(RUNNING.get().map(|step| step.charged)).unwrap();
                released.recv().unwrap();
                // It has no such thread of its own.
                let own = std::thread::current().id();
                let nested = run_beside(async { std::thread::current().id() });
                nested.await == Some(own)
            }),
        );
        let long = tokio::spawn(long);
        // This thread runs on while that step lasts.
        assert_eq!(has_begun.await, Ok(Some(user)));
        release.send(()).unwrap();
        assert_eq!(long.await.unwrap(), Some(true));
        rounds.abort();
    }

    #[tokio::test]
    async fn only_a_long_text_is_worked_on_beside_the_thread() {
        let rounds = tokio::spawn(share_fairly());
        yield_now().await;
        let own = std::thread::current().id();
        let thread_of = |length| work_on_text(length, || std::thread::current().id());
        assert_eq!(thread_of(SHORT_BYTES_MAX).await, Some(own));
        assert_ne!(thread_of(SHORT_BYTES_MAX + 1).await, Some(own));
        assert_eq!(
            work_on_text(SHORT_BYTES_MAX + 1, || -> u8 { panic!("on purpose") }).await,
            None
        );
        rounds.abort();
    }

    #[tokio::test]
    async fn a_thread_that_does_not_share_runs_long_steps_itself() {
        let own = std::thread::current().id();
        let ran = run_beside(async { std::thread::current().id() });
        assert_eq!(ran.await, Some(own));
    }

    #[tokio::test]
    async fn a_task_runs_for_the_user_of_the_task_that_made_it() {
        let user = FlowId::of_next_user();
        let address = FlowId::of_address([127, 0, 0, 1].into());
        let task = fair_task(address, async move {
            let charged = || RUNNING.get().map(|step| step.charged);
            let before = charged();
            charge_to(user).await;
            let inner = tokio::spawn(for_same_user(async move { charged() }));
            let inner = inner.await.unwrap();
            drop(ChargeEnd);
            let ending = charged();
            yield_now().await;
            [before, inner, ending, charged()]
        });
        let expected = [address, user, user, address].map(Some);
        assert_eq!(task.await, expected);
        assert_eq!(for_same_user(async {}).flow, None);
    }
}
