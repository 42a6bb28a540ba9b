//! Processes that a process started, and those that they started, as `/proc` tells it.

use std::collections::{BTreeMap, BTreeSet};

/// The ids of all living descendants of a process. Zombies count as gone.
pub fn descendants(ancestor: u32) -> anyhow::Result<BTreeSet<u32>> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Some((parent, state)) = parent_and_state(id)
            && state != 'Z'
        {
            children.entry(parent).or_default().push(id);
        }
    }
    let mut found = BTreeSet::new();
    let mut pending = vec![ancestor];
    while let Some(id) = pending.pop() {
        for child in children.get(&id).into_iter().flatten() {
            if found.insert(*child) {
                pending.push(*child);
            }
        }
    }
    Ok(found)
}

/// Whether a process of this id lives; a zombie does not.
#[must_use]
pub fn is_running(id: u32) -> bool {
    parent_and_state(id).is_some_and(|(_, state)| state != 'Z')
}

/// Fields 4 and 3 of `/proc/<pid>/stat`; what comes before them may hold anything but ends with the last `)`.
fn parent_and_state(id: u32) -> Option<(u32, char)> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((fields.next()?.parse().ok()?, state))
}
