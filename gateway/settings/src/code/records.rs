//! What is kept of runs and of the tools of other servers, and for how long.

use std::time::Duration;

use crate::rows::settings;

/// 16 TiB.
const MIB_MAX: u64 = 16 * 1024 * 1024;

settings! {
    /// What is recorded of runs, and how long it is kept.
    pub struct RecordSettings {
        /// Whether runs may be replayed.
        pub replay_enabled: bool = Switch("code.replay_enabled", true).contextforge_name("CODE_EXECUTION_REPLAY_ENABLED"),
        /// Maximum characters of a run's stdout, and of its stderr, that its record keeps.
        pub persisted_output_chars_max: usize =
            Integer("code.max_persisted_output_chars", "characters", 200_000, 1000..=10_000_000)
            .contextforge_name("CODE_EXECUTION_MAX_PERSISTED_OUTPUT_CHARS"),
        /// Maximum run records of one server; the oldest are deleted first.
        pub runs_kept_max: usize = Integer("code.runs_kept_max", "runs", 10_000, 1..=1_000_000),
        /// How long the record of a run is kept after the start of the run.
        pub runs_kept: Duration = Integer("code.runs_kept_days", "days", 30, 1..=3650),
        /// Maximum size of one server's run records on the volume; the oldest finished ones are deleted first.
        pub runs_kept_bytes: u64 = Integer("code.runs_kept_mb", "MiB", 1024, 1..=MIB_MAX),
        /// Maximum size of one user's run records, as part of that.
        pub user_runs_kept_bytes: u64 = Integer("code.runs_kept_mb_per_user", "MiB", 256, 1..=MIB_MAX),
        /// Free space of the volume below which runs are recorded without code, output and bodies of calls; the record
        /// says so. 0 means no minimum.
        pub records_free_bytes_min: u64 = Integer("code.records_min_free_mb", "MiB", 256, 0..=MIB_MAX),
        /// How long the tool lists of other servers are cached. Those of kind `stdio` are cached for at least an hour,
        /// because a refresh starts the program.
        pub catalog_ttl: Duration = Integer("code.catalog_ttl_seconds", "seconds", 60, 1..=86_400),
    }
}
