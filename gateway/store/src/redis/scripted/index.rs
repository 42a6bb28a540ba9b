//! The indexes over the records: sorted sets, written with the record by the same call of the script.
//!
//! Invariants: an index names a session until the record says otherwise, and whoever uses it reads the record; every
//! index expires with the last of its sessions.

use std::collections::BTreeMap;

use mooring_session::Tuning;
use mooring_session::record::{Lifecycle, Record};

use super::keys::Keys;
use super::script::ScriptCall;
use crate::key::SessionKey;

/// Where a record is in the indexes: the index and the member, with the score.
type Entries = BTreeMap<(String, String), u64>;

/// Moves a record in the indexes from where it was to where it is.
pub(super) fn write(
    call: &mut ScriptCall,
    keys: &Keys,
    key: &SessionKey,
    before: Option<&Record>,
    after: Option<&Record>,
) {
    let entries = |record: Option<&Record>| {
        record.map_or_else(Entries::new, |record| entries(keys, key, record))
    };
    let (before, after_entries) = (entries(before), entries(after));
    for (index, member) in before.keys() {
        if !after_entries.contains_key(&(index.clone(), member.clone())) {
            call.run("ZREM", index, &[member]);
        }
    }
    let Some(record) = after else {
        return;
    };
    let ends_at = record.tombstone_ends_at(&Tuning::default()).unix_ms();
    for ((index, member), score) in &after_entries {
        if before.get(&(index.clone(), member.clone())) != Some(score) {
            call.run("ZADD", index, &[&score.to_string(), member]);
        }
        call.run("keep", index, &[&ends_at.to_string()]);
    }
}

fn entries(keys: &Keys, key: &SessionKey, record: &Record) -> Entries {
    let (family, member) = (key.family(), key.secret());
    let lifetime = &record.lifetime;
    let expires_at = lifetime.expires_at.unix_ms();
    let holds = !record.bindings.is_empty() || record.content_hash.is_some();
    let due_at = match holds {
        true => expires_at,
        // Nothing to clean up: it is only gone.
        false => record.tombstone_ends_at(&Tuning::default()).unix_ms(),
    };
    let mut entries = Entries::new();
    let mut add = |index: String, member: String, score| entries.insert((index, member), score);
    add(
        keys.created(family),
        member.to_owned(),
        lifetime.created_at.unix_ms(),
    );
    add(keys.due(family), member.to_owned(), due_at);
    if lifetime.lifecycle == Lifecycle::Active {
        add(
            keys.principal(family, &record.principal),
            member.to_owned(),
            expires_at,
        );
        for (server, binding) in &record.bindings {
            let instance = keys.instance(server, &binding.instance);
            add(instance, member.to_owned(), expires_at);
            let driven = format!("{member} {server}");
            add(keys.driver(&binding.driver), driven, expires_at);
        }
    }
    entries
}
