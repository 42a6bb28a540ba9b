//! The wall clock, and the clocks of the stores that keep time themselves.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use mooring_session::time::{Monotonic, Timestamp};

/// Where a store reads the time. One reading of each per command.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// The machine's clocks; the monotonic one counts from the moment the store was made.
    System {
        /// The origin of the monotonic clock.
        origin: Instant,
    },
    /// A clock that tests turn by hand.
    #[cfg(test)]
    Manual(std::sync::Arc<std::sync::atomic::AtomicU64>),
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
            Self::Manual(ms) => ms.load(std::sync::atomic::Ordering::Relaxed),
        };
        Timestamp::from_unix_ms(unix_ms)
    }

    /// The monotonic clock.
    pub(crate) fn mono(&self) -> Monotonic {
        let ms = match self {
            Self::System { origin } => millis(origin.elapsed().as_millis()),
            #[cfg(test)]
            Self::Manual(ms) => ms.load(std::sync::atomic::Ordering::Relaxed),
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

const MS_PER_DAY: u64 = 24 * 60 * 60 * 1_000;

/// The moment `unix_ms` milliseconds after 1970 as RFC 3339 has it, in UTC: `2026-02-01T12:34:56.789Z`.
pub fn rfc3339(unix_ms: u64) -> String {
    let (year, month, day) = civil(unix_ms / MS_PER_DAY);
    let of_day = unix_ms % MS_PER_DAY;
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, ms) = (of_day / 1_000 % 60, of_day % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Year, month and day of the day that is this many days after 1 January 1970, in the Gregorian calendar.
///
/// Years are counted from March, so that the leap day is the last of its year, within eras of 400 years, each of
/// 146 097 days; the months from March on have 153 days in every five.
fn civil(days_since_1970: u64) -> (u64, u64, u64) {
    let days = days_since_1970 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let (month, later) = if month_from_march < 10 {
        (month_from_march + 3, 0)
    } else {
        (month_from_march - 9, 1)
    };
    (era * 400 + year_of_era + later, month, day)
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
