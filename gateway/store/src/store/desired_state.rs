//! What operators want of the fleet, as all gateways of the store see it.
//!
//! A gateway asks for the version twice a second, and reads the rest where it changed, so that a change is seen everywhere
//! within a second. Invariant: while the store cannot be read, what was read last stays in force, and nothing changes it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mooring_session::time::Timestamp;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::{Store, on_backend};
use crate::desired_state::{DesiredChange, DesiredFields, DesiredLimit, DesiredState, plan};
use crate::error::StoreError;
use crate::unix_now_ms;

/// How often a gateway asks for the version.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// How often it asks while its user of Redis may not: each refusal is in the ACL log.
const ASK_REFUSED_EVERY: Duration = Duration::from_secs(15);
/// Most attempts to change what others change at the same time.
const ATTEMPTS_MAX: usize = 16;

/// Why what is wanted was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DesiredStateError {
    /// Another operator has changed it meanwhile.
    #[error(
        "the desired state has version {current}, not {expected}: read it again, and repeat the change if it still applies"
    )]
    Changed {
        /// The version that the caller had read.
        expected: u64,
        /// The version that is stored.
        current: u64,
    },
    /// Others change it all the time.
    #[error("the desired state is being changed by others: repeat the change")]
    Busy,
    /// It would exceed a limit.
    #[error("the desired state was not changed: {0}")]
    Limit(#[from] DesiredLimit),
    /// The store did not change it. If a reply was lost, it may have.
    #[error("the desired state was not changed: {0}")]
    Store(#[from] StoreError),
}

impl Store {
    /// What operators want of the fleet, as this gateway read it last.
    #[must_use]
    pub fn desired_state(&self) -> Arc<DesiredState> {
        self.desired_state.borrow().clone()
    }

    /// The same with every change.
    #[must_use]
    pub fn watch_desired_state(&self) -> watch::Receiver<Arc<DesiredState>> {
        self.desired_state.subscribe()
    }

    /// Reads it if its version changed.
    ///
    /// # Errors
    /// The store's own only. What was read last stays in force.
    pub async fn refresh_desired_state(&self) -> Result<(), StoreError> {
        // A state that was read before a change must not be noted after it.
        let _changing = self.desired_state_lock.lock().await;
        // Its duration is not recorded: it is asked all the time, for no request.
        let version = on_backend!(self.desired_state_version())?;
        if version != self.desired_state.borrow().version {
            let fields = on_backend!("HGETALL", self.desired_fields())?;
            self.note_desired_state(&fields);
        }
        self.knows_desired_state.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether it was read, or may not be read: a gateway that starts while the store is away does not know which servers
    /// operators have added.
    #[must_use]
    pub fn knows_desired_state(&self) -> bool {
        self.knows_desired_state.load(Ordering::Relaxed)
    }

    /// Keeps it up to date, until the future is dropped.
    pub async fn follow_desired_state(self) {
        let mut ticks = interval(ASK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut was_refused = false;
        loop {
            ticks.tick().await;
            match self.refresh_desired_state().await {
                Ok(()) => was_refused = false,
                Err(StoreError::NotReady(error)) if error.is_denied() => {
                    if !was_refused {
                        tracing::warn!(%error, "desired state not read: what operators park, drain or add has no effect here until the user of store.url may use HGET and HGETALL");
                    }
                    was_refused = true;
                    self.knows_desired_state.store(true, Ordering::Relaxed);
                    ticks.reset_after(ASK_REFUSED_EVERY);
                }
                // Changes of the store's state are logged elsewhere.
                Err(error) => tracing::debug!(%error, "desired state was not read"),
            }
        }
    }

    /// Makes these changes, all or none, and returns what is wanted then. With `expected_version`, only if that is the
    /// stored version; otherwise whatever others change at the same time.
    ///
    /// # Errors
    /// See [`DesiredStateError`]. While Redis is away, or the file cannot be written, nothing can be changed.
    pub async fn change_desired_state(
        &self,
        expected_version: Option<u64>,
        changes: &[DesiredChange],
    ) -> Result<Arc<DesiredState>, DesiredStateError> {
        let _changing = self.desired_state_lock.lock().await;
        for _ in 0..ATTEMPTS_MAX {
            let mut fields = on_backend!("HGETALL", self.desired_fields())?;
            let current = self.note_desired_state(&fields);
            if let Some(expected) = expected_version.filter(|version| *version != current.version) {
                let current = current.version;
                return Err(DesiredStateError::Changed { expected, current });
            }
            let now = Timestamp::from_unix_ms(unix_now_ms());
            let Some(write) = plan(&fields, changes, now)? else {
                return Ok(current);
            };
            if on_backend!("EXEC", self.write_desired_fields(&write))? {
                write.apply(&mut fields);
                return Ok(self.note_desired_state(&fields));
            }
        }
        Err(DesiredStateError::Busy)
    }

    fn note_desired_state(&self, fields: &DesiredFields) -> Arc<DesiredState> {
        let read = Arc::new(DesiredState::of_fields(fields));
        self.desired_state.send_if_modified(|known| {
            let is_changed = known.version != read.version;
            if is_changed {
                *known = Arc::clone(&read);
            }
            is_changed
        });
        read
    }
}
