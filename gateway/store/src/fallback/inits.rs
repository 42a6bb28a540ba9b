//! Initialize params in memory: one JSON text per client build, bounded.

use std::collections::HashMap;

use mooring_session::time::{Millis, Timestamp};

use crate::key::InitDigest;

/// Most client builds in memory. Beyond it those that expire first are dropped.
const INITS_MAX: usize = 1_024;

/// Initialize params by digest, each until its own deadline.
#[derive(Debug, Default)]
pub(super) struct Inits(HashMap<InitDigest, Init>);

/// The params of one client build.
#[derive(Clone, Debug)]
struct Init {
    /// As the client sent them.
    json: Box<str>,
    /// From then on they are gone.
    lapses_at: Timestamp,
}

impl Inits {
    pub(super) fn put(&mut self, digest: &InitDigest, json: &str, lapses_at: Timestamp) {
        if self.0.len() >= INITS_MAX
            && !self.0.contains_key(digest)
            && let Some(first) = self.first_to_lapse()
        {
            self.0.remove(&first);
        }
        let json = json.into();
        self.0.insert(digest.clone(), Init { json, lapses_at });
    }

    pub(super) fn delete(&mut self, digest: &InitDigest) {
        self.0.remove(digest);
    }

    pub(super) fn get(&self, digest: &InitDigest, now: Timestamp) -> Option<&str> {
        self.0
            .get(digest)
            .filter(|init| now < init.lapses_at)
            .map(|init| &*init.json)
    }

    /// The params and how much longer they are kept.
    pub(super) fn rest(&self, digest: &InitDigest, now: Timestamp) -> Option<(Box<str>, Millis)> {
        let init = self.0.get(digest).filter(|init| now < init.lapses_at)?;
        let rest = init.lapses_at.unix_ms().saturating_sub(now.unix_ms());
        Some((init.json.clone(), Millis::new(rest)))
    }

    fn first_to_lapse(&self) -> Option<InitDigest> {
        self.0
            .iter()
            .min_by_key(|(_, init)| init.lapses_at)
            .map(|(digest, _)| digest.clone())
    }
}
