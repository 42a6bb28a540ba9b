//! The values of settings: integers and switches, which commands read and the server sets.
//!
//! Invariant: an integer is always within its range.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// One integer setting.
pub(crate) struct Setting {
    /// Its name without the module's.
    pub(crate) name: &'static CStr,
    /// What it does, with its unit; for the reference page.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "a test makes the reference page")
    )]
    pub(crate) meaning: &'static str,
    /// Its value if it is not set.
    pub(crate) default: i64,
    /// The least value allowed.
    pub(crate) least: i64,
    /// The greatest value allowed.
    pub(crate) most: i64,
    value: AtomicI64,
}

/// One setting that is on or off.
pub(crate) struct SwitchSetting {
    /// Its name without the module's.
    pub(crate) name: &'static CStr,
    /// What it does while it is on; for the reference page.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "a test makes the reference page")
    )]
    pub(crate) meaning: &'static str,
    value: AtomicBool,
}

impl SwitchSetting {
    /// A setting that is off.
    pub(crate) const fn new(name: &'static CStr, meaning: &'static str) -> Self {
        Self {
            name,
            meaning,
            value: AtomicBool::new(false),
        }
    }

    /// Whether it is on.
    pub(crate) fn get(&self) -> bool {
        self.value.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub(crate) fn set(&self, is_on: bool) {
        self.value.store(is_on, Ordering::Relaxed);
    }
}

impl Setting {
    /// A setting with its default value.
    pub(crate) const fn new(
        name: &'static CStr,
        default: i64,
        least: i64,
        most: i64,
        meaning: &'static str,
    ) -> Self {
        assert!(least >= 0 && least <= default && default <= most);
        Self {
            name,
            meaning,
            default,
            least,
            most,
            value: AtomicI64::new(default),
        }
    }

    /// Its value.
    pub(crate) fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }

    /// Sets it. A value out of range is clamped; Redis refuses such values before.
    pub(crate) fn set(&self, value: i64) {
        self.value
            .store(value.clamp(self.least, self.most), Ordering::Relaxed);
    }

    /// Its value, which is never negative.
    pub(crate) fn unsigned(&self) -> u64 {
        self.get().unsigned_abs()
    }
}
