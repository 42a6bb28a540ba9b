//! Every gateway of a fleet is stopped in order and started again while clients work, or the module of its Redis is
//! exchanged: nobody is refused for good, and whoever loses state is told so.
//!
//! The clients are behind what a load balancer is: a request goes to the next gateway where the connection was refused or
//! the answer was 503 with Retry-After, and nothing else is tried again. Or they are behind a real one, and try nothing again.

mod thousand_sessions;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use mooring_tests::client::HttpClient;
use mooring_tests::code::CodeVolume;
use mooring_tests::fixture::{Fixture, stdio_command};
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::nginx::Nginx;
use mooring_tests::paths::redis_module;
use mooring_tests::process_tree::started_with;
use mooring_tests::redis::Redis;
use mooring_tests::session::{Exchange, McpSession, read_exchange};
use mooring_tests::wait;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::recovery::{count_of, mark_of, readiness};

/// Sessions of the two counting servers, each.
const SESSIONS: usize = 3;
/// Calls that every session makes between one restart and the next.
const CALLS_BETWEEN: u64 = 10;
/// How long something that is under way may take on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// Rounds of the soak test, unless the variable `RESTARTS` has another number.
const ROUNDS: usize = 50;

/// Between two attempts at a request that nobody has taken.
const PAUSE: Duration = Duration::from_millis(20);

/// The name of a test's child processes, which no other test's have.
fn instance(test: &str) -> String {
    format!("{test}-{}", std::process::id())
}

/// One session behind a load balancer.
struct Balanced {
    session: McpSession,
    endpoints: Vec<String>,
    next: usize,
    id: u64,
    interruption: Interruption,
}

/// What is interrupted while clients call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interruption {
    /// A gateway, which is stopped and started again.
    Gateway,
    /// The same behind nginx, where every request has to succeed.
    GatewayOfBalancer,
    /// The store, which lacks its module for a moment.
    Store,
}

impl Balanced {
    async fn open(endpoints: &[String], interruption: Interruption) -> anyhow::Result<Self> {
        Ok(Self {
            session: McpSession::open(&HttpClient::default(), endpoints).await?,
            endpoints: endpoints.to_owned(),
            next: 0,
            id: 100,
            interruption,
        })
    }

    /// Calls a tool; the whole of the first answer that is one.
    async fn call(&mut self, tool: &str, arguments: Value) -> anyhow::Result<Exchange> {
        self.id += 1;
        let params = json!({"name": tool, "arguments": arguments});
        let request =
            json!({"jsonrpc": "2.0", "id": self.id, "method": "tools/call", "params": params});
        let answered = async {
            loop {
                if let Some(exchange) = self.attempt(&request).await? {
                    return Ok(exchange);
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::time::timeout(SOON, answered)
            .await
            .with_context(|| format!("no gateway takes {request}"))?
    }

    /// Asks the next gateway, over a connection of its own; none where that took nothing.
    async fn attempt(&mut self, request: &Value) -> anyhow::Result<Option<Exchange>> {
        let endpoint = self.endpoints[self.next % self.endpoints.len()].clone();
        self.next += 1;
        let client = HttpClient::default();
        let reply = match self.session.fork(&client, &[endpoint]).post(request).await {
            Err(error) if is_refused(&error) => return Ok(None),
            reply => reply?,
        };
        if self.interruption == Interruption::GatewayOfBalancer {
            ensure!(reply.status == 200, "{}: {request}", reply.status);
        }
        if reply.status == 503 && reply.header("retry-after").is_some() {
            return Ok(None);
        }
        let exchange = read_exchange(reply, request).await?;
        let is_refused = self.interruption == Interruption::Store && lacks_store(&exchange);
        Ok(Some(exchange).filter(|_| !is_refused))
    }
}

/// Whether a code server, which answers a call itself, says that it did nothing for want of the store.
fn lacks_store(exchange: &Exchange) -> bool {
    let error = &exchange.response["result"]["structuredContent"]["error"];
    error.as_str().is_some_and(|error| {
        error.starts_with("the session store is not available; nothing was done")
    })
}

/// Whether nobody listens there.
fn is_refused(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let cause = cause.downcast_ref::<io::Error>();
        cause.is_some_and(|cause| cause.kind() == io::ErrorKind::ConnectionRefused)
    })
}

/// What a load does, call by call.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// A count behind HTTP: it never starts again.
    Http,
    /// A count in a child process: it starts again only where the same reply says so.
    Stdio,
    /// A file that every run makes longer.
    Code,
}

/// One that runs, and how many calls it has made.
struct Running {
    task: tokio::task::JoinHandle<anyhow::Result<u64>>,
    calls: watch::Receiver<u64>,
}

impl Load {
    const fn server(self) -> &'static str {
        match self {
            Self::Http => "tools",
            Self::Stdio => "child",
            Self::Code => "sandbox",
        }
    }

    async fn start(
        self,
        endpoints: &[String],
        interruption: Interruption,
        stop: &Arc<AtomicBool>,
    ) -> anyhow::Result<Running> {
        let path = format!("/servers/{}/mcp", self.server());
        let endpoints: Vec<String> = (endpoints.iter())
            .map(|endpoint| format!("{endpoint}{path}"))
            .collect();
        let client = Balanced::open(&endpoints, interruption).await?;
        let (sender, calls) = watch::channel(0);
        let task = tokio::spawn(self.run(client, Arc::clone(stop), sender));
        Ok(Running { task, calls })
    }

    /// Calls until it is told to stop; how often state was lost.
    async fn run(
        self,
        mut client: Balanced,
        stop: Arc<AtomicBool>,
        calls: watch::Sender<u64>,
    ) -> anyhow::Result<u64> {
        let (mut count, mut losses) = (0, 0);
        while !stop.load(Ordering::SeqCst) {
            let lost = self.call(&mut client, &mut count).await;
            losses += u64::from(lost.with_context(|| format!("{self:?}"))?);
            calls.send_modify(|calls| *calls += 1);
        }
        Ok(losses)
    }

    /// One call, checked; whether it says that state was lost.
    async fn call(self, client: &mut Balanced, count: &mut u64) -> anyhow::Result<bool> {
        let (exchange, counted) = match self {
            Self::Http | Self::Stdio => {
                let exchange = client.call("increment", json!({})).await?;
                let counted = count_of(&exchange);
                (exchange, counted)
            }
            Self::Code => {
                let code =
                    "open('/scratch/n', 'a').write('x'); print(len(open('/scratch/n').read()))";
                let arguments = json!({"code": code, "language": "python"});
                let exchange = client.call("shell_exec", arguments).await?;
                let output = exchange.response["result"]["structuredContent"]["output"].as_str();
                let counted = output.and_then(|output| output.trim().parse().ok());
                (exchange, counted)
            }
        };
        let is_lost = mark_of(&exchange).is_some();
        ensure!(
            !is_lost || matches!(self, Self::Stdio),
            "nothing of it can be lost: {exchange:?}"
        );
        let expected = if is_lost { 1 } else { *count + 1 };
        ensure!(
            counted == Some(expected),
            "{counted:?} after {count}: {exchange:?}"
        );
        *count = expected;
        Ok(is_lost)
    }
}

/// Waits until every load has made some more calls; fails at once where one has failed.
async fn some_more(loads: &[Running]) -> anyhow::Result<()> {
    for load in loads {
        let target = *load.calls.borrow() + CALLS_BETWEEN;
        wait::until_true("more calls", SOON, async || {
            Ok(*load.calls.borrow() >= target || load.task.is_finished())
        })
        .await?;
    }
    Ok(())
}

fn settings(
    redis: &Redis,
    fixtures: &[Fixture],
    keys: &FleetKeys,
    volume: &CodeVolume,
    instance: &str,
) -> anyhow::Result<Settings> {
    let urls: Vec<String> = fixtures.iter().map(Fixture::url).collect();
    let command = stdio_command(instance, None, &[])?;
    let toml = format!(
        "[store]\nurl = {:?}\n\n[affinity]\nenabled = true\n\n[worker]\n{}\n\
         [[servers]]\nid = \"tools\"\nkind = \"http\"\ninstances = {urls:?}\n\n\
         [[servers]]\nid = \"child\"\nkind = \"stdio\"\ncommand = {command:?}\n\n\
         [[servers]]\nid = \"sandbox\"\nkind = \"code\"\n\
         sandbox_policy = {{ max_runs_per_minute = 1000 }}\nmount_rules = {{ exclude_servers = [\"*\"] }}\n",
        redis.url(),
        keys.toml(),
    );
    let path = volume.path().display().to_string();
    Ok(Settings::toml(toml).env("MOORING_CODE_BASE_DIR", &path))
}

/// Sessions of both counting servers.
async fn counting_loads(
    endpoints: &[String],
    interruption: Interruption,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Vec<Running>> {
    let mut loads = Vec::new();
    for _ in 0..SESSIONS {
        loads.push(Load::Http.start(endpoints, interruption, stop).await?);
        loads.push(Load::Stdio.start(endpoints, interruption, stop).await?);
    }
    Ok(loads)
}

/// Sessions of both counting servers, and one of code.
async fn start_loads(
    gateways: &[Gateway],
    interruption: Interruption,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Vec<Running>> {
    let endpoints: Vec<String> = gateways.iter().map(|gateway| gateway.url("")).collect();
    let mut loads = counting_loads(&endpoints, interruption, stop).await?;
    loads.push(Load::Code.start(&endpoints, interruption, stop).await?);
    some_more(&loads).await?;
    Ok(loads)
}

/// Ends the loads; how often they lost state.
async fn stop_loads(loads: Vec<Running>, stop: &AtomicBool) -> anyhow::Result<u64> {
    stop.store(true, Ordering::SeqCst);
    let mut losses = 0;
    for load in loads {
        // A panic shows the logs of all processes.
        losses += load.task.await?.unwrap_or_else(|error| panic!("{error:?}"));
    }
    Ok(losses)
}

async fn initializes(fixtures: &[Fixture]) -> anyhow::Result<usize> {
    let mut initializes = 0;
    for fixture in fixtures {
        initializes += usize::try_from(fixture.stats().await?.initializes)?;
    }
    Ok(initializes)
}

#[tokio::test]
async fn every_gateway_is_restarted_in_turn_and_no_request_fails() -> anyhow::Result<()> {
    let (redis, keys, volume) = (Redis::start().await?, FleetKeys::new()?, CodeVolume::new()?);
    let fixtures = [Fixture::start("a").await?, Fixture::start("b").await?];
    let instance = instance("rolling");
    let settings = settings(&redis, &fixtures, &keys, &volume, &instance)?;
    let mut gateways = Gateway::fleet(3, &settings).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let loads = start_loads(&gateways, Interruption::Gateway, &stop).await?;
    for gateway in &mut gateways {
        let status = gateway.process().terminate().await?;
        assert!(status.success(), "{status}");
        gateway.restart().await?;
        some_more(&loads).await?;
    }
    let losses = stop_loads(loads, &stop).await?;

    // Every child had one owner, which was stopped at least once.
    let sessions = u64::try_from(SESSIONS)?;
    assert!(losses >= sessions, "{losses} losses of {sessions} sessions");
    let initializes = initializes(&fixtures).await?;
    assert_eq!(initializes, SESSIONS, "no session behind HTTP was moved");
    wait::until_true("one child for each session", SOON, async || {
        Ok(started_with(&instance)?.len() == SESSIONS)
    })
    .await?;
    for gateway in &mut gateways {
        let status = gateway.process().terminate().await?;
        assert!(status.success(), "{status}");
    }
    assert_eq!(started_with(&instance)?.len(), 0, "no child is left");
    Ok(())
}

/// Restarts all gateways behind nginx, this many times: every request of every session succeeds at the first attempt, and each
/// count that begins anew says so.
async fn restart_behind_nginx(rounds: usize) -> anyhow::Result<()> {
    let (redis, keys, volume) = (Redis::start().await?, FleetKeys::new()?, CodeVolume::new()?);
    let fixtures = [Fixture::start("a").await?, Fixture::start("b").await?];
    let instance = instance("balanced");
    let settings = settings(&redis, &fixtures, &keys, &volume, &instance)?;
    let settings = settings.env("MOORING_WORKER_LEAVE_MS", "200");
    let mut gateways = Gateway::fleet(3, &settings).await?;
    let ports: Vec<u16> = gateways.iter().map(Gateway::port).collect();
    let nginx = Nginx::start_trying_all(&ports).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let interruption = Interruption::GatewayOfBalancer;
    let loads = counting_loads(&[nginx.url("")], interruption, &stop).await?;
    some_more(&loads).await?;
    for _ in 0..rounds {
        for gateway in &mut gateways {
            let status = gateway.process().terminate().await?;
            assert!(status.success(), "{status}");
            gateway.restart().await?;
            some_more(&loads).await?;
        }
    }
    let losses = stop_loads(loads, &stop).await?;
    let sessions = u64::try_from(SESSIONS)?;
    assert!(losses >= sessions, "{losses} losses of {sessions} sessions");
    assert_eq!(
        initializes(&fixtures).await?,
        SESSIONS,
        "no session behind HTTP was moved"
    );
    Ok(())
}

#[tokio::test]
async fn a_rolling_restart_behind_nginx_fails_no_request_and_marks_each_loss() -> anyhow::Result<()>
{
    restart_behind_nginx(1).await
}

#[tokio::test]
#[ignore = "soak"]
async fn soak_many_rolling_restarts_behind_nginx_fail_no_request() -> anyhow::Result<()> {
    let rounds = std::env::var("RESTARTS").ok();
    let rounds = rounds.map_or(Ok(ROUNDS), |rounds| rounds.parse())?;
    restart_behind_nginx(rounds).await
}

/// As docs/operating-redis.md describes it, with the module of the same build.
async fn exchange_module(redis: &Redis) -> anyhow::Result<()> {
    redis.cli(&["CONFIG", "SET", "mooring.quiesce", "yes"])?;
    let unload = ["MODULE", "UNLOAD", "mooring"];
    wait::until_true("the module to be unloaded", SOON, async || {
        Ok(redis.cli(&unload).is_ok())
    })
    .await?;
    let module = redis_module()?.display().to_string();
    redis.cli(&["MODULE", "LOAD", &module])?;
    Ok(())
}

/// Each call is answered in order, and tells of no loss. In between a client may see 503 with Retry-After, and from code
/// servers an error that says that nothing was done, nothing else.
#[tokio::test]
async fn the_module_is_exchanged_under_two_gateways_and_no_request_fails() -> anyhow::Result<()> {
    const EXCHANGES: usize = 3;
    let (redis, keys, volume) = (Redis::start().await?, FleetKeys::new()?, CodeVolume::new()?);
    let fixtures = [Fixture::start("a").await?, Fixture::start("b").await?];
    let instance = instance("exchange");
    let settings = settings(&redis, &fixtures, &keys, &volume, &instance)?;
    let gateways = Gateway::fleet(2, &settings).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let loads = start_loads(&gateways, Interruption::Store, &stop).await?;
    let children = started_with(&instance)?;
    for _ in 0..EXCHANGES {
        exchange_module(&redis).await?;
        some_more(&loads).await?;
    }
    assert_eq!(stop_loads(loads, &stop).await?, 0, "sessions lost state");
    assert_eq!(initializes(&fixtures).await?, SESSIONS);
    assert_eq!(started_with(&instance)?, children, "a child was replaced");
    let stats = redis.cli(&["SESSION.STATS"])?;
    let of_all = format!("sessions_active\n{}", 2 * SESSIONS + 1);
    assert!(stats.contains(&of_all), "{stats}");
    for gateway in &gateways {
        wait::until_true("the gateway to be ready", SOON, async || {
            Ok(readiness(gateway).await?.1 == "ok")
        })
        .await?;
    }
    Ok(())
}
