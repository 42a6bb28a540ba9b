//! The numbers of a policy. Each stands in `[code]` as the default of all servers, under the name that ContextForge's
//! environment gives it, and in a server's `sandbox_policy`, where a pasted policy may keep it under `limits`.

use std::time::Duration;

use mooring_sandbox::Limits;

use crate::rows::inherited;

inherited! {
    /// The numbers, before the processor time that follows from others is known.
    pub(super) struct PolicyLimits {
        /// How long a session and its files live after their last use.
        pub(super) session_ttl: Duration = Integer(
            "code.session_ttl_seconds" / "sandbox_policy.session_ttl_seconds"
                / "sandbox_policy.limits.session_ttl_seconds",
            "seconds", 900, 1..=86_400,
        ).seed("CODE_EXECUTION_SESSION_TTL_SECONDS"),
        /// How long one run may take; then all its processes are killed. A call may ask for less.
        wall_time: Duration = Integer(
            "code.default_max_execution_time_ms" / "sandbox_policy.max_execution_time_ms"
                / "sandbox_policy.limits.max_execution_time_ms",
            "milliseconds", 30_000, 100..=300_000,
        ).seed("CODE_EXECUTION_DEFAULT_MAX_EXECUTION_TIME_MS"),
        /// Share of one processor that all processes of a run have together, in percent.
        cpu_percent: u32 = Integer(
            "code.default_max_cpu_percent" / "sandbox_policy.max_cpu_percent" / "sandbox_policy.limits.max_cpu_percent",
            "percent", 50, 1..=100,
        ).seed("CODE_EXECUTION_DEFAULT_MAX_CPU_PERCENT"),
        /// Processor time that all processes of a run have together.
        cpu_time: Option<Duration> = Integer(
            "code.default_max_cpu_time_ms" / "sandbox_policy.max_cpu_time_ms" / "sandbox_policy.limits.max_cpu_time_ms",
            "milliseconds", 15_000, 10..=300_000,
        ).unset("the longest time of a run, times the share of a processor") => |reader, row| reader.if_written(row),
        /// Memory of all processes of a run together. The files they write are not counted here.
        memory_bytes: u64 = Integer(
            "code.default_max_memory_mb" / "sandbox_policy.max_memory_mb" / "sandbox_policy.limits.max_memory_mb",
            "MiB", 256, 16..=4096,
        ).seed("CODE_EXECUTION_DEFAULT_MAX_MEMORY_MB"),
        /// Largest file that code or fs_write may leave.
        file_bytes: u64 = Integer(
            "code.default_max_file_size_mb" / "sandbox_policy.max_file_size_mb" / "sandbox_policy.limits.max_file_size_mb",
            "MiB", 10, 1..=1024,
        ).seed("CODE_EXECUTION_DEFAULT_MAX_FILE_SIZE_MB"),
        /// All files of a session's `/scratch` and `/results` together.
        disk_bytes: u64 = Integer(
            "code.default_max_total_disk_mb" / "sandbox_policy.max_total_disk_mb"
                / "sandbox_policy.limits.max_total_disk_mb",
            "MiB", 100, 10..=8192,
        ).seed("CODE_EXECUTION_DEFAULT_MAX_TOTAL_DISK_MB"),
        /// Number of files and directories in a session's `/scratch` and `/results` together.
        inodes: u64 = Integer(
            "code.default_max_files" / "sandbox_policy.max_files" / "sandbox_policy.limits.max_files",
            "files", 10_000, 16..=1_000_000,
        ),
        /// Processes and threads that a run may have at the same time. Those of the runtime itself count.
        processes: u32 = Integer(
            "code.default_max_processes" / "sandbox_policy.max_processes" / "sandbox_policy.limits.max_processes",
            "processes", 64, 1..=4096,
        ),
        /// How many runs one principal may start on a server in a minute, over all gateways.
        pub(super) runs_per_minute: u64 = Integer(
            "code.default_max_runs_per_minute" / "sandbox_policy.max_runs_per_minute"
                / "sandbox_policy.limits.max_runs_per_minute",
            "runs", 20, 1..=1000,
        ).seed("CODE_EXECUTION_DEFAULT_MAX_RUNS_PER_MINUTE"),
        /// Most bytes of a run's output, and of its error output, that are kept. What comes after is read, counted and
        /// dropped, and the answer says so.
        output_bytes: usize = Integer("code.output_bytes_max", "bytes", 1024 * 1024, 1024..=64 * 1024 * 1024),
    }
}

impl PolicyLimits {
    /// What the sandbox enforces.
    pub(super) fn limits(&self) -> Limits {
        let share_of_cpu = || self.wall_time * self.cpu_percent / 100;
        Limits {
            wall_time: self.wall_time,
            cpu_time: self.cpu_time.unwrap_or_else(share_of_cpu),
            cpu_percent: self.cpu_percent,
            memory_bytes: self.memory_bytes,
            file_bytes: self.file_bytes,
            disk_bytes: self.disk_bytes,
            inodes: self.inodes,
            processes: self.processes,
            output_bytes: self.output_bytes,
        }
    }
}
