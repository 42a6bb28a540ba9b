//! Iterates over many workers, a few at a time, in rotation.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::names::WorkerId;

/// The workers of a table after `last`, continuing at the beginning: at most `limit`, and no worker twice.
pub(crate) fn next_in_rotation<T>(
    table: &BTreeMap<WorkerId, T>,
    last: Option<&WorkerId>,
    limit: usize,
) -> Vec<WorkerId> {
    let (after, until) = match last {
        Some(last) => (Bound::Excluded(last), Bound::Included(last)),
        None => (Bound::Unbounded, Bound::Unbounded),
    };
    let behind = table.range::<WorkerId, _>((after, Bound::Unbounded));
    let wrapped = table.range::<WorkerId, _>((Bound::Unbounded, until));
    let wrapped = wrapped.take(if last.is_some() { limit } else { 0 });
    behind
        .chain(wrapped)
        .take(limit)
        .map(|(worker, _)| worker.clone())
        .collect()
}
