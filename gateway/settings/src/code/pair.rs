//! Settings that exist twice: in `[code]`, as the default of all servers, and in a server's `sandbox_policy`.

use crate::setting::{Disclosure, Integer, List, SettingInfo, Switch};

/// One setting at both of its places.
pub(super) struct Pair<K> {
    /// In `[code]`.
    pub(super) standard: K,
    /// In a server's `sandbox_policy`.
    pub(super) own: K,
}

/// A switch at both places.
pub(super) const fn switches(
    standard: SettingInfo,
    own: SettingInfo,
    default: bool,
) -> Pair<Switch> {
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
    standard: SettingInfo,
    own: SettingInfo,
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
pub(super) const fn lists(
    standard: SettingInfo,
    own: SettingInfo,
    shape: &'static str,
) -> Pair<List> {
    Pair {
        standard: patterns(standard, shape),
        own: patterns(own, shape),
    }
}

/// A list of patterns: at most 256 of at most 512 bytes.
pub(super) const fn patterns(about: SettingInfo, shape: &'static str) -> List {
    List {
        about,
        shape,
        items_max: 256,
        item_bytes_max: 512,
        disclosure: Disclosure::Open,
    }
}
