//! The boundary where panics end, and the rebuild that follows one.
//!
//! Invariant: no panic unwinds into Redis, which would abort it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;

/// Set if the indexes may be wrong: after a panic, or an event that could not be processed.
static NEEDS_REBUILD: AtomicBool = AtomicBool::new(false);

/// Makes the next tick rebuild all indexes from scratch.
pub(crate) fn schedule_rebuild() {
    NEEDS_REBUILD.store(true, Ordering::Relaxed);
}

/// Whether a rebuild was scheduled since this was asked last.
pub(crate) fn take_scheduled_rebuild() -> bool {
    NEEDS_REBUILD.swap(false, Ordering::Relaxed)
}

/// Runs a step of a callback that cannot return a failure. The panic hook logs a panic.
pub(crate) fn guard_callback(step: impl FnOnce()) {
    let _ = guard(|| {
        step();
        Ok(())
    });
}

/// The only place that catches panics.
pub(crate) fn guard<T>(step: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // A panic may leave only the module's in-memory state incomplete, and the derived parts of it are rebuilt. The
    // record is written at once, after the rule has decided.
    catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|_| {
        schedule_rebuild();
        Err(Failure::Internal)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "the panic is what is tested")]
    use super::*;

    #[test]
    fn a_panic_becomes_an_internal_error() {
        let result: Result<(), _> = guard(|| panic!("a defect"));
        assert_eq!(
            result.map_err(|failure| failure.to_string()),
            Err("ERR internal error".to_owned())
        );
    }
}
