//! The clocks of the stores that keep time themselves.

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
            Self::System { .. } => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |elapsed| millis(elapsed.as_millis())),
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

fn millis(ms: u128) -> u64 {
    u64::try_from(ms).unwrap_or(u64::MAX)
}
