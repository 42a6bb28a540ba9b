//! `[worker]`: how this process is known to the fleet, and how it shows that it lives.

use std::time::Duration;

use super::peers::{self, PeerSettings};
use super::reader::{Reader, Reason};
use super::setting::{Disclosure, Integer, Setting, SettingInfo, Text};
use super::store::StoreSettings;

/// Longest worker name in bytes: the store's 128 for a worker's name and boot id together, less the boot id.
const NAME_BYTES_MAX: usize = 96;

pub(super) const NAME: Text = Text {
    about: SettingInfo::new(
        "worker.name",
        "The name of this process in the fleet; a random boot id is added at every start. Two processes that \
         run at the same time must not share a name: the later one makes the earlier one count as dead.",
    )
    .unset(
        "`<host name>-<listen port>`, so that several gateways on one host do not take each other's name",
    ),
    default: None,
    shape: "1 to 96 characters out of letters, digits and . _ : -",
    bytes_max: NAME_BYTES_MAX,
    disclosure: Disclosure::Open,
};

pub(super) const BEAT_INTERVAL_MS: Integer = Integer {
    about: SettingInfo::new(
        "worker.beat_interval_ms",
        "How often this process tells the store that it lives.",
    ),
    unit: "milliseconds",
    default: 500,
    least: 50,
    most: 60_000,
};

pub(super) const BEAT_TTL_MS: Integer = Integer {
    about: SettingInfo::new(
        "worker.beat_ttl_ms",
        "How long after its last beat this process counts as alive; at least twice `worker.beat_interval_ms`, \
         so that one lost beat does not kill it.",
    ),
    unit: "milliseconds",
    default: 1500,
    least: 100,
    most: 600_000,
};

pub(super) const THREADS: Integer = Integer {
    about: SettingInfo::new(
        "worker.threads",
        "How many threads serve requests. One is the fastest up to the work of one core, because no request is \
         handed from thread to thread; for more, start more processes, or raise this.",
    ),
    unit: "threads",
    default: 1,
    least: 1,
    most: 256,
};

pub(super) const STOP_PATIENCE_MS: Integer = Integer {
    about: SettingInfo::new(
        "worker.stop_patience_ms",
        "How long open replies may take to finish after SIGTERM; then they are cut and the process ends. Whoever stops \
         it (systemd, Kubernetes, docker compose) must wait longer than this before it kills.",
    ),
    unit: "milliseconds",
    default: 10_000,
    least: 0,
    most: 600_000,
};

/// The rows of this section.
pub(super) const SETTINGS: &[Setting] = &[
    Setting::Text(&NAME),
    Setting::Integer(&BEAT_INTERVAL_MS),
    Setting::Integer(&BEAT_TTL_MS),
    Setting::Integer(&THREADS),
    Setting::Integer(&STOP_PATIENCE_MS),
];

/// The name of this process in the fleet, without its boot id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerName {
    /// As configured.
    Given(String),
    /// `<host name>-<listen port>`.
    HostAndPort,
}

impl WorkerName {
    /// The name, once the port that was bound is known.
    pub fn resolve(&self, port: u16) -> String {
        match self {
            Self::Given(name) => name.clone(),
            Self::HostAndPort => host_and_port(&host_name(), port),
        }
    }

    /// A name that no other process has, with a mark that none has: for processes that stand beside each other under the
    /// same settings, none of which is a later boot of another.
    pub fn beside_others(&self, mark: &str) -> String {
        match self {
            Self::Given(name) => marked(name, mark),
            Self::HostAndPort => marked(&host_name(), mark),
        }
    }
}

fn host_name() -> String {
    gethostname::gethostname().to_string_lossy().into_owned()
}

fn host_and_port(host_name: &str, port: u16) -> String {
    marked(host_name, &port.to_string())
}

/// A name that ends with a mark, however long it is.
fn marked(name: &str, mark: &str) -> String {
    let mark = format!("-{mark}");
    let mut marked: String = name
        .chars()
        .map(|letter| match letter {
            letter if is_name_character(letter) => letter,
            _ => '_',
        })
        .take(NAME_BYTES_MAX.saturating_sub(mark.len()))
        .collect();
    if marked.is_empty() {
        marked.push_str("host");
    }
    marked + &mark
}

fn is_name_character(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | ':' | '-')
}

/// How this process is known to the fleet.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// Its name, without the boot id.
    pub name: WorkerName,
    /// Time between two beats.
    pub beat_interval: Duration,
    /// How long one beat keeps it alive; at least two intervals.
    pub beat_ttl: Duration,
    /// How many threads serve requests.
    pub threads: usize,
    /// How long open replies may take to finish after SIGTERM.
    pub stop_patience: Duration,
    /// How the other workers reach this one.
    pub peers: PeerSettings,
}

pub(super) fn parse(reader: &mut Reader<'_>, store: &StoreSettings) -> WorkerSettings {
    let interval_ms = reader.integer(&BEAT_INTERVAL_MS);
    let ttl_ms = reader.integer(&BEAT_TTL_MS);
    let both_valid =
        !reader.was_refused(&BEAT_INTERVAL_MS.about) && !reader.was_refused(&BEAT_TTL_MS.about);
    let least = interval_ms.saturating_mul(2);
    if both_valid && ttl_ms < least {
        reader.refuse(
            &BEAT_TTL_MS.about,
            ttl_ms.to_string(),
            format!(
                "{} is {interval_ms}, and one lost beat must not kill the worker",
                BEAT_INTERVAL_MS.about.key
            ),
            format!("at least {least}, twice the interval"),
        );
    }
    WorkerSettings {
        name: reader
            .text(&NAME, parse_name)
            .map_or(WorkerName::HostAndPort, WorkerName::Given),
        beat_interval: Duration::from_millis(interval_ms),
        beat_ttl: Duration::from_millis(ttl_ms),
        threads: usize::try_from(reader.integer(&THREADS)).unwrap_or(1),
        stop_patience: Duration::from_millis(reader.integer(&STOP_PATIENCE_MS)),
        peers: peers::parse(reader, store),
    }
}

fn parse_name(text: &str) -> Result<String, Reason> {
    if text.chars().all(is_name_character) {
        Ok(text.to_owned())
    } else {
        Err(String::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_names_are_valid_names() {
        #[track_caller]
        fn check(host_name: &str, port: u16, expected: &str) {
            let name = host_and_port(host_name, port);
            assert_eq!(name, expected);
            assert_eq!(parse_name(&name), Ok(name));
        }
        check("web-1.example", 4444, "web-1.example-4444");
        check("", 1, "host-1");
        check("hôst name", 65535, "h_st_name-65535");
        check(
            &"x".repeat(200),
            65535,
            &format!("{}-65535", "x".repeat(90)),
        );
    }
}
