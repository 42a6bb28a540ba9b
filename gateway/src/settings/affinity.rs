//! `[affinity]`: whether sessions keep their upstream instance, and for how long.

use std::time::Duration;

use super::knob::{About, Integer, Knob, Switch};
use super::reader::Reader;

pub(super) const ENABLED: Switch = Switch {
    about: About::new(
        "affinity.enabled",
        "Whether sessions are kept with the upstream instance they started on. A server's own `affinity` \
         wins over this switch.",
    )
    .seed("MCPGATEWAY_SESSION_AFFINITY_ENABLED"),
    default: false,
};

pub(super) const TTL_SECONDS: Integer = Integer {
    about: About::new(
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
    about: About::new(
        "affinity.max_sessions_per_principal",
        "Most active sessions of one principal; 0 means no cap. This version has no cap and serves only 0.",
    ),
    unit: "sessions",
    default: 0,
    least: 0,
    most: 0,
};

/// The rows of this section.
pub(super) const KNOBS: &[Knob] = &[
    Knob::Switch(&ENABLED),
    Knob::Integer(&TTL_SECONDS),
    Knob::Integer(&MAX_SESSIONS_PER_PRINCIPAL),
];

/// Whether something keeps its sessions with one upstream instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Affinity {
    /// A record, a binding, and the same instance for every call.
    Kept,
    /// No record and no store round trip; calls go to any instance.
    Off,
}

/// Whether sessions keep their upstream instance, and for how long.
#[derive(Debug, Clone)]
pub struct AffinitySettings {
    /// What servers that inherit do.
    pub standard: Affinity,
    /// How long a session lives after its last use.
    pub session_ttl: Duration,
}

pub(super) fn parse(reader: &mut Reader<'_>) -> AffinitySettings {
    let standard = if reader.switch(&ENABLED) {
        Affinity::Kept
    } else {
        Affinity::Off
    };
    // Only the value 0 passes its range, so nothing is left to carry.
    reader.integer(&MAX_SESSIONS_PER_PRINCIPAL);
    AffinitySettings {
        standard,
        session_ttl: Duration::from_secs(reader.integer(&TTL_SECONDS)),
    }
}
