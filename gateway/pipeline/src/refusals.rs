//! The latest refusals of each user, with the limit or the right that decided: for operators.
//!
//! Invariants: users are known by their digests; only names that the settings have are kept of a request, and the names of
//! tools; of each user the latest few are kept, of all users those that were refused last.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use mooring_usage::BoundedCache;

/// Most users whose refusals are kept.
const USERS_MAX: usize = 2_048;
/// Most refusals of one user that are kept.
const USER_REFUSALS_MAX: usize = 8;
/// Most bytes that are kept of a tool's name.
const TOOL_BYTES_MAX: usize = 96;

/// Why a request was refused, and nothing executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalCause {
    /// The server of the request, if it names one that exists.
    pub server: Option<Box<str>>,
    /// The tool, if only that was refused.
    pub tool: Option<Box<str>>,
    /// The limit, as the setting is called, or the rule or right that decided.
    pub reason: Box<str>,
}

/// Equal refusals of a user in a row.
#[derive(Clone, Debug)]
struct Refusals {
    cause: RefusalCause,
    times: u64,
    last_at: Instant,
}

/// Refusals as they are shown.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
pub struct RefusalView {
    /// The server of the request, if it names one that exists.
    pub server: Option<Box<str>>,
    /// The tool, if only that was refused.
    pub tool: Option<Box<str>>,
    /// The limit, as the setting is called, or the rule or right that decided.
    pub reason: Box<str>,
    /// How often in a row.
    pub times: u64,
    /// How long ago the last was, in milliseconds.
    pub ago_ms: u64,
}

/// The latest refusals of each user, by their digests.
#[derive(Debug)]
pub(crate) struct LatestRefusals(Mutex<BoundedCache<Box<str>, VecDeque<Refusals>>>);

impl RefusalCause {
    /// This reason at a server.
    pub(crate) fn at(server: &str, reason: impl Into<Box<str>>) -> Self {
        Self {
            server: Some(server.into()),
            tool: None,
            reason: reason.into(),
        }
    }

    /// For a tool of the server.
    pub(crate) fn of_tool(self, tool: &str) -> Self {
        let end = tool.floor_char_boundary(TOOL_BYTES_MAX);
        Self {
            tool: tool.get(..end).map(Into::into),
            ..self
        }
    }
}

impl Default for LatestRefusals {
    fn default() -> Self {
        Self(Mutex::new(BoundedCache::new(USERS_MAX)))
    }
}

impl LatestRefusals {
    /// Notes that a request of the user with this digest was refused.
    pub(crate) fn note(&self, user: &str, cause: RefusalCause) {
        let now = Instant::now();
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut latest = users.remove(user).unwrap_or_default();
        match latest.back_mut().filter(|last| last.cause == cause) {
            Some(last) => {
                last.times = last.times.saturating_add(1);
                last.last_at = now;
            }
            None => {
                if latest.len() >= USER_REFUSALS_MAX {
                    latest.pop_front();
                }
                latest.push_back(Refusals {
                    cause,
                    times: 1,
                    last_at: now,
                });
            }
        }
        users.insert(user.into(), latest);
    }

    /// The refusals of the user with this digest, the latest first.
    pub(crate) fn of(&self, user: &str) -> Vec<RefusalView> {
        let users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let latest = users.peek(user).into_iter().flatten().rev();
        let now = Instant::now();
        latest.map(|refusals| refusals.view(now)).collect()
    }
}

impl Refusals {
    fn view(&self, now: Instant) -> RefusalView {
        let RefusalCause {
            server,
            tool,
            reason,
        } = self.cause.clone();
        let ago: Duration = now.saturating_duration_since(self.last_at);
        RefusalView {
            server,
            tool,
            reason,
            times: self.times,
            ago_ms: u64::try_from(ago.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn the_latest_refusals_of_a_user_are_kept_and_no_more() {
        let refusals = LatestRefusals::default();
        for _ in 0..3 {
            refusals.note(
                "aa",
                RefusalCause::at("tools", "no rule of servers.allow fits"),
            );
        }
        refusals.note("aa", RefusalCause::at("tools", "unlisted").of_tool("wipe"));
        let shown = refusals.of("aa");
        let reasons: Vec<_> = shown.iter().map(|one| (&*one.reason, one.times)).collect();
        assert_eq!(
            reasons,
            [("unlisted", 1), ("no rule of servers.allow fits", 3)]
        );
        assert_eq!(shown.first().unwrap().tool.as_deref(), Some("wipe"));
        assert!(refusals.of("bb").is_empty());

        for number in 0..100 {
            refusals.note("aa", RefusalCause::at("tools", format!("{number}")));
            refusals.note(&format!("user {number}"), RefusalCause::at("tools", "x"));
        }
        assert_eq!(refusals.of("aa").len(), USER_REFUSALS_MAX);
        assert_eq!(&*refusals.of("aa").first().unwrap().reason, "99");
    }
}
