//! Whether this gateway leaves the fleet: because operators drain it, or because it stops.
//!
//! Invariants: load balancers are told before anything is refused; a gateway that stops never serves again, one that only
//! drains does when operators want it to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How far this gateway has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeparturePhase {
    /// It takes on everything.
    Serving,
    /// It tells load balancers to send nothing more, and serves all that they still send.
    Leaving,
    /// It takes on nothing that it alone could serve, and hands over what it can.
    Draining,
}

/// The phase of this gateway. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Departure(Arc<State>);

#[derive(Debug)]
struct State {
    phase: watch::Sender<DeparturePhase>,
    /// Whether the phase is not `Serving`, for the replies to all requests.
    is_leaving: AtomicBool,
    is_stopping: AtomicBool,
    /// Cancelled from `Draining` on; another one after a return to `Serving`.
    draining: RwLock<CancellationToken>,
}

impl Default for Departure {
    fn default() -> Self {
        Self(Arc::new(State {
            phase: watch::Sender::new(DeparturePhase::Serving),
            is_leaving: AtomicBool::default(),
            is_stopping: AtomicBool::default(),
            draining: RwLock::default(),
        }))
    }
}

impl Departure {
    /// The current phase.
    #[must_use]
    pub fn phase(&self) -> DeparturePhase {
        *self.0.phase.borrow()
    }

    /// The phase with every change.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<DeparturePhase> {
        self.0.phase.subscribe()
    }

    /// Whether load balancers are to send nothing more.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.0.is_leaving.load(Ordering::Relaxed)
    }

    /// Whether this gateway stops.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.0.is_stopping.load(Ordering::Acquire)
    }

    /// Cancelled once this gateway drains. After a return, another one has to be asked for.
    #[must_use]
    pub fn draining(&self) -> CancellationToken {
        let draining = self.0.draining.read();
        draining.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Enters a later phase.
    pub fn advance(&self, phase: DeparturePhase) {
        self.change(|current| (phase > current).then_some(phase));
    }

    /// Serves again, unless this gateway stops.
    pub fn come_back(&self) {
        let is_stopping = &self.0.is_stopping;
        self.change(|_| (!is_stopping.load(Ordering::Acquire)).then_some(DeparturePhase::Serving));
    }

    /// This gateway stops: it leaves, and does not come back.
    pub fn stop(&self) {
        self.change(|current| {
            // Under the lock of the phase: no return is in between.
            self.0.is_stopping.store(true, Ordering::Release);
            Some(current.max(DeparturePhase::Leaving))
        });
    }

    fn change(&self, next: impl FnOnce(DeparturePhase) -> Option<DeparturePhase>) {
        self.0.phase.send_if_modified(|phase| {
            let Some(next) = next(*phase).filter(|next| next != phase) else {
                return false;
            };
            let mut draining = (self.0.draining.write()).unwrap_or_else(PoisonError::into_inner);
            if next == DeparturePhase::Draining {
                draining.cancel();
            } else if *phase == DeparturePhase::Draining {
                *draining = CancellationToken::new();
            }
            (self.0.is_leaving).store(next != DeparturePhase::Serving, Ordering::Relaxed);
            *phase = next;
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_end_with_each_draining_and_not_before() {
        let departure = Departure::default();
        let first = departure.draining();
        departure.advance(DeparturePhase::Leaving);
        assert!(departure.is_leaving() && !first.is_cancelled());
        departure.advance(DeparturePhase::Draining);
        assert!(first.is_cancelled() && departure.draining().is_cancelled());
        departure.advance(DeparturePhase::Leaving);
        assert_eq!(departure.phase(), DeparturePhase::Draining);
        departure.come_back();
        assert!(!departure.is_leaving());
        let second = departure.draining();
        assert!(!second.is_cancelled());
        departure.advance(DeparturePhase::Draining);
        assert!(second.is_cancelled());
    }

    #[test]
    fn a_gateway_that_stops_does_not_come_back() {
        let departure = Departure::default();
        departure.stop();
        departure.come_back();
        assert_eq!(departure.phase(), DeparturePhase::Leaving);
        departure.advance(DeparturePhase::Draining);
        departure.stop();
        assert_eq!(departure.phase(), DeparturePhase::Draining);
    }
}
