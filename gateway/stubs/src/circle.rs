//! Names that are defined by themselves: `A` is `B`, and `B` is `A`. No language has such a type.
//!
//! A list, a map or an object between a name and itself is fine: then a value can end. Where nothing is between, the
//! name that closes the circle becomes anything.

use super::kind::{Kind, TypeSchema};

/// Opens every circle.
pub(super) fn open(shape: &mut TypeSchema) {
    let mut states = vec![State::Unseen; shape.named.len()];
    for start in 0..shape.named.len() {
        follow(shape, &mut states, start);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unseen,
    /// It is on the way from where the search began.
    Open,
    Done,
}

/// Goes from name to name as far as nothing is between them. Not by calls that nest: the way may be as long as there are
/// names.
fn follow(shape: &mut TypeSchema, states: &mut [State], start: usize) {
    let mut way = vec![start];
    while let Some(current) = way.last().copied() {
        match states.get(current) {
            Some(State::Unseen) => set(states, current, State::Open),
            Some(State::Open) => {}
            Some(State::Done) | None => {
                way.pop();
                continue;
            }
        }
        let Some(named) = shape.named.get_mut(current) else {
            way.pop();
            continue;
        };
        remove_references(&mut named.kind, |number| {
            states.get(number) == Some(&State::Open)
        });
        let next = bare(&named.kind).find(|number| states.get(*number) == Some(&State::Unseen));
        match next {
            Some(number) => way.push(number),
            None => {
                set(states, current, State::Done);
                way.pop();
            }
        }
    }
}

fn set(states: &mut [State], number: usize, state: State) {
    if let Some(place) = states.get_mut(number) {
        *place = state;
    }
}

/// The names that a kind refers to directly.
fn bare(kind: &Kind) -> impl Iterator<Item = usize> {
    let alternatives = match kind {
        Kind::Union(alternatives) => alternatives.as_slice(),
        other => std::slice::from_ref(other),
    };
    alternatives.iter().filter_map(|kind| match kind {
        Kind::Named(number) => Some(*number),
        _ => None,
    })
}

/// Takes away the names that close a circle. A union that has lost one is still what the others are.
fn remove_references(kind: &mut Kind, closes: impl Fn(usize) -> bool) {
    let is_closing = |kind: &Kind| matches!(kind, Kind::Named(number) if closes(*number));
    if is_closing(kind) {
        *kind = Kind::Any;
    } else if let Kind::Union(alternatives) = kind {
        alternatives.retain(|kind| !is_closing(kind));
        let left = std::mem::take(alternatives);
        *kind = Kind::union(left);
    }
}
