//! Records of runs and security events, on the volume, where they outlive sessions and gateways.
//!
//! ```text
//! base/.runs/<server>/<day>/<run>.run       what was known when it began; never changes
//! base/.runs/<server>/<day>/<run>.code      its code
//! base/.runs/<server>/<day>/<run>.calls     the calls it made, appended to as they happen
//! base/.runs/<server>/<day>/<run>.out       what it printed
//! base/.runs/<server>/<day>/<run>.end       how it ended; made once
//! base/.runs/<server>/running/<run>.<gateway> marker of a running run and its gateway
//! base/.runs/<server>/events/<day>/...      security events
//! ```
//!
//! A run without `.end` is running. `.end` is made once: neither a gateway that comes back after its run was given up, nor
//! two that scan at once, can end a run a second time.
//!
//! Records take a bounded number of bytes, of each user and of each server, and leave free space on the volume: see
//! `quota` and `free_space`.
//!
//! Invariant: a record that cannot be written costs the record and never the run: it is logged and counted
//! (`mooring_code_record_failures_total`).
//!
//! Everything here blocks, but for calls that are recorded and [`keep`]: callers run it on threads of their own.

mod call_lines;
mod call_log;
mod calls_read;
mod events;
mod free_space;
mod id;
mod keeper;
mod list;
mod lost;
mod prune;
mod quota;
mod recording;
mod recording_callee;
mod replay_mode;
mod shown;
mod stored;
mod versioned;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mooring_session::names::{Principal, ServerName, WorkerId};

pub(crate) use call_lines::CallMade;
pub(crate) use call_log::{CallsMade, rounded_ms};
pub(crate) use calls_read::{RecordedCall, RecordedCalls, RecordedOutcome, call_key};
pub use events::{EventFilter, EventKind, SecurityEvent, StoredEvent};
pub use id::RunId;
pub(crate) use keeper::keep;
pub use list::{RunFilter, RunRecord, WholeRun};
pub(crate) use recording::{NewRun, Recording, ReplayOf, RunCompletion};
pub use replay_mode::ReplayMode;
pub use stored::RunStatus;

use self::free_space::FreeSpace;
use self::quota::RecordSizes;
use crate::volume::{Area, AreaKind, Volume};
use mooring_metrics::{self as metrics, Record};
use mooring_settings::RecordSettings;
use mooring_usage::KeyedRates;

/// Most events and blocked runs that one gateway records of one server at once; refilled within a minute.
const EVENTS_PER_MINUTE_MAX: u32 = 1_000;
/// The directory of the markers of running runs.
const RUNNING: &str = "running";

/// The records of all servers on a volume. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Records(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    volume: Volume,
    settings: RecordSettings,
    /// This gateway: name and boot id.
    gateway: WorkerId,
    event_rates: KeyedRates<ServerName>,
    free_space: Arc<FreeSpace>,
    /// The sizes that the last prune pass of this process found.
    sizes: Mutex<HashMap<ServerName, RecordSizes>>,
    /// Bytes that this process has recorded since its last prune pass.
    recorded_bytes: Mutex<HashMap<ServerName, u64>>,
}

/// Why records could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// The server's name cannot be part of a path.
    #[error("this server cannot have run records")]
    Server(#[source] io::Error),
    /// They could not be listed or read.
    #[error("the records could not be read")]
    Read(#[source] io::Error),
    /// There is no such run.
    #[error("there is no such run")]
    NoRun,
    /// The record was written by a later version, is not whole, or is too large.
    #[error("the record of this run cannot be read by this version of the gateway")]
    Unreadable,
}

impl Records {
    /// The records on this volume.
    pub(crate) fn new(volume: Volume, settings: RecordSettings, gateway: WorkerId) -> Self {
        Self(Arc::new(Shared {
            free_space: Arc::new(FreeSpace::new(
                volume.clone(),
                settings.records_free_bytes_min,
            )),
            volume,
            settings,
            gateway,
            event_rates: KeyedRates::new(EVENTS_PER_MINUTE_MAX, Duration::from_secs(60)),
            sizes: Mutex::default(),
            recorded_bytes: Mutex::default(),
        }))
    }

    /// Begins the record of a run, before the run begins. It never fails: what could not be written is logged and
    /// counted.
    pub(crate) fn begin(&self, server: &ServerName, run: NewRun) -> Recording {
        Recording::begin(self.clone(), server, run)
    }

    /// Records a run that was refused, with the event that says why; none where it was no matter of security.
    pub(crate) fn blocked(
        &self,
        server: &ServerName,
        run: NewRun,
        finished: RunCompletion,
        event: Option<SecurityEvent>,
    ) {
        if !self.admits_event(server) {
            metrics::code_record_failed(Record::Flood);
            return;
        }
        let recording = self.begin(server, run);
        if let Some(event) = event {
            recording.event(event);
        }
        recording.finish(finished);
    }

    /// Records an event that belongs to no run, such as a refusal by the rate limit.
    pub fn event(&self, server: &ServerName, principal: &Principal, event: &SecurityEvent) {
        let stored = StoredEvent::new(server.as_str(), principal, None, event);
        match self.area(server) {
            Ok(area) => self.store_event(server, &area, &stored),
            Err(_) => metrics::code_record_failed(Record::Event),
        }
    }

    /// The events asked for, newest first.
    ///
    /// # Errors
    /// The volume could not be read.
    pub fn events(
        &self,
        server: &ServerName,
        filter: &EventFilter,
    ) -> Result<Vec<StoredEvent>, RecordsError> {
        events::list(&self.read_area(server)?, filter).map_err(RecordsError::Read)
    }

    /// Whether one more event or blocked run may be recorded: nothing else bounds how many files refusals cost.
    fn admits_event(&self, server: &ServerName) -> bool {
        let rates = &self.0.event_rates;
        rates.take(server, 1, Instant::now()).is_ok()
    }

    fn store_event(&self, server: &ServerName, area: &Area, event: &StoredEvent) {
        metrics::code_security_event(event.kind.into());
        if !self.admits_event(server) {
            metrics::code_record_failed(Record::Flood);
            return;
        }
        // An error of a tool is often ordinary. The message may have what the code is about, so only the record has it.
        if event.kind != EventKind::ToolCallError {
            let (kind, run, tool) = (event.kind, event.run_id.as_deref(), event.tool.as_deref());
            tracing::info!(server = server.as_str(), %kind, run, tool, "security event");
        }
        if let Err(error) = events::store(area, event) {
            tracing::warn!(%error, "security event not recorded");
            metrics::code_record_failed(Record::Event);
        }
    }

    fn area(&self, server: &ServerName) -> io::Result<Area> {
        self.0.volume.area(AreaKind::Runs, server)
    }

    fn read_area(&self, server: &ServerName) -> Result<Area, RecordsError> {
        self.area(server).map_err(RecordsError::Server)
    }

    /// Bytes that this process has recorded of each server since its last prune pass.
    fn recorded_bytes(&self) -> MutexGuard<'_, HashMap<ServerName, u64>> {
        let recorded = self.0.recorded_bytes.lock();
        recorded.unwrap_or_else(PoisonError::into_inner)
    }

    fn settings(&self) -> &RecordSettings {
        &self.0.settings
    }
}
