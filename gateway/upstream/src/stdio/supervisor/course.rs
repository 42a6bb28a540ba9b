//! The lifecycle of a supervised process tree, until its last process has ended.
//!
//! Serving; then leaving (stdin is closed, and the main process may exit by itself); then SIGTERM to all; then SIGKILL
//! to all, repeated until none is left. If the main process exits, its descendants get SIGTERM at once.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid, kill_process_group};

use super::descendants::signal_all;

/// Most queued events. Senders block.
pub(super) const EVENTS_WAITING_MAX: usize = 16;
/// Pause between the first two rounds of SIGKILL. It doubles up to [`KILL_PAUSE_MAX`], because more signals do not end
/// a process that the kernel cannot end yet.
const KILL_PAUSE: Duration = Duration::from_millis(5);
const KILL_PAUSE_MAX: Duration = Duration::from_millis(500);

/// An event of a supervisor.
pub(super) enum Event {
    /// The gateway wants the tree to end.
    Stop,
    /// A child exited; includes adopted processes.
    Ended {
        /// Its process id.
        pid: Pid,
        /// Its wait status.
        status: i32,
    },
    /// No descendant is left.
    NoneLeft,
}

/// A process tree below this process.
pub(super) struct Course {
    /// The first process, which leads its group.
    pub(super) main: Pid,
    /// Time between the stop request and SIGTERM.
    pub(super) stop_grace: Duration,
    /// Time between SIGTERM and SIGKILL.
    pub(super) terminate_grace: Duration,
}

#[derive(Clone, Copy)]
enum Phase {
    Serving,
    Leaving { until: Instant },
    Terminated { until: Instant },
    Killed { until: Instant, pause: Duration },
}

impl Phase {
    fn until(self) -> Option<Instant> {
        match self {
            Self::Serving => None,
            Self::Leaving { until } | Self::Terminated { until } | Self::Killed { until, .. } => {
                Some(until)
            }
        }
    }
}

impl Course {
    /// Supervises the tree until no process is left. `ended` gets the wait status of the main process.
    pub(super) fn follow(&self, events: &Receiver<Event>, mut ended: impl FnMut(i32)) {
        let mut phase = Phase::Serving;
        let mut has_main = true;
        loop {
            phase = match (next(events, phase.until()), phase) {
                (Next::Event(Event::NoneLeft), _) => return,
                (Next::Event(Event::Ended { pid, status }), phase) if pid == self.main => {
                    has_main = false;
                    ended(status);
                    match phase {
                        Phase::Serving | Phase::Leaving { .. } => self.terminate(),
                        later => later,
                    }
                }
                (Next::Event(Event::Stop), Phase::Serving) => Phase::Leaving {
                    until: Instant::now() + self.stop_grace,
                },
                (Next::Event(_), phase) => phase,
                (Next::Late, Phase::Serving | Phase::Leaving { .. }) => self.terminate(),
                (Next::Late, Phase::Terminated { .. }) => self.kill(has_main, KILL_PAUSE),
                (Next::Late, Phase::Killed { pause, .. }) => {
                    self.kill(has_main, (pause * 2).min(KILL_PAUSE_MAX))
                }
            };
        }
    }

    fn terminate(&self) -> Phase {
        signal_all(getpid(), Signal::TERM);
        Phase::Terminated {
            until: Instant::now() + self.terminate_grace,
        }
    }

    fn kill(&self, has_main: bool, pause: Duration) -> Phase {
        if has_main {
            // Atomic for the whole group. The id is still the main process's, because it has not been waited for.
            let _ = kill_process_group(self.main, Signal::KILL);
        }
        signal_all(getpid(), Signal::KILL);
        Phase::Killed {
            until: Instant::now() + pause,
            pause,
        }
    }
}

/// What happened first.
enum Next {
    Event(Event),
    Late,
}

fn next(events: &Receiver<Event>, until: Option<Instant>) -> Next {
    let Some(until) = until else {
        // Without senders this counts as the deadline, and the rounds of signals continue.
        return events.recv().map_or(Next::Late, Next::Event);
    };
    let left = until.saturating_duration_since(Instant::now());
    match events.recv_timeout(left) {
        Ok(event) => Next::Event(event),
        Err(RecvTimeoutError::Timeout) => Next::Late,
        Err(RecvTimeoutError::Disconnected) => {
            std::thread::sleep(left);
            Next::Late
        }
    }
}
