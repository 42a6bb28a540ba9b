//! Queries of the store in memory, which do not change its records.

use mooring_session::context::{Context, Liveness, NoIndex};
use mooring_session::names::Principal;
use mooring_session::record::{Record, SessionState};
use mooring_session::refusal::Refusal;
use mooring_session::time::Timestamp;

use crate::key::SessionKey;
use crate::sessions::Sessions;
use crate::transition::Transition;

impl Sessions {
    /// Checks whether a transition would be refused. Changes nothing.
    ///
    /// # Errors
    /// What the rules refuse.
    pub(super) fn check<T: Transition>(
        &self,
        key: &SessionKey,
        request: &T,
        now: Timestamp,
        workers: &dyn Liveness,
    ) -> Result<(), Refusal> {
        let context = Context {
            now,
            floor: self.floor,
            tuning: &self.tuning,
            workers,
            node: &NoIndex,
        };
        let mut slot = self.living(key, now).cloned();
        request
            .decide(&mut slot, key.secret().as_bytes(), &context)
            .map(drop)
    }

    /// The record, unless its tombstone has ended.
    pub(super) fn living(&self, key: &SessionKey, now: Timestamp) -> Option<&Record> {
        let record = self.records.get(key)?;
        (!self.is_over(record, now)).then_some(record)
    }

    /// What the principal's own session is now.
    ///
    /// # Errors
    /// `NOSESSION`, `DENIED`.
    pub(super) fn state(
        &self,
        key: &SessionKey,
        principal: &Principal,
        now: Timestamp,
    ) -> Result<SessionState, Refusal> {
        match self.living(key, now) {
            None => Err(Refusal::NoSession),
            Some(record) if record.principal != *principal => Err(Refusal::Denied),
            Some(record) => Ok(record.lifetime.state(now)),
        }
    }
}
