//! The settings of the rules.

use crate::time::Millis;

/// The settings of the rules. Ranges and defaults are those of the module's settings of the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// The record outlives its last use by this many times its TTL. 1 to 10.
    pub tombstone_ratio: u64,
    /// The record outlives its expiry or end by at least this long.
    pub tombstone_min: Millis,
    /// A touch is written when one `touch_step`-th of the TTL has passed since the last written one. 1 to 1000.
    pub touch_step: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            tombstone_ratio: 2,
            tombstone_min: Millis::new(600_000),
            touch_step: 16,
        }
    }
}
