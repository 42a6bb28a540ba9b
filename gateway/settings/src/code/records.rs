//! What is kept of runs and of the tools of other servers, and for how long.

use std::time::Duration;

use crate::reader::Reader;
use crate::setting::{Integer, Setting, SettingInfo, Switch};

const MIB: u64 = 1024 * 1024;

const REPLAY_ENABLED: Switch = Switch {
    about: SettingInfo::new("code.replay_enabled", "Whether runs may be replayed.")
        .seed("CODE_EXECUTION_REPLAY_ENABLED"),
    default: true,
};

const MAX_PERSISTED_OUTPUT_CHARS: Integer = Integer {
    about: SettingInfo::new(
        "code.max_persisted_output_chars",
        "Most characters of a run's output, and of its error output, that its record keeps.",
    )
    .seed("CODE_EXECUTION_MAX_PERSISTED_OUTPUT_CHARS"),
    unit: "characters",
    default: 200_000,
    least: 1000,
    most: 10_000_000,
};

const RUNS_KEPT_MAX: Integer = Integer {
    about: SettingInfo::new(
        "code.runs_kept_max",
        "Of how many runs of one server the records are kept; the oldest go first.",
    ),
    unit: "runs",
    default: 10_000,
    least: 1,
    most: 1_000_000,
};

const RUNS_KEPT_DAYS: Integer = Integer {
    about: SettingInfo::new(
        "code.runs_kept_days",
        "How long the record of a run is kept after the run began.",
    ),
    unit: "days",
    default: 30,
    least: 1,
    most: 3650,
};

const RUNS_KEPT_MB: Integer = Integer {
    about: SettingInfo::new(
        "code.runs_kept_mb",
        "How much the records of one server's runs take on the volume; the oldest finished ones go first.",
    ),
    unit: "MiB",
    default: 1024,
    least: 1,
    most: 16 * 1024 * 1024,
};

const RUNS_KEPT_MB_PER_USER: Integer = Integer {
    about: SettingInfo::new(
        "code.runs_kept_mb_per_user",
        "How much the records of one user's runs take of that.",
    ),
    unit: "MiB",
    default: 256,
    least: 1,
    most: 16 * 1024 * 1024,
};

const RECORDS_MIN_FREE_MB: Integer = Integer {
    about: SettingInfo::new(
        "code.records_min_free_mb",
        "Free space of the volume below which runs are recorded without code, output and bodies of calls; the record says \
         so. 0 is no floor.",
    ),
    unit: "MiB",
    default: 256,
    least: 0,
    most: 16 * 1024 * 1024,
};

const CATALOG_TTL_SECONDS: Integer = Integer {
    about: SettingInfo::new(
        "code.catalog_ttl_seconds",
        "How long what other servers said of their tools is believed before they are asked again.",
    ),
    unit: "seconds",
    default: 60,
    least: 1,
    most: 86_400,
};

/// The rows of `[code]`.
pub(super) const SETTINGS: &[Setting] = &[
    Setting::Switch(&REPLAY_ENABLED),
    Setting::Integer(&MAX_PERSISTED_OUTPUT_CHARS),
    Setting::Integer(&RUNS_KEPT_MAX),
    Setting::Integer(&RUNS_KEPT_DAYS),
    Setting::Integer(&RUNS_KEPT_MB),
    Setting::Integer(&RUNS_KEPT_MB_PER_USER),
    Setting::Integer(&RECORDS_MIN_FREE_MB),
    Setting::Integer(&CATALOG_TTL_SECONDS),
];

/// What is recorded of runs, and how long it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordSettings {
    pub(super) replay_enabled: bool,
    pub(super) persisted_output_chars_max: usize,
    pub(super) runs_kept_max: usize,
    pub(super) runs_kept_days: u32,
    pub(super) runs_kept_bytes: u64,
    pub(super) user_runs_kept_bytes: u64,
    pub(super) records_free_bytes_min: u64,
    pub(super) catalog_ttl: Duration,
}

pub(super) fn parse(reader: &mut Reader<'_>) -> RecordSettings {
    let mut count = |setting| usize::try_from(reader.integer(setting)).unwrap_or(usize::MAX);
    let persisted_output_chars_max = count(&MAX_PERSISTED_OUTPUT_CHARS);
    let runs_kept_max = count(&RUNS_KEPT_MAX);
    let mut bytes = |setting| reader.integer(setting) * MIB;
    let runs_kept_bytes = bytes(&RUNS_KEPT_MB);
    let user_runs_kept_bytes = bytes(&RUNS_KEPT_MB_PER_USER);
    let records_free_bytes_min = bytes(&RECORDS_MIN_FREE_MB);
    RecordSettings {
        runs_kept_bytes,
        user_runs_kept_bytes,
        records_free_bytes_min,
        replay_enabled: reader.switch(&REPLAY_ENABLED),
        persisted_output_chars_max,
        runs_kept_max,
        runs_kept_days: u32::try_from(reader.integer(&RUNS_KEPT_DAYS)).unwrap_or(u32::MAX),
        catalog_ttl: Duration::from_secs(reader.integer(&CATALOG_TTL_SECONDS)),
    }
}
