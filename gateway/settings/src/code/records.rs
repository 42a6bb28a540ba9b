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
        /// Most characters of a run's output, and of its error output, that its record keeps.
        pub persisted_output_chars_max: usize =
            Integer("code.max_persisted_output_chars", "characters", 200_000, 1000..=10_000_000)
            .contextforge_name("CODE_EXECUTION_MAX_PERSISTED_OUTPUT_CHARS"),
        /// Of how many runs of one server the records are kept; the oldest go first.
        pub runs_kept_max: usize = Integer("code.runs_kept_max", "runs", 10_000, 1..=1_000_000),
        /// How long the record of a run is kept after the run began.
        pub runs_kept: Duration = Integer("code.runs_kept_days", "days", 30, 1..=3650),
        /// How much the records of one server's runs take on the volume; the oldest finished ones go first.
        pub runs_kept_bytes: u64 = Integer("code.runs_kept_mb", "MiB", 1024, 1..=MIB_MAX),
        /// How much the records of one user's runs take of that.
        pub user_runs_kept_bytes: u64 = Integer("code.runs_kept_mb_per_user", "MiB", 256, 1..=MIB_MAX),
        /// Free space of the volume below which runs are recorded without code, output and bodies of calls; the record
        /// says so. 0 is no floor.
        pub records_free_bytes_min: u64 = Integer("code.records_min_free_mb", "MiB", 256, 0..=MIB_MAX),
        /// How long what other servers said of their tools is believed before they are asked again. A server of kind `stdio`
        /// is believed for an hour at least: asking it starts its program.
        pub catalog_ttl: Duration = Integer("code.catalog_ttl_seconds", "seconds", 60, 1..=86_400),
    }
}
