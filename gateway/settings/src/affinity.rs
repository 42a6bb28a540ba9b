//! `[affinity]`: whether sessions keep their upstream instance, for how long, and how many of them one principal has.

use std::num::NonZeroU64;
use std::time::Duration;

use super::reader::Reader;
use super::rows::settings;
use super::setting::Integer;

settings! {
    /// Whether sessions keep their upstream instance, and for how long.
    pub struct AffinitySettings {
        /// Whether sessions are kept with the upstream instance they started on. A server's own `affinity` wins over
        /// this switch. False means that the clients of one user share upstream sessions, and with them what an
        /// upstream remembers.
        pub default_affinity: Affinity = Switch("affinity.enabled", false)
            .contextforge_name("MCPGATEWAY_SESSION_AFFINITY_ENABLED")
            .unset("each server decides: sessions are kept where one of its instances assigns a session id \
                    (`Mcp-Session-Id`) when it is initialized, or has not been asked yet")
            => |reader, row| match reader.if_written(row) {
                None => Affinity::ByServer,
                Some(true) => Affinity::On,
                Some(false) => Affinity::Off,
            },
        /// How long a session lives after its last use.
        pub session_ttl: Duration = Integer("affinity.ttl_seconds", "seconds", 3600, 1..=2_592_000)
            .contextforge_name("MCPGATEWAY_SESSION_AFFINITY_TTL"),
        /// Maximum active sessions of one principal; 0 means no limit. A new session beyond it ends the principal's
        /// least recently used idle session; if none is idle, it is refused with 429. All gateways of a fleet should
        /// use the same value.
        pub sessions_max: Option<NonZeroU64> =
            Integer("affinity.max_sessions_per_principal", "sessions", 0, 0..=1_000_000_000),
        /// Maximum sessions per minute that one principal may start in the whole fleet; 0 means no limit. A further
        /// `initialize` gets 429 with Retry-After. If `auth.mode` is `none`, all clients are one principal.
        pub initializes_per_minute: Option<NonZeroU64> =
            Integer("affinity.initializes_per_minute", "sessions", 600, 0..=1_000_000),
        /// How often this process looks for expired or ended sessions that still have upstream sessions, and deletes
        /// those. Each interval is up to a quarter shorter or longer, so that the processes of a fleet do not look at
        /// the same time.
        pub reap_interval: Duration =
            Integer("affinity.reap_interval_ms", "milliseconds", 10_000, 100..=3_600_000),
        /// How long a tool call waits for its turn (`concurrency = "serial"`) before it fails with an error, without
        /// having run. A running call whose server has been silent for this long lets the next one run beside it: its
        /// client may have given up without canceling it.
        pub turn_wait_max: Duration =
            Integer("affinity.turn_wait_max_ms", "milliseconds", 60_000, 1000..=86_400_000),
        /// How long this gateway may let the calls of a session at a server run one after another without asking the
        /// store, after a few in a row came here; 0 turns that off, and otherwise it is 1000 or more. Another gateway
        /// where a call of the session arrives gets the next turn. It waits this long only if this gateway does not
        /// respond.
        pub delegation_lease: Duration =
            Integer("affinity.delegation_ms", "milliseconds", 1800, 0..=1800)
            => |reader, row| read_delegation_lease(reader, row),
        /// Most entries of a session's history, which `mooring sessions show --history` prints: what happened to the
        /// session, of which the latest are kept. 0 keeps none. A session that has begun and is bound takes 550 bytes of it
        /// in the store, a full history of 64 entries 12 KB. A call that waits for nothing and fails in nothing adds no
        /// entry.
        pub history_entries_max: usize =
            Integer("affinity.history_entries_max", "entries", 64, 0..=256),
    }
}

/// The shortest lease. A fifth of a second of it is a margin for clocks and for the write of a request.
const DELEGATION_MS_MIN: u64 = 1000;

fn read_delegation_lease(reader: &mut Reader<'_>, row: &'static Integer) -> Duration {
    let lease_ms: u64 = reader.read(row);
    if (1..DELEGATION_MS_MIN).contains(&lease_ms) {
        let reason = "a lease that short would be renewed by nearly every call";
        let allowed = format!("0, or {DELEGATION_MS_MIN} to {}", row.range.end());
        reader.refuse(row, lease_ms.to_string(), reason, allowed);
    }
    Duration::from_millis(lease_ms)
}

/// Whether something keeps its sessions with one upstream instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Affinity {
    /// A record, a binding, and the same instance for every call.
    On,
    /// No record and no store round trip; calls go to any instance.
    Off,
    /// Kept where the server is stateful: where an instance of it assigns session ids.
    ByServer,
}
