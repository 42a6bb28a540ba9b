//! Keys that change without a command of this module: what the indexes have to hear of.
//!
//! Any command may write to a session's key, and so do deadlines, evictions, replication and loading. The server tells
//! of each; what the key holds is then read anew, so that neither the kind of event nor their order matters.
//!
//! Invariants: a key under none of the prefixes costs a comparison of bytes, no lock and no allocation. What happens
//! while the state is locked, because a command of this module itself opened a key whose time had come, is put on a
//! list and read when that command is done. Nothing here writes to the keyspace.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use mooring_session::SessionPlace;
use mooring_session::record::Standing;
use mooring_session::time::Timestamp;

use crate::ffi::{Context, KeyEvent, OwnedText, Text};
use crate::module::{Module, StateError};
use crate::moment::Moment;
use crate::rebuild::RebuildCause;
use crate::record_io;
use crate::rule_inputs::RuleInputs;
use crate::settings;

/// Most keys that wait to be read. One command can hardly miss more; if it does, all are read by a rebuild.
const MISSED_MAX: usize = 4_096;

/// Keys that changed while the state was locked.
static MISSED: Mutex<Vec<SessionPlace>> = Mutex::new(Vec::new());
/// Whether there are any: looked at after every command.
static HAS_MISSED: AtomicBool = AtomicBool::new(false);

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
    // Of a key that is being loaded the name must not be held on to, so a copy is handed in.
    let taken = Module::try_with(|module| {
        if what == KeyEvent::Evicted {
            note_eviction(module, context, key);
        }
        refresh(module, context, OwnedText::new(key).text());
    });
    if taken == Err(StateError::Busy) {
        miss(SessionPlace::new(context.database(), key));
    }
}

fn note_eviction(module: &mut Module, context: &Context, key: &[u8]) {
    let now = Timestamp::from_unix_ms(context.unix_ms());
    let standing = module.indexes.standing(context.database(), key, now);
    module.counters.evicted_active += u64::from(standing == Some(Standing::Active));
}

fn miss(place: SessionPlace) {
    let mut missed = MISSED.lock().unwrap_or_else(PoisonError::into_inner);
    // One more than is let stand says that some are not on the list.
    if missed.len() <= MISSED_MAX {
        missed.push(place);
    }
    HAS_MISSED.store(true, Ordering::Relaxed);
}

/// Reads what changed while the state was locked: to be called before it is given up.
pub(crate) fn catch_up(module: &mut Module, context: &Context) {
    if !HAS_MISSED.load(Ordering::Relaxed) {
        return;
    }
    HAS_MISSED.store(false, Ordering::Relaxed);
    let missed = std::mem::take(&mut *MISSED.lock().unwrap_or_else(PoisonError::into_inner));
    if missed.len() > MISSED_MAX {
        module.rebuild_all(context, RebuildCause::Doubt);
    }
    let selected = context.database();
    for place in missed {
        if context.select(place.database) {
            refresh(module, context, OwnedText::new(&place.key).text());
        }
    }
    context.select(selected);
}

/// Lets the node know what stands under a key now.
pub(crate) fn refresh(module: &mut Module, context: &Context, key: Text<'_>) {
    module.counters.index_reads += 1;
    let moment = Moment::of(context, key);
    let Moment { now, database, .. } = moment;
    let bytes = key.as_bytes();
    // What is no record is none of ours, whatever is wrong with it.
    let Ok(Some(record)) = record_io::peek(context, key) else {
        forget(module, database, bytes, now);
        return;
    };
    let inputs = RuleInputs::at(module, &moment);
    module.floor = inputs.context().floor_after(Some(&record));
    module.indexes.put(database, bytes, &record, now);
}

fn forget(module: &mut Module, database: i32, key: &[u8], now: Timestamp) {
    module.forget_numbers(now);
    module.indexes.remove(database, key);
    let place = SessionPlace::new(database, key);
    module.turns.drop_session(&place);
    module.news.settle_session(&place);
}
