//! Sessions that arrive from another node, which knows who has their turns: with their slot, or restored.
//!
//! They are remembered by slot, so that the memory is bounded however many arrive. A slot whose keys are copied in advance
//! is served by its former node until it is handed over, so its quiet time begins when a caller asks here for the first
//! time. Invariant: no turn is granted to a caller that did not have it, in a slot with arrivals, before the longest lease
//! has passed since the other node could grant one.

use std::collections::BTreeMap;

use crate::key_slot::slot_of;
use crate::place::SessionPlace;
use crate::time::{Millis, Monotonic};

/// The slots with sessions that have arrived, and until when each is quiet; none before the first caller asks.
#[derive(Debug, Default)]
pub(super) struct Arrivals(BTreeMap<u16, Option<Monotonic>>);

impl Arrivals {
    /// A session has arrived.
    pub(super) fn note(&mut self, session: &SessionPlace) {
        self.0.insert(slot_of(&session.key), None);
    }

    /// Whether sessions have arrived in the slot of this one, and its quiet time is not over.
    pub(super) fn has(&self, session: &SessionPlace) -> bool {
        !self.0.is_empty() && self.0.contains_key(&slot_of(&session.key))
    }

    /// A caller asks for a turn of the session: until when its slot is quiet.
    pub(super) fn quiet_until(
        &mut self,
        session: &SessionPlace,
        mono: Monotonic,
        quiet: Millis,
    ) -> Monotonic {
        if self.0.is_empty() {
            return Monotonic::default();
        }
        let slot = slot_of(&session.key);
        let Some(until) = self.0.get_mut(&slot) else {
            return Monotonic::default();
        };
        let until = *until.get_or_insert(mono.plus(quiet));
        if until <= mono {
            self.0.remove(&slot);
        }
        until
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
