//! When the next tick of the housekeeping is due, and the timer that causes it.
//!
//! Invariant: at most one timer is set.

use mooring_session::time::{Millis, Monotonic};

use crate::ffi::{Context, Timer};

/// Ticks of the server that follow the last one sooner are skipped.
const TICK_MIN: Millis = Millis::new(50);

/// When the last tick was, and when the timer causes the next one.
#[derive(Default)]
pub(crate) struct TickSchedule {
    ticked_at: Option<Monotonic>,
    timer: Option<(Monotonic, Timer)>,
}

/// What causes a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TickCause {
    /// The server's own periodic event.
    Server {
        /// Ticks per second.
        hz: u64,
    },
    /// The timer that was set. It fires once.
    Timer,
}

impl TickSchedule {
    /// Begins a tick. Returns false if the server's ticks follow each other too closely.
    pub(crate) fn begin(&mut self, cause: TickCause, mono: Monotonic) -> bool {
        match cause {
            TickCause::Timer => self.timer = None,
            TickCause::Server { .. }
                if self
                    .ticked_at
                    .is_some_and(|then| mono < then.plus(TICK_MIN)) =>
            {
                return false;
            }
            TickCause::Server { .. } => {}
        }
        self.ticked_at = Some(mono);
        true
    }

    /// Sets the timer to `due`, unless it fires earlier already.
    pub(crate) fn set_timer(&mut self, context: &Context, mono: Monotonic, due: Monotonic) {
        if let Some((rings_at, timer)) = &self.timer {
            if *rings_at <= due {
                return;
            }
            context.stop_timer(timer);
        }
        let timer = context.set_timer(due.ms().saturating_sub(mono.ms()));
        self.timer = Some((due, timer));
    }

    /// Stops the timer, so that the module can be unloaded.
    pub(crate) fn stop(&mut self, context: &Context) {
        if let Some((_, timer)) = self.timer.take() {
            context.stop_timer(&timer);
        }
    }
}
