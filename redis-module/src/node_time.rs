//! This node's clock, which starts at zero when the module is loaded.
//!
//! Invariant: it never goes back. A period in which the process was suspended does not count: see [`NodeClock`].

use std::time::Instant;

use mooring_session::clock::NodeClock;
use mooring_session::time::{Millis, Monotonic};

/// The clock of this node: see [`NodeClock`].
pub(crate) struct NodeTime {
    /// When the module was loaded.
    started: Instant,
    clock: NodeClock,
}

impl NodeTime {
    /// Starts at zero, when the module is loaded.
    pub(crate) fn start() -> Self {
        Self {
            started: Instant::now(),
            clock: NodeClock::default(),
        }
    }

    /// Milliseconds since the start, without the time in which the node was suspended. It measures liveness, leases and
    /// timeouts.
    pub(crate) fn now(&self) -> Monotonic {
        self.clock.read(self.real())
    }

    /// The server ticks `hz` times a second from now on, and each tick reads this clock.
    pub(crate) fn expect_ticks(&self, hz: u64) {
        let interval = Millis::new(1_000 / hz.max(1));
        self.clock.expect_reads_every(interval);
    }

    /// The system's monotonic clock, to compare the wall clock with.
    pub(crate) fn real(&self) -> Monotonic {
        let elapsed_ms = self.started.elapsed().as_millis();
        Monotonic::from_ms(u64::try_from(elapsed_ms).unwrap_or(u64::MAX))
    }
}
