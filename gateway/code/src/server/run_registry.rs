//! The runs of this process, so that they can be stopped when the process is.
//!
//! Invariant: a run that begins after all were asked to stop is asked too.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mooring_sandbox::StopHandle;

/// The runs of this process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct RunRegistry(Arc<Mutex<StoppableRuns>>);

#[derive(Debug, Default)]
struct StoppableRuns {
    stops: HashMap<u64, StopHandle>,
    next: u64,
    is_stopping: bool,
}

/// One registered run; dropping it removes the run from the registry.
#[derive(Debug)]
pub(super) struct RunRegistration {
    stops: RunRegistry,
    number: u64,
    stop: StopHandle,
}

impl RunRegistry {
    /// A run begins.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub(super) fn begin(&self) -> io::Result<RunRegistration> {
        let stop = StopHandle::new()?;
        let mut running = self.lock();
        let number = running.next;
        running.next = number.wrapping_add(1);
        if running.is_stopping {
            stop.ask();
        }
        running.stops.insert(number, stop.clone());
        drop(running);
        Ok(RunRegistration {
            stops: self.clone(),
            number,
            stop,
        })
    }

    /// Asks every run to stop, those that are yet to begin included.
    pub(super) fn ask_all(&self) {
        let mut running = self.lock();
        running.is_stopping = true;
        running.stops.values().for_each(StopHandle::ask);
    }

    fn lock(&self) -> MutexGuard<'_, StoppableRuns> {
        // The map is whole after every statement, so a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunRegistration {
    /// The handle that stops the run.
    pub(super) const fn stop(&self) -> &StopHandle {
        &self.stop
    }
}

impl Drop for RunRegistration {
    fn drop(&mut self) {
        self.stops.lock().stops.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn runs_are_asked_whenever_they_began_and_forgotten_when_they_end() {
        let stops = RunRegistry::default();
        let (first, second) = (stops.begin().unwrap(), stops.begin().unwrap());
        drop(first);
        assert_eq!(stops.lock().stops.len(), 1);
        assert!(!second.stop().is_asked());
        stops.ask_all();
        assert!(second.stop().is_asked());
        assert!(stops.begin().unwrap().stop().is_asked());
        drop(second);
        assert!(stops.lock().stops.is_empty());
    }
}
