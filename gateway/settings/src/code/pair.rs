//! Knobs that stand at two places: in `[code]`, as the default of all servers, and in a server's `sandbox_policy`.

use crate::knob::{About, Disclosure, Integer, List, Switch};

/// One knob at both of its places.
pub(super) struct Pair<K> {
    /// In `[code]`.
    pub(super) standard: K,
    /// In a server's `sandbox_policy`.
    pub(super) own: K,
}

/// A switch at both places.
pub(super) const fn switches(standard: About, own: About, default: bool) -> Pair<Switch> {
    Pair {
        standard: Switch {
            about: standard,
            default,
        },
        own: Switch {
            about: own,
            default,
        },
    }
}

/// A number at both places.
pub(super) const fn integers(
    standard: About,
    own: About,
    unit: &'static str,
    default: u64,
    (least, most): (u64, u64),
) -> Pair<Integer> {
    Pair {
        standard: Integer {
            about: standard,
            unit,
            default,
            least,
            most,
        },
        own: Integer {
            about: own,
            unit,
            default,
            least,
            most,
        },
    }
}

/// A list of patterns at both places.
pub(super) const fn lists(standard: About, own: About, shape: &'static str) -> Pair<List> {
    Pair {
        standard: patterns(standard, shape),
        own: patterns(own, shape),
    }
}

/// A list of patterns: at most 256 of at most 512 bytes.
pub(super) const fn patterns(about: About, shape: &'static str) -> List {
    List {
        about,
        shape,
        items_max: 256,
        item_bytes_max: 512,
        disclosure: Disclosure::Open,
    }
}
