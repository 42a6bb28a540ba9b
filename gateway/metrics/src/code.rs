//! The metrics of code servers.

use std::sync::LazyLock;
use std::time::Duration;

use metrics::{Histogram, counter, gauge, histogram};
use strum::VariantArray as _;

metrics! {
    pub(super) fn describe;
    /// Time of one run, by runtime and outcome; blocked ones count as nothing.
    RUN_SECONDS = histogram("mooring_code_run_duration_seconds");
    /// Time to set up the isolation layers of a run before its program starts.
    START_SECONDS = histogram("mooring_sandbox_start_seconds");
    /// Runs whose program was started, by whether the helper had been started in advance.
    STARTS = counter("mooring_sandbox_starts_total").zero("helper", SandboxHelper::VARIANTS);
    /// Code sessions that this worker has used within their time to live.
    SESSIONS_ACTIVE = gauge("mooring_code_sessions_active").zero();
    /// Sessions opened whose tree of tools was there.
    TREE_HITS = counter("mooring_code_vfs_cache_hits_total").zero();
    /// Sessions opened whose tree of tools had to be made.
    TREE_MISSES = counter("mooring_code_vfs_cache_misses_total").zero();
    /// Code sessions opened, by what was found.
    OPENED = counter("mooring_code_sessions_opened_total");
    /// How long a session's lock was held, by use.
    LOCK_HELD_SECONDS = histogram("mooring_code_lock_held_seconds");
    /// Files of runs that were not kept.
    FILES_REFUSED = counter("mooring_code_files_refused_total").zero();
    /// Runs refused because a principal had too many lately.
    RATE_LIMITED = counter("mooring_code_rate_limited_total").zero();
    /// Directories of expired sessions, by outcome.
    RETIRED = counter("mooring_code_sessions_retired_total").zero("outcome", SessionRetired::VARIANTS);
    /// How long a call waited for its session's turn.
    TURN_WAIT_SECONDS = histogram("mooring_turn_wait_seconds");
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum RunOutcome {
    /// It exited with code 0.
    Completed,
    /// It exited with another code, or by a signal of its own.
    Failed,
    /// It took longer than it may.
    TimedOut,
    /// It was looked at and not run.
    Blocked,
    /// It used more processor time or memory than it may, or was asked to stop.
    Killed,
}

/// When the helper of a run was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum SandboxHelper {
    /// In advance.
    Warm,
    /// For the run.
    Cold,
}

/// The purpose for which a session's lock was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum LockUse {
    /// To initialize, replace or remove the session's directory.
    Open,
    /// For a run and its commit.
    Run,
    /// To write a file.
    Write,
}

/// The outcome of one attempt to clean up after a code session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum SessionRetired {
    /// Its directory is gone, or there was none, and its tombstone is dropped.
    Cleaned,
    /// The directory is still in use: tried again.
    InUse,
    /// Its client came back meanwhile, or another worker took it over.
    Stale,
    /// The volume or the store refused: tried again.
    Failed,
    /// Swept without the store: unused for twice its time to live.
    Swept,
}

/// A run has ended, or was blocked. `runtime` is one of a fixed few.
pub fn code_run(runtime: &'static str, outcome: RunOutcome, took: Duration) {
    histogram!(RUN_SECONDS, "runtime" => runtime, "outcome" => <&'static str>::from(outcome))
        .record(took.as_secs_f64());
}

/// A run's program was started.
pub fn sandbox_start(helper: SandboxHelper, took: Duration) {
    counter!(STARTS, "helper" => <&'static str>::from(helper)).increment(1);
    histogram!(START_SECONDS).record(took.as_secs_f64());
}

/// A session was opened, and its tools were there or had to be made.
pub fn code_tools_tree(was_made: bool) {
    counter!(if was_made { TREE_MISSES } else { TREE_HITS }).increment(1);
}

/// A session was opened. `found` is one of a fixed few.
pub fn code_session_opened(found: &'static str) {
    counter!(OPENED, "found" => found).increment(1);
}

/// A session's lock was released.
pub fn code_lock_held(used_for: LockUse, held: Duration) {
    histogram!(LOCK_HELD_SECONDS, "use" => <&'static str>::from(used_for))
        .record(held.as_secs_f64());
}

/// So many files of a run were not kept.
pub fn code_files_refused(count: u64) {
    counter!(FILES_REFUSED).increment(count);
}

/// A run was refused by the rate limit.
pub fn code_rate_limited() {
    counter!(RATE_LIMITED).increment(1);
}

/// Attempts to clean up after code sessions.
pub fn code_session_retired(outcome: SessionRetired, count: usize) {
    counter!(RETIRED, "outcome" => <&'static str>::from(outcome))
        .increment(u64::try_from(count).unwrap_or(u64::MAX));
}

/// How long a call waited for its turn.
pub fn turn_wait(waited: Duration) {
    static HISTOGRAM: LazyLock<Histogram> = LazyLock::new(|| histogram!(TURN_WAIT_SECONDS));
    HISTOGRAM.record(waited.as_secs_f64());
}

/// Sets the gauges that are computed at each scrape.
pub fn code_snapshot(sessions: usize) {
    #[allow(
        clippy::cast_precision_loss,
        reason = "a count of sessions is far below 2^52"
    )]
    gauge!(SESSIONS_ACTIVE).set(sessions as f64);
}
