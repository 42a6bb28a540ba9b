//! A thread beside one that serves, for requests whose steps are long: a long message is parsed, changed and copied whole.
//!
//! Invariants: what runs beside a thread keeps that thread from no other user, because the system shares processors by
//! threads; beside it users get the same processor time, as on the thread itself (see [`crate::fair_task`]). There is one
//! such thread for each that serves, from its first long message until it ends, so that long messages have as many
//! processors as others.

use std::cell::Cell;
use std::convert::Infallible;
use std::io;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The niceness of the thread. With few processors, others would wait for whole time slices of it (sched(7)).
const NICENESS: i32 = 10;

thread_local! {
    static IS_BESIDE: Cell<bool> = const { Cell::new(false) };
}

/// Ends when it is dropped, with whatever still runs there.
#[derive(Debug)]
pub(crate) struct ThreadBeside {
    runtime: Handle,
    _end: oneshot::Sender<Infallible>,
}

impl ThreadBeside {
    /// `rounds` begins the rounds of the thread: see [`crate::share_fairly`].
    ///
    /// # Errors
    /// The system's, for the thread and its descriptors.
    pub(crate) fn start(rounds: impl Future<Output = ()> + Send + 'static) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<Infallible>();
        let serve = move || {
            IS_BESIDE.set(true);
            // Of this thread alone. Should it fail, the thread is as important as others.
            let _ = rustix::process::setpriority_process(None, NICENESS);
            runtime.spawn(rounds);
            // Nothing is sent.
            let _ = runtime.block_on(ended);
            runtime.shutdown_background();
        };
        std::thread::Builder::new()
            .name("long-messages".to_owned())
            .spawn(serve)?;
        Ok(Self {
            runtime: handle,
            _end: end,
        })
    }

    /// Whether this thread is one.
    pub(crate) fn is_current() -> bool {
        IS_BESIDE.get()
    }

    pub(crate) const fn runtime(&self) -> &Handle {
        &self.runtime
    }
}
