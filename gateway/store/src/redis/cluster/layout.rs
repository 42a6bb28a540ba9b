//! What nodes say of their cluster: which primary serves which slots, and redirections.
//!
//! Invariant: nodes may disagree. One that says that the cluster fails has been cut off from most of it, and its layout may
//! be stale, as may that of a lower epoch.

use mooring_session::key_slot::SLOTS;
use mooring_settings::{RedisAddress, RedisCluster};
use redis::{Cmd, ServerError, Value};

use super::super::command_connection::CommandConnection;
use super::super::down_reason::DownReason;
use super::super::log_in::send;
use super::super::reply::text;

/// Most primaries of a cluster.
pub(super) const PRIMARIES_MAX: usize = 256;

/// The layout of a cluster, as one of its nodes has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClusterLayout {
    /// Whether the node takes part in a cluster that serves.
    pub(super) is_serving: bool,
    /// The number of the latest change of the cluster that the node knows of.
    pub(super) epoch: u64,
    pub(super) ranges: Vec<SlotRange>,
}

/// Slots in a row with the same primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlotRange {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) primary: RedisAddress,
}

/// Where a node sends the client for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirection {
    /// Another node serves the slot.
    Moved(RedisAddress),
    /// The slot is moving, and this key is where it moves to, if anywhere.
    Ask(RedisAddress),
    /// The slot is moving, or no node serves it now.
    Later,
}

impl ClusterLayout {
    /// Asks a node, which is at this host.
    pub(super) async fn ask(
        connection: &CommandConnection,
        cluster: &RedisCluster,
        asked: &RedisAddress,
    ) -> Result<Self, DownReason> {
        let of = |word: &str| -> Cmd {
            let mut command = redis::cmd("CLUSTER");
            command.arg(word);
            command
        };
        let info = send(connection, &of("INFO")).await?;
        let slots = send(connection, &of("SLOTS")).await?;
        let host = asked.host().map_or("", |(host, _)| host);
        Self::parse(&info, &slots, |given, port| {
            let host = given.filter(|given| !given.is_empty()).unwrap_or(host);
            cluster.address_at(host, port)
        })
        .ok_or_else(|| DownReason::Unreachable("it does not answer as a node of a cluster".into()))
    }

    /// Reads the replies of CLUSTER INFO and SLOTS. An unknown or empty host is that of the node that was asked.
    fn parse(
        info: &Value,
        slots: &Value,
        address: impl Fn(Option<&str>, u16) -> RedisAddress,
    ) -> Option<Self> {
        let info = text(info)?;
        let field = |name: &str| {
            info.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .map(str::trim)
        };
        let range = |entry: &Value| {
            let [first, last, primary, ..] = entry.as_sequence()? else {
                return None;
            };
            let [host, port, ..] = primary.as_sequence()? else {
                return None;
            };
            // A host whose name is not known is shown as `?`.
            let host = text(host).filter(|host| *host != "?");
            Some(SlotRange {
                first: number(first)?,
                last: number(last).filter(|last| *last < SLOTS)?,
                primary: address(host, number(port)?),
            })
        };
        Some(Self {
            is_serving: field("cluster_state")? == "ok",
            epoch: field("cluster_current_epoch")?.parse().ok()?,
            ranges: slots
                .as_sequence()?
                .iter()
                .map(range)
                .collect::<Option<_>>()?,
        })
    }

    /// Whether it is rather believed than another one.
    pub(super) fn rank(&self) -> (bool, u64) {
        (self.is_serving, self.epoch)
    }
}

impl Redirection {
    /// The redirection in a reply of the node at `from`; none if the node has served the command, or refused it.
    pub(super) fn of(reply: &Value, cluster: &RedisCluster, from: &RedisAddress) -> Option<Self> {
        let Value::ServerError(error) = reply else {
            return None;
        };
        match error.code() {
            "MOVED" => target(error, cluster, from).map(Self::Moved),
            "ASK" => target(error, cluster, from).map(Self::Ask),
            "TRYAGAIN" | "CLUSTERDOWN" => Some(Self::Later),
            _ => None,
        }
    }
}

/// The address in `<slot> <host>:<port>`, where an IPv6 address has no brackets, and an empty host is that of the node.
fn target(
    error: &ServerError,
    cluster: &RedisCluster,
    from: &RedisAddress,
) -> Option<RedisAddress> {
    let (_, address) = error.details()?.trim().split_once(' ')?;
    let (host, port) = address.trim().rsplit_once(':')?;
    let host = match host {
        "" => from.host()?.0,
        host => host,
    };
    Some(cluster.address_at(host, port.parse().ok()?))
}

fn number(value: &Value) -> Option<u16> {
    match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use mooring_settings::{RedisTopology, RedisUrl};

    use super::*;

    fn cluster() -> RedisCluster {
        let url = RedisUrl::parse("redis+cluster://seed:7000").unwrap();
        let RedisTopology::Cluster(cluster) = url.topology() else {
            unreachable!("a cluster");
        };
        cluster.clone()
    }

    fn at(host: &str, port: u16) -> RedisAddress {
        RedisAddress::Tcp(host.to_owned(), port)
    }

    #[test]
    fn redirections_name_the_node() {
        let read = |line: &str| {
            let reply = redis::parse_redis_value(format!("{line}\r\n").as_bytes()).unwrap();
            Redirection::of(&reply, &cluster(), &at("asked", 7))
        };
        let moved = |host, port| Some(Redirection::Moved(at(host, port)));
        assert_eq!(read("-MOVED 3999 10.0.0.1:6381"), moved("10.0.0.1", 6381));
        assert_eq!(read("-MOVED 3999 ::1:6381"), moved("::1", 6381));
        assert_eq!(read("-MOVED 3999 :6381"), moved("asked", 6381));
        assert_eq!(read("-ASK 1 a:2"), Some(Redirection::Ask(at("a", 2))));
        for later in [
            "-TRYAGAIN Multiple keys",
            "-CLUSTERDOWN Hash slot not served",
        ] {
            assert_eq!(read(later), Some(Redirection::Later), "{later}");
        }
        for other in ["-MOVED 3999", "-MOVED 3999 a:b", "-READONLY a", "+OK", ":1"] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn a_layout_has_the_primaries_of_slots() {
        let info = Value::BulkString(
            b"cluster_state:ok\r\ncluster_known_nodes:6\r\ncluster_current_epoch:12\r\n".to_vec(),
        );
        let slots = "*2\r\n*4\r\n:0\r\n:99\r\n*3\r\n$1\r\na\r\n:1\r\n$2\r\nid\r\n*3\r\n$1\r\nr\r\n:9\r\n$2\r\nid\r\n\
                     *3\r\n:100\r\n:16383\r\n*2\r\n$0\r\n\r\n:2\r\n";
        let slots = redis::parse_redis_value(slots.as_bytes()).unwrap();
        let address = |host: Option<&str>, port| {
            at(host.filter(|it| !it.is_empty()).unwrap_or("asked"), port)
        };
        let layout = ClusterLayout::parse(&info, &slots, address).unwrap();
        assert_eq!(layout.rank(), (true, 12));
        let range = |first, last, primary| SlotRange {
            first,
            last,
            primary,
        };
        assert_eq!(
            layout.ranges,
            [range(0, 99, at("a", 1)), range(100, 16_383, at("asked", 2))]
        );
        assert_eq!(ClusterLayout::parse(&Value::Nil, &slots, address), None);
        assert_eq!(ClusterLayout::parse(&info, &Value::Okay, address), None);
    }
}
