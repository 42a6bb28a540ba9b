//! The wall clock, and the clocks of stores that measure time themselves.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use mooring_session::time::{Monotonic, Timestamp};
use time::{OffsetDateTime, PrimitiveDateTime};

/// The clocks of a store. A command reads each at most once.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// The machine's clocks; the monotonic one counts from the creation of the store.
    System {
        /// The origin of the monotonic clock.
        origin: Instant,
    },
    /// A clock that tests turn by hand.
    #[cfg(test)]
    Manual(std::sync::Arc<ManualClock>),
}

/// Both clocks, as a test sets them.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct ManualClock {
    unix_ms: std::sync::atomic::AtomicU64,
    mono_ms: std::sync::atomic::AtomicU64,
}

#[cfg(test)]
impl ManualClock {
    const ORDER: std::sync::atomic::Ordering = std::sync::atomic::Ordering::Relaxed;

    /// The wall clock shows this moment, and the monotonic one the same number.
    pub(crate) fn starting_at(unix_ms: u64) -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self {
            unix_ms: unix_ms.into(),
            mono_ms: unix_ms.into(),
        })
    }

    /// Time passes.
    pub(crate) fn pass(&self, ms: u64) {
        self.unix_ms.fetch_add(ms, Self::ORDER);
        self.mono_ms.fetch_add(ms, Self::ORDER);
    }

    /// The wall clock is set, and no time passes.
    pub(crate) fn set_wall(&self, unix_ms: u64) {
        self.unix_ms.store(unix_ms, Self::ORDER);
    }
}

impl Clock {
    /// The machine's clocks.
    pub(crate) fn system() -> Self {
        Self::System {
            origin: Instant::now(),
        }
    }

    /// The wall clock. A time before 1970 reads as 1970.
    pub(crate) fn now(&self) -> Timestamp {
        let unix_ms = match self {
            Self::System { .. } => unix_now_ms(),
            #[cfg(test)]
            Self::Manual(clock) => clock.unix_ms.load(ManualClock::ORDER),
        };
        Timestamp::from_unix_ms(unix_ms)
    }

    /// The monotonic clock.
    pub(crate) fn mono(&self) -> Monotonic {
        let ms = match self {
            Self::System { origin } => millis(origin.elapsed().as_millis()),
            #[cfg(test)]
            Self::Manual(clock) => clock.mono_ms.load(ManualClock::ORDER),
        };
        Monotonic::from_ms(ms)
    }
}

/// The wall clock in milliseconds since 1970. A time before 1970 reads as 1970.
#[must_use]
pub fn unix_now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| millis(elapsed.as_millis()))
}

fn millis(ms: u128) -> u64 {
    u64::try_from(ms).unwrap_or(u64::MAX)
}

/// A moment in milliseconds since 1970 as RFC 3339 has it, in UTC: `2026-02-01T12:34:56.789Z`. The last moment of the
/// year 9999 for a later one.
pub fn rfc3339(unix_ms: u64) -> String {
    let moment = OffsetDateTime::from_unix_timestamp_nanos(i128::from(unix_ms) * 1_000_000);
    let moment = moment.unwrap_or(PrimitiveDateTime::MAX.assume_utc());
    let (date, (hour, minute, second, ms)) = (moment.date(), moment.time().as_hms_milli());
    format!("{date}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn moments_read_as_date_says() {
        for (unix_ms, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_709_251_200_000, "2024-03-01T00:00:00.000Z"),
            (1_767_225_599_001, "2025-12-31T23:59:59.001Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(unix_ms), expected);
        }
    }
}
