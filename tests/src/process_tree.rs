//! A process's children and further descendants, from `/proc`.

use std::collections::{BTreeMap, BTreeSet};

/// The ids of all living descendants of a process. Zombies count as gone.
pub fn descendants(ancestor: u32) -> anyhow::Result<BTreeSet<u32>> {
    let children = children()?;
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

/// The ids of the live direct children of a process, without reparented ones. Zombies count as gone.
pub fn children_of(parent: u32) -> anyhow::Result<BTreeSet<u32>> {
    Ok(children()?.remove(&parent).unwrap_or_default())
}

/// The ids of all live processes with this command-line argument, whoever their parents are: including those that
/// outlived their parents.
pub fn started_with(argument: &str) -> anyhow::Result<BTreeSet<u32>> {
    running_with("cmdline", |given| {
        given
            .iter()
            .skip(1)
            .any(|given| *given == argument.as_bytes())
    })
}

/// The ids of all live processes with this variable in their environment, whoever their parents are.
pub fn started_with_variable(name: &str, value: &str) -> anyhow::Result<BTreeSet<u32>> {
    let variable = format!("{name}={value}");
    running_with("environ", |given| given.contains(&variable.as_bytes()))
}

/// The ids of all living processes for which a file of `/proc/<pid>` has strings that are so.
fn running_with(file: &str, is_so: impl Fn(&[&[u8]]) -> bool) -> anyhow::Result<BTreeSet<u32>> {
    let mut found = BTreeSet::new();
    for id in ids()? {
        let strings = std::fs::read(format!("/proc/{id}/{file}")).unwrap_or_default();
        let strings: Vec<&[u8]> = strings.split(|byte| *byte == 0).collect();
        if is_so(&strings) && is_running(id) {
            found.insert(id);
        }
    }
    Ok(found)
}

/// A process's name; none if it is gone.
#[must_use]
pub fn name_of(id: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{id}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// Whether a process with this id is alive; a zombie is not.
#[must_use]
pub fn is_running(id: u32) -> bool {
    parent_and_state(id).is_some_and(|(_, state)| state != 'Z')
}

/// The living children of every process that has some.
fn children() -> anyhow::Result<BTreeMap<u32, BTreeSet<u32>>> {
    let mut children: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for id in ids()? {
        if let Some((parent, state)) = parent_and_state(id)
            && state != 'Z'
        {
            children.entry(parent).or_default().insert(id);
        }
    }
    Ok(children)
}

/// The ids of all processes.
fn ids() -> anyhow::Result<Vec<u32>> {
    let entries: Result<Vec<_>, _> = std::fs::read_dir("/proc")?.collect();
    let names = entries?.into_iter().map(|entry| entry.file_name());
    Ok(names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect())
}

/// Fields 4 and 3 of `/proc/<pid>/stat`; the name before them may contain anything but ends with the last `)`.
fn parent_and_state(id: u32) -> Option<(u32, char)> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((fields.next()?.parse().ok()?, state))
}
