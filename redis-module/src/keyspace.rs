//! Keys that change without a command of this module: what the indexes have to hear of.
//!
//! Any command may write to a session's key, and so do deadlines, evictions, replication and loading. The server tells
//! of each; what the key holds is then read anew, so that neither the kind of event nor their order matters.
//!
//! A replica hears of every write of its primary, several times of some. So a key whose fields changed is put on a list,
//! and read once before the next command of this module, by the next tick, or when the list is full. What happens while
//! the state is locked, because a command of this module itself opened a key whose time had come, is put there as well.
//!
//! Invariants: a key under none of the prefixes costs a comparison of bytes, no lock and no allocation. No command sees
//! an index before the list is read; the list is bounded. Nothing here writes to the keyspace.

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

/// Keys that are read at once: about two milliseconds. A command that misses more than these lets a rebuild read all.
const CHANGED_MAX: usize = 1_024;

/// Keys that changed and were not read since.
static CHANGED: Mutex<Vec<SessionPlace>> = Mutex::new(Vec::new());
/// Whether there are any: looked at before and after every command.
static HAS_CHANGED: AtomicBool = AtomicBool::new(false);

/// Whether a key may be a session's.
pub(crate) fn may_be_ours(key: &[u8]) -> bool {
    settings::prefixes::cover(key)
}

/// A key under one of the prefixes came in or changed.
pub(crate) fn take(context: &Context, what: KeyEvent, key: &[u8]) {
    if what == KeyEvent::Loaded && context.is_loading_aside() {
        // It is not in the database that a read would see. Once the load is done all is read anew.
        return;
    }
    if what == KeyEvent::FieldsChanged {
        if note_change(context, key) >= CHANGED_MAX {
            // Where the state is at work, it reads them when it is done.
            let _ = Module::try_with(|module| catch_up(module, context));
        }
        return;
    }
    // Of a key that is being loaded the name must not be held on to, so a copy is handed in.
    let taken = Module::try_with(|module| {
        if what == KeyEvent::Evicted {
            note_eviction(module, context, key);
        }
        // What a RENAME, a COPY or a RESTORE puts there is another session.
        if what == KeyEvent::Changed {
            restart_queues(module, context.database(), key);
        }
        match what {
            // Nothing is there to be read.
            KeyEvent::Gone | KeyEvent::Evicted => {
                let now = Timestamp::from_unix_ms(context.unix_ms());
                forget(module, context.database(), key, now);
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

/// Puts the key on the list. Answers how many are there.
fn note_change(context: &Context, key: &[u8]) -> usize {
    let database = context.database();
    let mut changed = CHANGED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_last = changed
        .last()
        .is_some_and(|last| last.database == database && *last.key == *key);
    // A list that is longer by one marks that further keys were left out.
    if !is_last && changed.len() <= CHANGED_MAX {
        changed.push(SessionPlace::new(database, key));
    }
    HAS_CHANGED.store(true, Ordering::Relaxed);
    changed.len()
}

/// Reads what changed: to be called before the index is asked, and before the state is given up.
pub(crate) fn catch_up(module: &mut Module, context: &Context) {
    if !HAS_CHANGED.load(Ordering::Relaxed) {
        return;
    }
    HAS_CHANGED.store(false, Ordering::Relaxed);
    let mut changed = std::mem::take(&mut *CHANGED.lock().unwrap_or_else(PoisonError::into_inner));
    if changed.len() > CHANGED_MAX {
        module.rebuild_all(context, RebuildCause::Doubt);
    }
    changed.sort_unstable();
    changed.dedup();
    let selected = context.database();
    for place in changed {
        if context.select(place.database) {
            refresh(module, context, OwnedText::new(&place.key).text());
        }
    }
    context.select(selected);
}

/// Two databases have changed places, and what changed in them with them.
pub(crate) fn swap(first: i32, second: i32) {
    let mut changed = CHANGED.lock().unwrap_or_else(PoisonError::into_inner);
    for place in &mut *changed {
        place.database = match place.database {
            database if database == first => second,
            database if database == second => first,
            database => database,
        };
    }
}

/// Gives back what is held of the list, before the module is unloaded.
pub(crate) fn release() {
    *CHANGED.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new();
    HAS_CHANGED.store(false, Ordering::Relaxed);
}

/// Lets the node know what stands under a key now.
pub(crate) fn refresh(module: &mut Module, context: &Context, key: Text<'_>) {
    module.counters.index_reads += 1;
    let moment = Moment::of(context, key);
    let Moment { now, database, .. } = moment;
    let bytes = key.as_bytes();
    // What is no record is none of ours, whatever is wrong with it.
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

/// Who waits for a turn or a claim of the session is told to ask again. The session may come back under its key.
fn restart_queues(module: &mut Module, database: i32, key: &[u8]) {
    let place = SessionPlace::new(database, key);
    module.turns.restart_session(&place);
    module.news.settle_session(&place);
}
