//! The numbers of a policy. Each stands in `[code]` as the default of all servers, under the name that ContextForge's
//! environment gives it, and in a server's `sandbox_policy`, where a pasted policy may keep it under `limits`.

use std::time::Duration;

use mooring_sandbox::Limits;

use crate::reader::Reader;
use crate::setting::{Integer, Setting, SettingInfo};

/// One number of a policy, at both places where it can be written.
struct Limit {
    /// In `[code]`.
    standard: Integer,
    /// In a server's `sandbox_policy`.
    own: Integer,
}

/// What a [`Limit`] is called at its two places.
struct Names {
    standard: &'static str,
    own: &'static str,
    nested: &'static [&'static str],
    unset: &'static str,
}

/// The [`Names`] of a limit: `[code]` has it as `default_<name>`, unless the first argument says otherwise.
macro_rules! names {
    ($name:literal) => {
        names!(concat!("code.default_", $name), $name)
    };
    ($standard:expr, $name:literal) => {
        Names {
            standard: $standard,
            own: concat!("servers.sandbox_policy.", $name),
            nested: &[concat!("sandbox_policy.limits.", $name)],
            unset: concat!("as `", $standard, "` says"),
        }
    };
}

impl Limit {
    const fn new(
        names: Names,
        meaning: &'static str,
        unit: &'static str,
        default: u64,
        (least, most): (u64, u64),
    ) -> Self {
        Self {
            standard: Integer {
                about: SettingInfo::new(names.standard, meaning),
                unit,
                default,
                least,
                most,
            },
            own: Integer {
                about: SettingInfo::new(names.own, meaning)
                    .aliases(names.nested)
                    .unset(names.unset),
                unit,
                default,
                least,
                most,
            },
        }
    }

    /// Accepts a name of ContextForge's environment as well.
    const fn seed(mut self, name: &'static str) -> Self {
        self.standard.about = self.standard.about.seed(name);
        self
    }

    /// Says what leaving it out of `[code]` means.
    const fn unset(mut self, meaning: &'static str) -> Self {
        self.standard.about = self.standard.about.unset(meaning);
        self
    }
}

const WALL_TIME_MS: Limit = Limit::new(
    names!("max_execution_time_ms"),
    "How long one run may take; then all its processes are killed. A call may ask for less.",
    "milliseconds",
    30_000,
    (100, 300_000),
)
.seed("CODE_EXECUTION_DEFAULT_MAX_EXECUTION_TIME_MS");

const CPU_PERCENT: Limit = Limit::new(
    names!("max_cpu_percent"),
    "Share of one processor that all processes of a run have together, in percent.",
    "percent",
    50,
    (1, 100),
)
.seed("CODE_EXECUTION_DEFAULT_MAX_CPU_PERCENT");

const CPU_TIME_MS: Limit = Limit::new(
    names!("max_cpu_time_ms"),
    "Processor time that all processes of a run have together.",
    "milliseconds",
    15_000,
    (10, 300_000),
)
.unset("the longest time of a run, times the share of a processor");

const MEMORY_MB: Limit = Limit::new(
    names!("max_memory_mb"),
    "Memory of all processes of a run together. The files they write are not counted here.",
    "MiB",
    256,
    (16, 4096),
)
.seed("CODE_EXECUTION_DEFAULT_MAX_MEMORY_MB");

const FILE_MB: Limit = Limit::new(
    names!("max_file_size_mb"),
    "Largest file that code or fs_write may leave.",
    "MiB",
    10,
    (1, 1024),
)
.seed("CODE_EXECUTION_DEFAULT_MAX_FILE_SIZE_MB");

const DISK_MB: Limit = Limit::new(
    names!("max_total_disk_mb"),
    "All files of a session's `/scratch` and `/results` together.",
    "MiB",
    100,
    (10, 8192),
)
.seed("CODE_EXECUTION_DEFAULT_MAX_TOTAL_DISK_MB");

const FILES: Limit = Limit::new(
    names!("max_files"),
    "Number of files and directories in a session's `/scratch` and `/results` together.",
    "files",
    10_000,
    (16, 1_000_000),
);

const PROCESSES: Limit = Limit::new(
    names!("max_processes"),
    "Processes and threads that a run may have at the same time. Those of the runtime itself count.",
    "processes",
    64,
    (1, 4096),
);

const RUNS_PER_MINUTE: Limit = Limit::new(
    names!("max_runs_per_minute"),
    "How many runs one principal may start on a server in a minute, over all gateways.",
    "runs",
    20,
    (1, 1000),
)
.seed("CODE_EXECUTION_DEFAULT_MAX_RUNS_PER_MINUTE");

const SESSION_TTL_SECONDS: Limit = Limit::new(
    names!("code.session_ttl_seconds", "session_ttl_seconds"),
    "How long a session and its files live after their last use.",
    "seconds",
    900,
    (1, 86_400),
)
.seed("CODE_EXECUTION_SESSION_TTL_SECONDS");

const OUTPUT_BYTES_MAX: Integer = Integer {
    about: SettingInfo::new(
        "code.output_bytes_max",
        "Most bytes of a run's output, and of its error output, that are kept. What comes after is read, counted and \
         dropped, and the answer says so.",
    ),
    unit: "bytes",
    default: 1024 * 1024,
    least: 1024,
    most: 64 * 1024 * 1024,
};

/// The rows of `[code]`.
pub(crate) const INHERITED_SETTINGS: &[Setting] = &[
    Setting::Integer(&SESSION_TTL_SECONDS.standard),
    Setting::Integer(&WALL_TIME_MS.standard),
    Setting::Integer(&CPU_PERCENT.standard),
    Setting::Integer(&CPU_TIME_MS.standard),
    Setting::Integer(&MEMORY_MB.standard),
    Setting::Integer(&FILE_MB.standard),
    Setting::Integer(&DISK_MB.standard),
    Setting::Integer(&FILES.standard),
    Setting::Integer(&PROCESSES.standard),
    Setting::Integer(&RUNS_PER_MINUTE.standard),
    Setting::Integer(&OUTPUT_BYTES_MAX),
];

/// The rows of `sandbox_policy`.
pub(crate) const OWN_SETTINGS: &[Setting] = &[
    Setting::Integer(&SESSION_TTL_SECONDS.own),
    Setting::Integer(&WALL_TIME_MS.own),
    Setting::Integer(&CPU_PERCENT.own),
    Setting::Integer(&CPU_TIME_MS.own),
    Setting::Integer(&MEMORY_MB.own),
    Setting::Integer(&FILE_MB.own),
    Setting::Integer(&DISK_MB.own),
    Setting::Integer(&FILES.own),
    Setting::Integer(&PROCESSES.own),
    Setting::Integer(&RUNS_PER_MINUTE.own),
];

/// The numbers, before the processor time that follows from others is known.
#[derive(Debug, Clone)]
pub(super) struct Numbers {
    pub(super) runs_per_minute: u64,
    pub(super) session_ttl_seconds: u64,
    wall_time_ms: u64,
    cpu_percent: u64,
    cpu_time_ms: Option<u64>,
    memory_mb: u64,
    file_mb: u64,
    disk_mb: u64,
    files: u64,
    processes: u64,
}

pub(super) fn parse_defaults(reader: &mut Reader<'_>) -> Numbers {
    Numbers {
        runs_per_minute: reader.integer(&RUNS_PER_MINUTE.standard),
        session_ttl_seconds: reader.integer(&SESSION_TTL_SECONDS.standard),
        wall_time_ms: reader.integer(&WALL_TIME_MS.standard),
        cpu_percent: reader.integer(&CPU_PERCENT.standard),
        cpu_time_ms: reader.integer_if_written(&CPU_TIME_MS.standard),
        memory_mb: reader.integer(&MEMORY_MB.standard),
        file_mb: reader.integer(&FILE_MB.standard),
        disk_mb: reader.integer(&DISK_MB.standard),
        files: reader.integer(&FILES.standard),
        processes: reader.integer(&PROCESSES.standard),
    }
}

pub(super) fn parse_output_bytes(reader: &mut Reader<'_>) -> usize {
    usize::try_from(reader.integer(&OUTPUT_BYTES_MAX)).unwrap_or(usize::MAX)
}

/// A server's own numbers, and the standard ones where it has none.
pub(super) fn parse_overrides(reader: &mut Reader<'_>, standard: &Numbers) -> Numbers {
    let mut own = |limit: &'static Limit, standard: u64| {
        reader.integer_if_written(&limit.own).unwrap_or(standard)
    };
    Numbers {
        runs_per_minute: own(&RUNS_PER_MINUTE, standard.runs_per_minute),
        session_ttl_seconds: own(&SESSION_TTL_SECONDS, standard.session_ttl_seconds),
        wall_time_ms: own(&WALL_TIME_MS, standard.wall_time_ms),
        cpu_percent: own(&CPU_PERCENT, standard.cpu_percent),
        memory_mb: own(&MEMORY_MB, standard.memory_mb),
        file_mb: own(&FILE_MB, standard.file_mb),
        disk_mb: own(&DISK_MB, standard.disk_mb),
        files: own(&FILES, standard.files),
        processes: own(&PROCESSES, standard.processes),
        cpu_time_ms: reader
            .integer_if_written(&CPU_TIME_MS.own)
            .or(standard.cpu_time_ms),
    }
}

impl Numbers {
    /// What the sandbox enforces.
    pub(super) fn limits(&self, output_bytes: usize) -> Limits {
        const MIB: u64 = 1024 * 1024;
        let cpu_time_ms = self
            .cpu_time_ms
            .unwrap_or(self.wall_time_ms * self.cpu_percent / 100);
        // The ranges above keep both within 32 bits.
        let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Limits {
            wall_time: Duration::from_millis(self.wall_time_ms),
            cpu_time: Duration::from_millis(cpu_time_ms),
            cpu_percent: narrow(self.cpu_percent),
            memory_bytes: self.memory_mb * MIB,
            file_bytes: self.file_mb * MIB,
            disk_bytes: self.disk_mb * MIB,
            inodes: self.files,
            processes: narrow(self.processes),
            output_bytes,
        }
    }
}
