//! What one `code` server allows its runs: the defaults of `[code]`, with what the server's own `sandbox_policy`
//! says in their place.

use std::num::NonZeroU64;
use std::time::Duration;

use mooring_run_policy::limits::Limits;
use mooring_run_policy::paths::TreeAccess;

use super::allowed_runtimes::{CodeRuntime, SHAPE, parse_runtimes};
use super::calls::CallPolicy;
use super::network::{NetworkPolicy, parse_connections};
use crate::globs::GLOB_BYTES_MAX;
use crate::reader::Reader;
use crate::rows::inherited;
use crate::setting::{Word, Words};
use crate::{Language, StoreLocation, StoreSettings};

/// The default lifetime of files: that of ContextForge in a fleet, and a longer one on one machine.
const SESSION_TTL: Duration = Duration::from_secs(900);
const SESSION_TTL_ON_ONE_MACHINE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Who shares a code session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeSessionOwner {
    /// All clients of a user.
    User,
    /// A client that names itself has its own; the user's other clients share one.
    Client,
}

impl Words for CodeSessionOwner {
    const DEFAULT: Word<Self> = ("user", Self::User, "all clients of a user share one");
    const OTHERS: &'static [Word<Self>] = &[(
        "client",
        Self::Client,
        "a client that sends `Mooring-Client: NAME` has its own",
    )];
}

/// What one `code` server allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodePolicy {
    /// The runtime for code that names no language, whose session the file tools and the one-line shell use.
    pub language: Language,
    /// What may run code.
    pub runtimes: Vec<CodeRuntime>,
    /// What one run may use. A call may ask for less time.
    pub limits: Limits,
    /// Who shares a session.
    pub session_by: CodeSessionOwner,
    /// Most sessions of code of one principal, where clients have their own.
    pub sessions_max: NonZeroU64,
    /// Most runs of one principal in a minute, over all gateways.
    pub runs_per_minute: u64,
    /// How long a session and its files live after their last use.
    pub session_ttl: Duration,
    /// Which tools of other servers code may call.
    pub calls: CallPolicy,
    /// What of the network it reaches.
    pub network: NetworkPolicy,
}

inherited! {
    /// What is written of a policy, under the names that ContextForge's environment gives it, and in a server's
    /// `sandbox_policy`, where a pasted policy may keep it under `limits` and `permissions`.
    pub(super) struct PolicyDraft {
        /// The runtime for code that names no language; the file tools use its session.
        language: Language = Choice(
            "code.default_runtime" / "sandbox_policy.runtime" / "sandbox_policy.limits.runtime",
        ).contextforge_name("CODE_EXECUTION_DEFAULT_RUNTIME"),
        /// The runtimes that may run code. Code for any other is refused before it runs, and recorded as blocked.
        runtimes: Vec<CodeRuntime> = List(
            "code.default_allowed_runtimes" / "sandbox_policy.allowed_runtimes" / "sandbox_policy.runtime_requirements",
            CodeRuntime::ALL.len(), GLOB_BYTES_MAX, SHAPE,
        ).unset("all three") => |reader, row| parse_runtimes(reader, row, language),
        /// How long a session and its files live after their last use.
        session_ttl: Option<Duration> = Integer(
            "code.session_ttl_seconds" / "sandbox_policy.session_ttl_seconds"
                / "sandbox_policy.limits.session_ttl_seconds",
            "seconds", 900, 1..=2_592_000,
        ).contextforge_name("CODE_EXECUTION_SESSION_TTL_SECONDS")
            .unset("900 over Redis; 604800, a week, where `store.url` is `embedded`: on one machine yesterday's files are there")
            => |reader, row| reader.if_written(row),
        /// Who shares a session and its files. With `client`, two agents of one user with different names do not
        /// overwrite each other's files. This is not access control: a client may send another name.
        session_by: CodeSessionOwner = Choice("code.session_by" / "sandbox_policy.session_by"),
        /// Maximum code sessions of one principal, over all code servers and languages; a client that asks for one more
        /// is refused. Each may fill its disk.
        sessions_max: NonZeroU64 = Integer(
            "code.sessions_max" / "sandbox_policy.sessions_max", "sessions", 16, 1..=10_000,
        ),
        /// Maximum duration of one run; then all its processes are killed. A call may ask for less.
        wall_time: Duration = Integer(
            "code.default_max_execution_time_ms" / "sandbox_policy.max_execution_time_ms"
                / "sandbox_policy.limits.max_execution_time_ms",
            "milliseconds", 30_000, 100..=300_000,
        ).contextforge_name("CODE_EXECUTION_DEFAULT_MAX_EXECUTION_TIME_MS"),
        /// Share of one processor that all processes of a run have together, in percent.
        cpu_percent: u32 = Integer(
            "code.default_max_cpu_percent" / "sandbox_policy.max_cpu_percent" / "sandbox_policy.limits.max_cpu_percent",
            "percent", 50, 1..=100,
        ).contextforge_name("CODE_EXECUTION_DEFAULT_MAX_CPU_PERCENT"),
        /// Processor time that all processes of a run have together.
        cpu_time: Option<Duration> = Integer(
            "code.default_max_cpu_time_ms" / "sandbox_policy.max_cpu_time_ms" / "sandbox_policy.limits.max_cpu_time_ms",
            "milliseconds", 15_000, 10..=300_000,
        ).unset("the longest time of a run, times the share of a processor") => |reader, row| reader.if_written(row),
        /// Memory of all processes of a run together. The files they write are not counted here.
        memory_bytes: u64 = Integer(
            "code.default_max_memory_mb" / "sandbox_policy.max_memory_mb" / "sandbox_policy.limits.max_memory_mb",
            "MiB", 256, 16..=4096,
        ).contextforge_name("CODE_EXECUTION_DEFAULT_MAX_MEMORY_MB"),
        /// Largest file that code or fs_write may leave.
        file_bytes: u64 = Integer(
            "code.default_max_file_size_mb" / "sandbox_policy.max_file_size_mb" / "sandbox_policy.limits.max_file_size_mb",
            "MiB", 10, 1..=1024,
        ).contextforge_name("CODE_EXECUTION_DEFAULT_MAX_FILE_SIZE_MB"),
        /// All files of a session's `/scratch` and `/results` together.
        disk_bytes: u64 = Integer(
            "code.default_max_total_disk_mb" / "sandbox_policy.max_total_disk_mb"
                / "sandbox_policy.limits.max_total_disk_mb",
            "MiB", 100, 10..=8192,
        ).contextforge_name("CODE_EXECUTION_DEFAULT_MAX_TOTAL_DISK_MB"),
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
        runs_per_minute: u64 = Integer(
            "code.default_max_runs_per_minute" / "sandbox_policy.max_runs_per_minute"
                / "sandbox_policy.limits.max_runs_per_minute",
            "runs", 20, 1..=1000,
        ).contextforge_name("CODE_EXECUTION_DEFAULT_MAX_RUNS_PER_MINUTE"),
        /// Maximum bytes of a run's stdout, and of its stderr, that are kept. The rest is read, counted and dropped,
        /// and the answer reports this.
        output_bytes: usize = Integer("code.output_bytes_max", "bytes", 1024 * 1024, 1024..=64 * 1024 * 1024),
        /// Whether code may reach public addresses over HTTP and HTTPS, through a proxy of the gateway. Loopback,
        /// private and link-local addresses, the gateway and its store are never reached.
        is_http_allowed: bool = Switch(
            "code.default_allow_raw_http" / "sandbox_policy.allow_raw_http"
                / "sandbox_policy.permissions.network.allow_raw_http",
            false,
        ).contextforge_name("CODE_EXECUTION_DEFAULT_ALLOW_RAW_HTTP"),
        /// How many connections a run may have open at the same time where raw HTTP is allowed; 0 then means 8. If it
        /// is not allowed, only 0 is accepted.
        connections: u32 = Integer(
            "code.default_max_network_connections" / "sandbox_policy.max_network_connections"
                / "sandbox_policy.limits.max_network_connections",
            "connections", 0, 0..=64,
        ).contextforge_name("CODE_EXECUTION_DEFAULT_MAX_NETWORK_CONNECTIONS")
            => |reader, row| parse_connections(reader, row, is_http_allowed),
    }
}

impl PolicyDraft {
    /// What `[code]` says, over this store.
    pub(super) fn read_standard(reader: &mut Reader<'_>, store: &StoreSettings) -> Self {
        let mut standard = Self::read(reader, None);
        standard.session_ttl.get_or_insert(match store.location {
            StoreLocation::Embedded { .. } => SESSION_TTL_ON_ONE_MACHINE,
            StoreLocation::Redis(_) => SESSION_TTL,
        });
        standard
    }

    /// The policy.
    pub(super) fn policy(&self, calls: CallPolicy, access: TreeAccess) -> CodePolicy {
        let share_of_cpu = || self.wall_time * self.cpu_percent / 100;
        CodePolicy {
            language: self.language,
            runtimes: self.runtimes.clone(),
            limits: Limits {
                wall_time: self.wall_time,
                cpu_time: self.cpu_time.unwrap_or_else(share_of_cpu),
                cpu_percent: self.cpu_percent,
                memory_bytes: self.memory_bytes,
                file_bytes: self.file_bytes,
                disk_bytes: self.disk_bytes,
                inodes: self.inodes,
                processes: self.processes,
                access,
                output_bytes: self.output_bytes,
            },
            session_by: self.session_by,
            sessions_max: self.sessions_max,
            runs_per_minute: self.runs_per_minute,
            session_ttl: self.session_ttl.unwrap_or(SESSION_TTL),
            calls,
            network: NetworkPolicy::new(self.is_http_allowed, self.connections),
        }
    }
}
