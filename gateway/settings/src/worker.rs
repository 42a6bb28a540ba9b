//! `[worker]`: the name, heartbeats and addresses of this process in the fleet.

use std::time::Duration;

use super::peers::PeerSettings;
use super::reader::{Reader, Reason};
use super::rows::settings;
use super::store::StoreSettings;

/// Longest worker name in bytes: the store's 128 for a worker's name and boot id together, less the boot id.
const NAME_BYTES_MAX: usize = 96;

settings! {
    /// How this process is known to the fleet.
    pub struct WorkerSettings(store: &StoreSettings) {
        /// The name of this process in the fleet; a random boot id is added at every start. Two processes that run at
        /// the same time must not share a name: the later one makes the fleet treat the earlier one as dead.
        pub name: WorkerName =
            Text("worker.name", NAME_BYTES_MAX, "1 to 96 characters out of letters, digits and . _ : -", None)
            .unset("`<host name>-<listen port>`, so that several gateways on one host do not take each other's name")
            => |reader, row| reader.text(row, parse_name).map_or(WorkerName::HostAndPort, WorkerName::Given),
        /// How often this process sends a heartbeat to the store.
        pub beat_interval: Duration = Integer("worker.beat_interval_ms", "milliseconds", 500, 50..=60_000),
        /// How long after its last heartbeat this process counts as alive; at least twice `worker.beat_interval_ms`, so
        /// that one lost heartbeat does not make it count as dead.
        pub beat_ttl: Duration = Integer("worker.beat_ttl_ms", "milliseconds", 1500, 100..=600_000),
        /// How many threads serve client connections; 0 stands for one for each core that the process may use. A
        /// connection stays with one thread, which has its own connections to Redis and to upstream instances.
        pub threads: usize = Integer("worker.threads", "threads", 0, 0..=256),
        /// How long a gateway that stops or is drained still serves everything after its `/readyz` has begun to return 503:
        /// longer than load balancers need to notice. Then new connections are refused, or with a drain new sessions of
        /// servers that only one gateway can reach. A second signal ends the wait.
        pub leave: Duration = Integer("worker.leave_ms", "milliseconds", 1_000, 0..=600_000),
        /// How long open replies may take to finish after SIGTERM; then they are cut and the process ends. The service
        /// manager (systemd, Kubernetes, docker compose) must wait longer than this before it sends SIGKILL.
        pub stop_patience: Duration = Integer("worker.stop_patience_ms", "milliseconds", 10_000, 0..=600_000),
        /// How the other workers reach this one.
        pub peers: PeerSettings => |reader| PeerSettings::parse(reader, store),
    }
}

impl WorkerSettings {
    pub(super) fn parse(reader: &mut Reader<'_>, store: &StoreSettings) -> Self {
        let worker = Self::read(reader, store);
        let both_valid =
            !reader.was_refused(&Self::beat_interval) && !reader.was_refused(&Self::beat_ttl);
        let (interval_ms, ttl_ms) = (
            worker.beat_interval.as_millis(),
            worker.beat_ttl.as_millis(),
        );
        let least = interval_ms * 2;
        if both_valid && ttl_ms < least {
            let reason = format!(
                "worker.beat_interval_ms is {interval_ms}, and one lost beat must not kill the worker"
            );
            let allowed = format!("at least {least}, twice the interval");
            reader.refuse(&Self::beat_ttl, ttl_ms.to_string(), reason, allowed);
        }
        worker
    }
}

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

    /// A unique name, made with a unique mark: for processes that run concurrently with the same settings and are not
    /// later boots of one another.
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
