//! The thread that reaps all children of a supervisor, including adopted ones, so that no zombies stay.

use std::io;
use std::sync::mpsc::{self, SyncSender};
use std::thread;

use rustix::io::{Errno, retry_on_intr};
use rustix::process::WaitOptions;

use super::course::Event;

/// Stack size of a supervisor's thread, which makes a few calls and formats nothing.
const STACK_BYTES: usize = 128 * 1024;

/// A reaper that has not begun: without children, `wait` would return at once.
pub(super) struct ReadyReaper {
    go: SyncSender<()>,
}

impl ReadyReaper {
    /// Starts the thread, which waits for [`Self::go`].
    pub(super) fn begin(events: SyncSender<Event>) -> io::Result<Self> {
        let (go, word) = mpsc::sync_channel(1);
        small_thread(move || {
            if word.recv().is_ok() {
                reap(&events);
            }
        })?;
        Ok(Self { go })
    }

    /// Starts reaping. Call it after the first child was started.
    pub(super) fn go(self) {
        let _ = self.go.send(());
    }
}

/// Reports every exit until no child is left; without descendants, none can appear.
fn reap(events: &SyncSender<Event>) {
    loop {
        let event = match retry_on_intr(|| rustix::process::wait(WaitOptions::empty())) {
            Ok(Some((pid, status))) => Event::Ended {
                pid,
                status: status.as_raw(),
            },
            Ok(None) => continue,
            Err(Errno::CHILD) => Event::NoneLeft,
            // `wait` has no other failure.
            Err(_) => return,
        };
        let is_last = matches!(event, Event::NoneLeft);
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
