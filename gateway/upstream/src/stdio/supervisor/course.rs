//! The course of a supervised tree of processes, from its start to the end of its last process.
//!
//! Serving, then leaving (its input is closed, and it may end by itself), then SIGTERM to all, then SIGKILL to all,
//! again and again until nobody is left. The end of the main process goes straight to SIGTERM for what it left.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid, kill_process_group};

use super::descendants::signal_all;

/// Most events that wait; who tells them can.
pub(super) const EVENTS_WAITING_MAX: usize = 16;
/// Between the first two rounds of SIGKILL. Each one after takes twice as long, up to the most: what the kernel cannot
/// end now, it cannot end sooner by being asked more often.
const KILL_PAUSE: Duration = Duration::from_millis(5);
/// See [`KILL_PAUSE`].
const KILL_PAUSE_MAX: Duration = Duration::from_millis(500);

/// What happens to a supervisor.
pub(super) enum Event {
    /// Nobody wants the tree any more.
    Stop,
    /// A child ended; of those that were adopted too.
    Ended {
        /// Which.
        pid: Pid,
        /// Its wait status.
        status: i32,
    },
    /// No descendant is left.
    NobodyLeft,
}

/// A tree of processes below this one.
pub(super) struct Course {
    /// Its first process, and the leader of its group.
    pub(super) main: Pid,
    /// Between the wish for its end and SIGTERM.
    pub(super) stop_grace: Duration,
    /// Between SIGTERM and SIGKILL.
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
    /// Follows it until nobody is left. `ended` is told the wait status of the main process.
    pub(super) fn follow(&self, events: &Receiver<Event>, mut ended: impl FnMut(i32)) {
        let mut phase = Phase::Serving;
        let mut has_main = true;
        loop {
            phase = match (next(events, phase.until()), phase) {
                (Next::Event(Event::NobodyLeft), _) => return,
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
            // At one stroke: nobody in the group can be born in between. Its number is the main process's own, who has
            // not been waited for.
            let _ = kill_process_group(self.main, Signal::KILL);
        }
        signal_all(getpid(), Signal::KILL);
        Phase::Killed {
            until: Instant::now() + pause,
            pause,
        }
    }
}

/// What came first.
enum Next {
    Event(Event),
    Late,
}

fn next(events: &Receiver<Event>, until: Option<Instant>) -> Next {
    let Some(until) = until else {
        // Nobody is there to tell anything: as good as late, and the rounds of signals go on from there.
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
