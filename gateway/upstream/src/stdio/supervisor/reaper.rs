//! The thread that waits for every child of a supervisor, adopted ones included, so that none stays a zombie.

use std::io;
use std::sync::mpsc::{self, SyncSender};
use std::thread;

use rustix::io::{Errno, retry_on_intr};
use rustix::process::WaitOptions;

use super::course::Event;

/// Stack of a supervisor's thread: it does a few calls and formats nothing.
const STACK_BYTES: usize = 128 * 1024;

/// A reaper that is there and has not begun: a process without children has nobody to wait for.
pub(super) struct ReadyReaper {
    go: SyncSender<()>,
}

impl ReadyReaper {
    /// Starts the thread.
    pub(super) fn begin(events: SyncSender<Event>) -> io::Result<Self> {
        let (go, word) = mpsc::sync_channel(1);
        small_thread(move || {
            if word.recv().is_ok() {
                reap(&events);
            }
        })?;
        Ok(Self { go })
    }

    /// The first child is there.
    pub(super) fn go(self) {
        let _ = self.go.send(());
    }
}

/// Tells of every end until nobody is left; who has no descendant never gets one again.
fn reap(events: &SyncSender<Event>) {
    loop {
        let event = match retry_on_intr(|| rustix::process::wait(WaitOptions::empty())) {
            Ok(Some((pid, status))) => Event::Ended {
                pid,
                status: status.as_raw(),
            },
            Ok(None) => continue,
            Err(Errno::CHILD) => Event::NobodyLeft,
            // The call has no other failure.
            Err(_) => return,
        };
        let is_last = matches!(event, Event::NobodyLeft);
        if events.send(event).is_err() || is_last {
            return;
        }
    }
}

/// Starts a thread that ends with the process.
pub(super) fn small_thread(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(work)
        .map(drop)
}
