//! `[affinity]`: whether sessions keep their upstream instance, for how long, and how many of them one principal has.

use std::num::NonZeroU64;
use std::time::Duration;

use super::reader::Reader;
use super::setting::{Integer, Setting, SettingInfo, Switch};

pub(super) const ENABLED: Switch = Switch {
    about: SettingInfo::new(
        "affinity.enabled",
        "Whether sessions are kept with the upstream instance they started on. A server's own `affinity` \
         wins over this switch. False means that the clients of one user share upstream sessions, and with them \
         what an upstream remembers.",
    )
    .seed("MCPGATEWAY_SESSION_AFFINITY_ENABLED")
    .unset(
        "each server decides: sessions are kept where one of its instances assigns a session id \
         (`Mcp-Session-Id`) when it is initialized, or has not been asked yet",
    ),
    default: false,
};

pub(super) const TTL_SECONDS: Integer = Integer {
    about: SettingInfo::new(
        "affinity.ttl_seconds",
        "How long a session lives after its last use.",
    )
    .seed("MCPGATEWAY_SESSION_AFFINITY_TTL"),
    unit: "seconds",
    default: 3600,
    least: 1,
    most: 2_592_000,
};

pub(super) const MAX_SESSIONS_PER_PRINCIPAL: Integer = Integer {
    about: SettingInfo::new(
        "affinity.max_sessions_per_principal",
        "Most active sessions of one principal; 0 means no cap. A new session beyond it ends the principal's \
         least recently used one that is idle, and is refused with status 429 where none is. All gateways of a \
         fleet should have the same.",
    ),
    unit: "sessions",
    default: 0,
    least: 0,
    most: 1_000_000_000,
};

pub(super) const INITIALIZES_PER_MINUTE: Integer = Integer {
    about: SettingInfo::new(
        "affinity.initializes_per_minute",
        "Most sessions that one principal may begin within a minute, over the whole fleet; 0 means no limit. A further \
         `initialize` gets status 429 with Retry-After. Where `auth.mode` is `none`, all clients are one principal.",
    ),
    unit: "sessions",
    default: 600,
    least: 0,
    most: 1_000_000,
};

pub(super) const REAP_INTERVAL_MS: Integer = Integer {
    about: SettingInfo::new(
        "affinity.reap_interval_ms",
        "How often this process looks for sessions that expired or ended and still hold something upstream, to \
         delete it there. Each pause is up to a quarter shorter or longer, so that the processes of a fleet do not \
         look at the same time.",
    ),
    unit: "milliseconds",
    default: 10_000,
    least: 100,
    most: 3_600_000,
};

pub(super) const TURN_WAIT_MAX_MS: Integer = Integer {
    about: SettingInfo::new(
        "affinity.turn_wait_max_ms",
        "How long a tool call waits for its turn, where its server's `concurrency` is `serial`, before it is answered \
         with an error. It has then not run.",
    ),
    unit: "milliseconds",
    default: 600_000,
    least: 1000,
    most: 86_400_000,
};

/// The rows of this section.
pub(super) const SETTINGS: &[Setting] = &[
    Setting::Switch(&ENABLED),
    Setting::Integer(&TTL_SECONDS),
    Setting::Integer(&MAX_SESSIONS_PER_PRINCIPAL),
    Setting::Integer(&INITIALIZES_PER_MINUTE),
    Setting::Integer(&REAP_INTERVAL_MS),
    Setting::Integer(&TURN_WAIT_MAX_MS),
];

/// Whether something keeps its sessions with one upstream instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Affinity {
    /// A record, a binding, and the same instance for every call.
    Kept,
    /// No record and no store round trip; calls go to any instance.
    Off,
    /// Kept where the server is stateful: where an instance of it assigns session ids.
    ByServer,
}

/// Whether sessions keep their upstream instance, and for how long.
#[derive(Debug, Clone)]
pub struct AffinitySettings {
    /// What servers that inherit do.
    pub standard: Affinity,
    /// How long a session lives after its last use.
    pub session_ttl: Duration,
    /// Most active sessions of one principal; none for no cap.
    pub sessions_max: Option<NonZeroU64>,
    /// Most sessions that a principal may begin within a minute; none for no limit.
    pub initializes_per_minute: Option<NonZeroU64>,
    /// Time between two looks for sessions to clean up, give or take a quarter.
    pub reap_interval: Duration,
    /// Longest wait of a tool call for its turn.
    pub turn_wait_max: Duration,
}

pub(super) fn parse(reader: &mut Reader<'_>) -> AffinitySettings {
    let standard = if !reader.is_written(&ENABLED.about) {
        Affinity::ByServer
    } else if reader.switch(&ENABLED) {
        Affinity::Kept
    } else {
        Affinity::Off
    };
    AffinitySettings {
        standard,
        session_ttl: Duration::from_secs(reader.integer(&TTL_SECONDS)),
        sessions_max: NonZeroU64::new(reader.integer(&MAX_SESSIONS_PER_PRINCIPAL)),
        initializes_per_minute: NonZeroU64::new(reader.integer(&INITIALIZES_PER_MINUTE)),
        reap_interval: Duration::from_millis(reader.integer(&REAP_INTERVAL_MS)),
        turn_wait_max: Duration::from_millis(reader.integer(&TURN_WAIT_MAX_MS)),
    }
}
