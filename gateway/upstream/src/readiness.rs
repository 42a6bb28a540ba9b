//! Whether an instance serves, as the gateway finds in the background.
//!
//! Invariant: the first outcome decides; after that, only several ones in a row change the state, so that one lost packet
//! or one lucky answer changes nothing that a balancer or an alert acts on.

use std::sync::{Mutex, PoisonError};

/// Failed probes in a row after which an instance is not ready.
const FAILURES: u8 = 3;
/// Answered probes in a row after which it is ready again.
const SUCCESSES: u8 = 2;

/// Whether an instance, or a server, serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Readiness {
    /// It was not probed yet.
    #[default]
    Unknown,
    /// It answers.
    Ready,
    /// It does not.
    NotReady,
}

/// The state of one instance.
#[derive(Debug, Default)]
pub struct ReadinessLog(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    readiness: Readiness,
    /// Outcomes in a row that contradict it.
    contrary: u8,
}

impl ReadinessLog {
    /// The current state.
    #[must_use]
    pub fn get(&self) -> Readiness {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.readiness
    }

    /// Records the outcome of a probe. Returns the new state if that changes it.
    pub fn note(&self, is_answered: bool) -> Option<Readiness> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (found, needed) = match is_answered {
            true => (Readiness::Ready, SUCCESSES),
            false => (Readiness::NotReady, FAILURES),
        };
        if state.readiness == found {
            state.contrary = 0;
            return None;
        }
        state.contrary = state.contrary.saturating_add(1);
        if state.readiness != Readiness::Unknown && state.contrary < needed {
            return None;
        }
        *state = State {
            readiness: found,
            contrary: 0,
        };
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_outcomes_in_a_row_change_a_known_state() {
        use Readiness::{NotReady, Ready};
        let log = ReadinessLog::default();
        for (is_answered, changed) in [
            (true, Some(Ready)),
            (false, None),
            (false, None),
            (true, None),
            (false, None),
            (false, None),
            (false, Some(NotReady)),
            (true, None),
            (false, None),
            (true, None),
            (true, Some(Ready)),
        ] {
            assert_eq!(log.note(is_answered), changed);
        }
        let log = ReadinessLog::default();
        assert_eq!(log.note(false), Some(NotReady), "the first one decides");
    }
}
