//! Updates the indexes for keys that change without a command of this module.
//!
//! Any command may write to a session's key, and so do deadlines, evictions, replication and loading. The server sends
//! an event for each, and the module reads the key again, so that neither the kind nor the order of events matters.
//!
//! A replica gets an event for every write of its primary, and several for some. So a key whose fields changed is put
//! on a list. It is read once before the next command of this module, by the next tick, or when the list is full. The
//! list also takes events that arrive while the state is locked, because a command of this module opened an expired
//! key.
//!
//! A record that appears without a command of this module has arrived from another node, with its slot: key by key by
//! RESTORE, or with the fields of its hash where a slot is copied in advance. The other node knows its turns.
//!
//! Invariants: a key under none of the prefixes costs a comparison of bytes, no lock and no allocation. The list is
//! read before any command uses an index, and it is bounded. Nothing here writes to the keyspace.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use mooring_session::SessionPlace;
use mooring_session::codec::BorrowedRecord;
use mooring_session::record::SessionState;
use mooring_session::time::Timestamp;

use crate::ffi::{Context, KeyEvent, OwnedText, Text};
use crate::module::{Module, StateError};
use crate::moment::Moment;
use crate::rebuild::RebuildCause;
use crate::record_io;
use crate::rule_inputs::RuleInputs;
use crate::settings;

/// Most keys that are read at once, in about two milliseconds. If more have changed, a rebuild reads all keys.
const CHANGED_MAX: usize = 1_024;

/// A key that changed.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ChangedKey {
    place: SessionPlace,
    origin: RecordOrigin,
}

/// Where a record can come from that was not known before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RecordOrigin {
    /// A file, or the primary of this replica.
    Own,
    /// Another node.
    Other,
}

impl RecordOrigin {
    /// That of a key which changes now.
    fn now(context: &Context) -> Self {
        match context.is_serving_primary() {
            true => Self::Other,
            false => Self::Own,
        }
    }
}

/// Keys that changed and have not been read since.
static CHANGED: Mutex<Vec<ChangedKey>> = Mutex::new(Vec::new());
/// Whether there are any: checked before and after every command.
static HAS_CHANGED: AtomicBool = AtomicBool::new(false);

/// Whether a key may be that of a session.
pub(crate) fn may_be_ours(key: &[u8]) -> bool {
    settings::prefixes::cover(key)
}

/// A key under one of the prefixes was loaded or changed.
pub(crate) fn take(context: &Context, what: KeyEvent, key: &[u8]) {
    if what == KeyEvent::Loaded && context.is_loading_aside() {
        // It is not in the database that a read would see. After the load, all keys are read again.
        return;
    }
    if what == KeyEvent::FieldsChanged {
        if note_change(context, key) >= CHANGED_MAX {
            // If the state is locked, its holder reads them when it is done.
            let _ = Module::try_with(|module| catch_up(module, context));
        }
        return;
    }
    // The name of a key that is being loaded must not be retained, so a copy is passed.
    let taken = Module::try_with(|module| {
        if what == KeyEvent::Evicted {
            note_eviction(module, context, key);
        }
        // After a RENAME, a COPY or a RESTORE the key holds another session.
        if matches!(what, KeyEvent::Changed | KeyEvent::Restored) {
            restart_queues(module, context.database(), key);
        }
        match what {
            // The key does not exist any more.
            KeyEvent::Gone | KeyEvent::Evicted => {
                let now = Timestamp::from_unix_ms(context.unix_ms());
                forget(module, context.database(), key, now);
            }
            KeyEvent::Restored => {
                refresh_from(module, context, key, RecordOrigin::now(context));
            }
            _ => refresh(module, context, OwnedText::new(key).text()),
        }
    });
    if taken == Err(StateError::Busy) {
        note_change(context, key);
    }
}

fn note_eviction(module: &mut Module, context: &Context, key: &[u8]) {
    let now = Timestamp::from_unix_ms(context.unix_ms());
    let state = module.indexes.state(context.database(), key, now);
    module.counters.evicted_active += u64::from(state == Some(SessionState::Active));
}

/// Puts the key on the list. Returns the length of the list.
fn note_change(context: &Context, key: &[u8]) -> usize {
    let database = context.database();
    let origin = RecordOrigin::now(context);
    let mut changed = CHANGED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_last = changed
        .last()
        .is_some_and(|last| last.place.database == database && *last.place.key == *key);
    // A list with one more key than the limit means that further keys were left out.
    if !is_last && changed.len() <= CHANGED_MAX {
        let place = SessionPlace::new(database, key);
        changed.push(ChangedKey { place, origin });
    }
    HAS_CHANGED.store(true, Ordering::Relaxed);
    changed.len()
}

/// Reads the changed keys, and notifies the workers that rely on their bindings. Call it before an index is used, and before the state is unlocked.
pub(crate) fn catch_up(module: &mut Module, context: &Context) {
    if !HAS_CHANGED.load(Ordering::Relaxed) {
        return;
    }
    HAS_CHANGED.store(false, Ordering::Relaxed);
    let mut changed = std::mem::take(&mut *CHANGED.lock().unwrap_or_else(PoisonError::into_inner));
    if changed.len() > CHANGED_MAX {
        module.rebuild_all(context, RebuildCause::Inconsistent);
    }
    changed.sort_unstable();
    // The later of two is that of another node, if one is.
    changed.reverse();
    changed.dedup_by(|earlier, later| earlier.place == later.place);
    let selected = context.database();
    for ChangedKey { place, origin } in changed {
        if context.select(place.database) {
            refresh_from(module, context, &place.key, origin);
            module.events.settle_session(&place);
        }
    }
    context.select(selected);
}

/// Two databases were swapped: swaps the databases of the changed keys as well.
pub(crate) fn swap(first: i32, second: i32) {
    let mut changed = CHANGED.lock().unwrap_or_else(PoisonError::into_inner);
    for ChangedKey { place, .. } in &mut *changed {
        place.database = match place.database {
            database if database == first => second,
            database if database == second => first,
            database => database,
        };
    }
}

/// Frees the list, before the module is unloaded.
pub(crate) fn release() {
    *CHANGED.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new();
    HAS_CHANGED.store(false, Ordering::Relaxed);
}

/// The same as [`refresh`]. A record of another node that was not known before has arrived.
fn refresh_from(module: &mut Module, context: &Context, key: &[u8], origin: RecordOrigin) {
    let database = context.database();
    let was_known = module.indexes.has(database, key);
    refresh(module, context, OwnedText::new(key).text());
    if origin == RecordOrigin::Other && !was_known && module.indexes.has(database, key) {
        module.turns.note_arrived(&SessionPlace::new(database, key));
    }
}

/// Reads a key and updates the index and the floor of numbers.
pub(crate) fn refresh(module: &mut Module, context: &Context, key: Text<'_>) {
    module.counters.index_reads += 1;
    let moment = Moment::of(context, key);
    let Moment { now, database, .. } = moment;
    let bytes = key.as_bytes();
    // A hash that is no valid record is not indexed, for whatever reason.
    let fields = record_io::peek(context, key).unwrap_or_default();
    let Ok(record) = BorrowedRecord::decode(fields.iter()) else {
        forget(module, database, bytes, now);
        return;
    };
    let inputs = RuleInputs::at(module, &moment);
    module.floor = inputs
        .context()
        .floor_after(Some(record.numbers_to_follow(now)));
    module.indexes.put(database, bytes, &record, now);
}

fn forget(module: &mut Module, database: i32, key: &[u8], now: Timestamp) {
    module.forget_numbers(now);
    module.indexes.remove(database, key);
    restart_queues(module, database, key);
}

/// Notifies the waiters for a turn or a claim of the session to ask again. The session may return to its key.
fn restart_queues(module: &mut Module, database: i32, key: &[u8]) {
    let place = SessionPlace::new(database, key);
    module.turns.restart_session(&place);
    module.events.settle_session(&place);
}
