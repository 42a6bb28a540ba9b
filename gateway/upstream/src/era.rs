//! Which era of MCP an upstream server serves: with sessions, or without (MCP 2026-07-28, versioning).
//!
//! Invariant: what was found holds until there is evidence of something else; that a server has sessions, for a minute.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a server counts as one with sessions: it may be replaced by one without.
const LEGACY_KEPT: Duration = Duration::from_secs(60);
/// How long a server that gave no evidence is not asked again.
const UNCLEAR_KEPT: Duration = Duration::from_secs(1);

/// How often what was found is doubted at most: what one user sends must not have the server asked all the time.
const DOUBTED_EVERY: Duration = Duration::from_secs(5);

/// The era of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEra {
    /// With sessions, which begin with `initialize`: 2025-11-25 and earlier.
    Legacy,
    /// Without: 2026-07-28.
    Modern,
}

/// What a server was found to serve.
#[derive(Debug, Default)]
pub struct EraLog {
    found: Mutex<Option<(Option<ServerEra>, Instant)>>,
    doubted_at: Mutex<Option<Instant>>,
    /// Held while it is asked.
    pub(crate) asking: tokio::sync::Mutex<()>,
}

impl EraLog {
    /// What was found, while it holds: none if the server has to be asked, `Some(None)` if it was asked in vain just now.
    pub(crate) fn get(&self) -> Option<Option<ServerEra>> {
        let found = *self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let (era, at) = found?;
        let kept = match era {
            Some(ServerEra::Modern) => return Some(era),
            Some(ServerEra::Legacy) => LEGACY_KEPT,
            None => UNCLEAR_KEPT,
        };
        (at.elapsed() < kept).then_some(era)
    }

    pub(crate) fn set(&self, era: Option<ServerEra>) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        *found = Some((era, Instant::now()));
    }

    /// A reply was that of a server of the other era, so the server is asked again, unless it was just now.
    pub fn doubt(&self) {
        let mut doubted_at = (self.doubted_at.lock()).unwrap_or_else(PoisonError::into_inner);
        if doubted_at.is_some_and(|at| at.elapsed() < DOUBTED_EVERY) {
            return;
        }
        *doubted_at = Some(Instant::now());
        drop(doubted_at);
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_kept_until_it_is_doubted() {
        let log = EraLog::default();
        assert_eq!(log.get(), None);
        log.set(Some(ServerEra::Modern));
        assert_eq!(log.get(), Some(Some(ServerEra::Modern)));
        log.doubt();
        assert_eq!(log.get(), None);
        log.set(None);
        assert_eq!(log.get(), Some(None));
        log.set(Some(ServerEra::Modern));
        log.doubt();
        assert_eq!(
            log.get(),
            Some(Some(ServerEra::Modern)),
            "it was asked just now"
        );
        let before = Instant::now().checked_sub(DOUBTED_EVERY);
        *log.doubted_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = before;
        log.doubt();
        assert_eq!(log.get(), None);
    }
}
