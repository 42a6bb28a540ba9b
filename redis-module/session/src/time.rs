//! Time as an argument: two clocks that cannot be mixed up.
//!
//! [`Timestamp`] is the wall clock and may be stored; [`Monotonic`] is a node's own clock and must not be.

use std::fmt;
use std::time::Duration;

/// A moment on the wall clock, in milliseconds since the Unix epoch. All arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The moment `unix_ms` milliseconds after the Unix epoch.
    #[must_use]
    pub const fn from_unix_ms(unix_ms: u64) -> Self {
        Self(unix_ms)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn unix_ms(self) -> u64 {
        self.0
    }

    /// This moment `duration` later.
    #[must_use]
    pub const fn plus(self, duration: Millis) -> Self {
        Self(self.0.saturating_add(duration.0))
    }

    /// The lowest generation, epoch or turn number that may be assigned at this moment: microseconds since the Unix
    /// epoch. A node that assigns fewer than a million numbers a second is never ahead of its clock, so it does not
    /// repeat the numbers that it forgets at a restart or a failover. Below 2^53 until the year 2255.
    #[must_use]
    pub const fn least_number(self) -> u64 {
        self.0.saturating_mul(1_000)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A moment on one node's monotonic clock, in milliseconds since an origin of that node's choosing.
/// It means nothing on another node or after a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Monotonic(u64);

impl Monotonic {
    /// The moment `ms` milliseconds after the node's origin.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the node's origin.
    #[must_use]
    pub const fn ms(self) -> u64 {
        self.0
    }

    /// This moment `duration` later.
    #[must_use]
    pub const fn plus(self, duration: Millis) -> Self {
        Self(self.0.saturating_add(duration.0))
    }
}

/// A length of time in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(u64);

impl Millis {
    /// `ms` milliseconds, unchecked against any limit.
    #[must_use]
    pub const fn new(ms: u64) -> Self {
        Self(ms)
    }

    /// The number of milliseconds.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// This length `factor` times. Saturates.
    #[must_use]
    pub const fn times(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }

    /// One `parts`-th of this length; zero parts count as one.
    #[must_use]
    pub const fn divided_by(self, parts: u64) -> Self {
        Self(self.0 / if parts == 0 { 1 } else { parts })
    }
}

/// Whole milliseconds. Saturates.
impl From<Duration> for Millis {
    fn from(length: Duration) -> Self {
        Self(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_taken_in_whole_milliseconds() {
        for (length, ms) in [
            (Duration::ZERO, 0),
            (Duration::from_micros(999), 0),
            (Duration::from_micros(1_999), 1),
            (Duration::from_secs(2), 2_000),
            (Duration::MAX, u64::MAX),
        ] {
            assert_eq!(Millis::from(length).get(), ms, "{length:?}");
        }
    }
}
