//! What is taken of a file, what is skipped and why, and that a file is written whole.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod reading;
mod writing;

use std::time::Duration;

use super::{Entry, ReadError, SessionFileContents, parse};

/// 2026-01-15T00:00:00Z.
const NOW_MS: u64 = 1_768_435_200_000;
const HOUR_MS: u64 = 3_600_000;
const TTL: Duration = Duration::from_secs(24 * 3_600);

fn read(text: &str) -> Result<SessionFileContents, ReadError> {
    parse(text.as_bytes(), NOW_MS, TTL)
}

fn entry(parent: &str, agent_session: &str, updated_at_ms: u64) -> Entry {
    Entry {
        parent: parent.to_owned(),
        agent_session: agent_session.to_owned(),
        updated_at_ms,
    }
}
