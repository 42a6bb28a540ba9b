//! Asks the sentinels of a service for its primary.
//!
//! All are asked at the same time, since those that were on the machine of the former primary do not answer. Invariants:
//! nothing that a sentinel says is believed before the server confirms its role; where sentinels disagree, the newest
//! configuration comes first; a server in use is not left for one of an older configuration. Each sentinel has one
//! connection, which is kept.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use mooring_settings::{RedisEndpoint, SentinelService};
use redis::{Cmd, Value};
use tokio::time::{Instant, timeout, timeout_at};

use super::command_connection::CommandConnection;
use super::down_reason::{DownReason, timed_out};
use super::log_in::{log_in, send};
use super::reply::{Fields, text};
use crate::lock::lock;

/// Once most sentinels have named the same server, the others are waited for no longer than this.
const STRAGGLERS_WITHIN: Duration = Duration::from_millis(50);

/// How long servers of older configurations only are named before they are used in place of the last one. A sentinel that
/// is stale may be the first that can be reached again. But SENTINEL REMOVE and MONITOR begin again with epoch 0, and a
/// gateway that never used an older epoch would need a restart then.
const OLDER_AFTER: Duration = Duration::from_secs(30);

/// The sentinels of a service.
#[derive(Debug)]
pub(super) struct Sentinels {
    service: SentinelService,
    nodes: Vec<Arc<Sentinel>>,
    timeout: Duration,
    last_used: Mutex<LastUsed>,
    /// Why no other primary was found when they were asked last.
    problem: Mutex<Option<DownReason>>,
}

/// The last server that has confirmed its role.
#[derive(Debug, Default)]
struct LastUsed {
    /// None before the first.
    named: Option<NamedServer>,
    /// Since when only servers of older configurations are named.
    older_since: Option<Instant>,
}

/// A server that sentinels name as the primary.
#[derive(Clone, Debug)]
pub(super) struct NamedServer {
    pub(super) server: Arc<RedisEndpoint>,
    /// The number of the configuration: each failover has a higher one.
    pub(super) epoch: u64,
}

struct Sentinel {
    /// The name of the service.
    service: String,
    endpoint: RedisEndpoint,
    /// Locked while it is asked.
    connection: tokio::sync::Mutex<Option<CommandConnection>>,
}

/// The host, port and epoch that a sentinel names.
type Named = (String, u16, u64);

impl Sentinels {
    pub(super) fn new(service: SentinelService, timeout: Duration) -> Self {
        let node = |endpoint: &RedisEndpoint| {
            Arc::new(Sentinel {
                service: service.name().to_owned(),
                endpoint: endpoint.clone(),
                connection: tokio::sync::Mutex::default(),
            })
        };
        Self {
            nodes: service.sentinels().iter().map(node).collect(),
            service,
            timeout,
            last_used: Mutex::default(),
            problem: Mutex::default(),
        }
    }

    /// Notes that a server is in use, and that the sentinels name it by this configuration.
    pub(super) fn note_used(&self, named: &NamedServer) {
        *lock(&self.last_used) = LastUsed {
            named: Some(named.clone()),
            older_since: None,
        };
    }

    /// Whether the configuration is older than that of the server in use.
    pub(super) fn is_older(&self, named: &NamedServer) -> bool {
        lock(&self.last_used).is_newer_than(named)
    }

    /// Those of the named servers that are tried after a loss. If all are of older configurations, the last used one is
    /// tried, and they after it only when that has lasted.
    pub(super) fn to_try(&self, named: Vec<NamedServer>, now: Instant) -> Vec<NamedServer> {
        lock(&self.last_used).choose(named, now)
    }

    /// The servers that the sentinels name, those of the newest configuration first; at least one.
    ///
    /// # Errors
    /// No sentinel names one.
    pub(super) async fn ask(&self) -> Result<Vec<NamedServer>, DownReason> {
        let mut answers: FuturesUnordered<_> =
            self.nodes.iter().map(|node| self.ask_one(node)).collect();
        let (mut named, mut problems) = (Vec::new(), Vec::new());
        let mut deadline = None;
        loop {
            let answer = match deadline {
                None => answers.next().await,
                Some(deadline) => timeout_at(deadline, answers.next()).await.unwrap_or(None),
            };
            match answer {
                Some((_, Ok(answer))) => named.push(answer),
                Some((address, Err(down))) => problems.push((address, down)),
                None => break,
            }
            if deadline.is_none() && self.most_agree(&named) {
                deadline = Some(Instant::now() + STRAGGLERS_WITHIN);
            }
        }
        if named.is_empty() {
            // In one order, so that the same problems are the same reason.
            problems.sort_by(|(one, _), (other, _)| one.cmp(other));
            return Err(DownReason::of_all(problems));
        }
        Ok(self.in_order(named))
    }

    /// Why no other primary was found when they were asked last, though the one in use may have been replaced.
    pub(super) fn problem(&self) -> Option<DownReason> {
        lock(&self.problem).clone()
    }

    /// Notes the outcome of a look for another primary, and logs it if it is new.
    pub(super) fn note_problem(&self, problem: Option<DownReason>) {
        let mut known = lock(&self.problem);
        if *known == problem {
            return;
        }
        match &problem {
            Some(problem) => {
                tracing::warn!(
                    ?problem,
                    "it is not known which redis the sentinels want used"
                );
            }
            None => tracing::info!("the sentinels say again which redis is used"),
        }
        *known = problem;
    }

    fn most_agree(&self, named: &[Named]) -> bool {
        named.last().is_some_and(|(host, port, _)| {
            let same = named
                .iter()
                .filter(|other| (&other.0, other.1) == (host, *port));
            same.count() > self.nodes.len() / 2
        })
    }

    /// Each server once, with its newest epoch.
    fn in_order(&self, mut named: Vec<Named>) -> Vec<NamedServer> {
        named.sort_by_key(|(_, _, epoch)| std::cmp::Reverse(*epoch));
        let mut servers: Vec<NamedServer> = Vec::new();
        for (host, port, epoch) in named {
            let server = self.service.server_at(&host, port);
            if !servers
                .iter()
                .any(|known| known.server.address == server.address)
            {
                let server = Arc::new(server);
                servers.push(NamedServer { server, epoch });
            }
        }
        servers
    }

    /// The answer of one sentinel, with its address. The question ends within its own time where nobody waits for it any
    /// more: a sentinel that is slower than most keeps its connection.
    fn ask_one(
        &self,
        sentinel: &Arc<Sentinel>,
    ) -> impl Future<Output = (String, Result<Named, DownReason>)> + use<> {
        let address = sentinel.endpoint.address.to_string();
        let asking = tokio::spawn(Arc::clone(sentinel).ask_within(self.timeout));
        async move {
            let panicked = || DownReason::Unreachable("it could not be asked".to_owned());
            let answer = asking.await.unwrap_or_else(|_| Err(panicked()));
            (address, answer)
        }
    }
}

impl LastUsed {
    fn is_newer_than(&self, named: &NamedServer) -> bool {
        let used = self.named.as_ref();
        used.is_some_and(|used| named.epoch < used.epoch)
    }

    /// The servers to try, in order.
    fn choose(&mut self, named: Vec<NamedServer>, now: Instant) -> Vec<NamedServer> {
        let (older, mut current): (Vec<_>, Vec<_>) = named
            .into_iter()
            .partition(|named| self.is_newer_than(named));
        if !current.is_empty() {
            self.older_since = None;
            return current;
        }
        current.extend(self.named.clone());
        let since = *self.older_since.get_or_insert(now);
        if now.duration_since(since) >= OLDER_AFTER {
            current.extend(older);
        }
        current
    }
}

impl Sentinel {
    async fn ask_within(self: Arc<Self>, at_most: Duration) -> Result<Named, DownReason> {
        let answer = timeout(at_most, self.ask(at_most)).await;
        answer.unwrap_or_else(|_| Err(timed_out())).map_err(|down| match down {
            DownReason::Denied(problem) => DownReason::Denied(format!(
                "the sentinel {}: {problem}; sentinel_username and sentinel_password in store.url are for sentinels",
                self.endpoint.address
            )),
            down => down,
        })
    }

    /// Asks over the connection of the last question, or a new one if that is lost. A question whose time ends takes the
    /// connection with it.
    async fn ask(&self, log_in_within: Duration) -> Result<Named, DownReason> {
        let mut connection = self.connection.lock().await;
        let kept = connection.take();
        if let Some(kept) = kept
            && let Ok(named) = primary_of(&kept, &self.service).await
        {
            *connection = Some(kept);
            return Ok(named);
        }
        let opened = log_in(&self.endpoint, log_in_within, false).await?;
        let named = primary_of(&opened, &self.service).await;
        *connection = Some(opened);
        named
    }
}

impl std::fmt::Debug for Sentinel {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Sentinel({})", self.endpoint.address)
    }
}

/// The address first: during a failover it is the new one before the list of fields has it.
async fn primary_of(connection: &CommandConnection, service: &str) -> Result<Named, DownReason> {
    let ask = |word: &str| -> Cmd {
        let mut command = redis::cmd("SENTINEL");
        command.arg(word).arg(service);
        command
    };
    let address = send(connection, &ask("GET-MASTER-ADDR-BY-NAME")).await?;
    if address == Value::Nil {
        return Err(DownReason::UnknownService(service.to_owned()));
    }
    let (host, port) = match address.as_sequence() {
        Some([host, port]) => (text(host), text(port).and_then(|port| port.parse().ok())),
        _ => (None, None),
    };
    let (Some(host), Some(port)) = (host, port) else {
        let problem = "it does not answer as a sentinel does".to_owned();
        return Err(DownReason::Unreachable(problem));
    };
    let fields = send(connection, &ask("MASTER")).await?;
    let epoch = Fields::of(fields)
        .ok()
        .and_then(|mut fields| fields.take("config-epoch"));
    let epoch = epoch
        .as_ref()
        .and_then(text)
        .and_then(|epoch| epoch.parse().ok());
    // A server that only resembles a sentinel may know no epochs.
    Ok((host.to_owned(), port, epoch.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "tests fail by panicking"
    )]
    use std::sync::atomic::{AtomicUsize, Ordering};

    use mooring_settings::{RedisTopology, RedisUrl};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::sleep;

    use super::*;

    /// The port of a sentinel that answers each command after a while, and how many connections it has accepted.
    async fn start_sentinel(after: Duration) -> (u16, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let accepted = Arc::<AtomicUsize>::default();
        let counter = Arc::clone(&accepted);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(answer(stream, after));
            }
        });
        (port, accepted)
    }

    async fn answer(mut stream: TcpStream, after: Duration) {
        let mut read = [0; 1024];
        while let Ok(length @ 1..) = stream.read(&mut read).await {
            sleep(after).await;
            let command = String::from_utf8_lossy(&read[..length]);
            let reply = match command.contains("GET-MASTER-ADDR-BY-NAME") {
                true => "*2\r\n$9\r\n127.0.0.1\r\n$1\r\n7\r\n",
                false => "*2\r\n$12\r\nconfig-epoch\r\n$1\r\n1\r\n",
            };
            if stream.write_all(reply.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    #[tokio::test]
    async fn a_sentinel_that_is_slower_than_most_keeps_its_connection() {
        let (one, _) = start_sentinel(Duration::ZERO).await;
        let (other, _) = start_sentinel(Duration::ZERO).await;
        let (slow, accepted) = start_sentinel(STRAGGLERS_WITHIN * 2).await;
        let url = format!("redis+sentinel://127.0.0.1:{one},127.0.0.1:{other},127.0.0.1:{slow}/m");
        let url = RedisUrl::parse(&url).unwrap();
        let RedisTopology::Sentinels(service) = url.topology() else {
            unreachable!("sentinels");
        };
        let sentinels = Sentinels::new(service.clone(), Duration::from_secs(30));
        for _ in 0..3 {
            let named = sentinels.ask().await.unwrap();
            assert_eq!((named.len(), named[0].epoch), (1, 1));
        }
        // The lock comes after the questions that nobody waits for.
        let kept = sentinels.nodes[2].connection.lock().await;
        assert!(kept.is_some());
        assert_eq!(accepted.load(Ordering::Relaxed), 1);
    }

    fn named(host: &str, epoch: u64) -> NamedServer {
        let url = RedisUrl::parse(&format!("redis://{host}")).unwrap();
        let RedisTopology::Single(server) = url.topology() else {
            unreachable!("one server");
        };
        NamedServer {
            server: Arc::new(server.clone()),
            epoch,
        }
    }

    #[test]
    fn older_configurations_are_tried_only_when_no_other_was_named_for_long() {
        let mut last = LastUsed::default();
        let tried = |last: &mut LastUsed, all: &[&NamedServer], now| -> Vec<String> {
            let all = all.iter().copied().cloned().collect();
            let servers = last.choose(all, now);
            let hosts = servers.iter().map(|named| named.server.address.host());
            hosts.map(|host| host.unwrap().0.to_owned()).collect()
        };
        let (stale, used, next) = (named("a", 1), named("b", 2), named("c", 3));
        let now = Instant::now();
        assert_eq!(tried(&mut last, &[&stale], now), ["a"]);
        last.named = Some(used.clone());
        assert!(last.is_newer_than(&stale) && !last.is_newer_than(&used));
        assert_eq!(tried(&mut last, &[&next, &stale], now), ["c"]);
        assert_eq!(tried(&mut last, &[&used, &stale], now), ["b"]);
        assert_eq!(tried(&mut last, &[&stale], now), ["b"]);
        let almost = now + OLDER_AFTER - Duration::from_millis(1);
        assert_eq!(tried(&mut last, &[&stale], almost), ["b"]);
        assert_eq!(tried(&mut last, &[&stale], now + OLDER_AFTER), ["b", "a"]);
    }
}
