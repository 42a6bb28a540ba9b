//! How soon an operator finds one of 100,000 sessions, and sees how they are spread.
//!
//! Before the store's indexes were asked, each of these read the records of all sessions, as a search for a label still does:
//! that is the figure to compare with. Invariant: what is looked up was not shown by this gateway before, so that its memory
//! of keys does not help.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use mooring_tests::client::HttpClient;
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::{Module, Redis};
use serde_json::Value;

use crate::figures::percentile;

const SESSIONS: usize = 100_000;
/// Sessions of one user.
const OF_A_USER: usize = 5;
const INSTANCES: usize = 8;
const GATEWAYS: usize = 12;
/// Look-ups of each kind.
const LOOK_UPS: usize = 40;
/// Counts, and times that all records are read.
const ROUNDS: usize = 5;
/// A gateway uses a count for five seconds.
const COUNT_IS_OLD_AFTER: Duration = Duration::from_millis(5_200);
const DIGITS: usize = 8;
const MS_PER_SECOND: f64 = 1000.0;

/// The table.
pub(crate) async fn measure() -> anyhow::Result<String> {
    let arguments = ["--appendonly", "no", "--hash-max-listpack-value", "512"];
    let redis = Redis::start_with(Module::Loaded, &arguments).await?;
    fill(&redis)?;
    let keys = FleetKeys::new()?;
    let settings = Settings::toml(format!(
        "[store]\nurl = {:?}\ncommand_timeout_ms = 10000\n\n[affinity]\nenabled = true\n\n[worker]\n{}\n\
         [[servers]]\nid = \"tools\"\nkind = \"http\"\ninstances = [\"http://127.0.0.1:9/mcp\"]\n",
        redis.url(),
        keys.toml(),
    ));
    let other = Gateway::start("other", settings.clone()).await?;
    let asked = Operator::of(Gateway::start("asked", settings).await?);
    let digests = digests(&Operator::of(other)).await?;
    let (first, rest) = digests.split_at_checked(LOOK_UPS).context("digests")?;
    let (second, third) = rest.split_at_checked(LOOK_UPS).context("digests")?;
    let mut lines = vec![
        format!("### Operators, with {SESSIONS} sessions"),
        String::new(),
        "| | p50 ms | p95 ms | of reading all records |".to_owned(),
        "|---|---|---|---|".to_owned(),
    ];
    let mut all = Vec::new();
    for _ in 0..ROUNDS {
        all.push(asked.walk("/admin/sessions?text=label:none").await?);
    }
    let all = Figures::of(all);
    lines.push(format!(
        "| all records read | {:.0} | {:.0} | 1 |",
        all.p50, all.p95
    ));
    let mut line = |name: &str, times: Vec<Duration>| {
        let figures = Figures::of(times);
        let ratio = figures.p50 / all.p50;
        lines.push(format!(
            "| {name} | {:.1} | {:.1} | {ratio:.4} |",
            figures.p50, figures.p95
        ));
    };
    let paths = first
        .iter()
        .map(|digest| format!("/admin/sessions/{digest}"));
    line("a session by its digest", asked.time_all(paths).await?);
    let digits = second.iter().filter_map(|digest| digest.get(..DIGITS));
    let paths = digits.map(|digits| format!("/admin/sessions/{digits}"));
    line("by eight digits of it", asked.time_all(paths).await?);
    let paths = third
        .iter()
        .map(|digest| format!("/admin/sessions/{digest}/history"));
    line("the life line of a session", asked.time_all(paths).await?);
    let users = (0..LOOK_UPS).map(|n| format!("/admin/sessions?text=ER-{:05}@EX", n * 137));
    line(
        "sessions by a part of the user",
        asked.time_all(users).await?,
    );
    let nobody = (0..LOOK_UPS).map(|n| format!("/admin/sessions?text=nobody-{n}"));
    let mut searches = Vec::new();
    for path in nobody {
        searches.push(asked.walk(&path).await?);
    }
    line("a part that no session has", searches);
    let mut counts = Vec::new();
    for _ in 0..ROUNDS {
        tokio::time::sleep(COUNT_IS_OLD_AFTER).await;
        counts.extend(
            asked
                .time_all(std::iter::once("/admin/fleet".to_owned()))
                .await?,
        );
    }
    line("the fleet", counts);
    Ok(lines.join("\n"))
}

/// Makes the sessions, over one connection.
fn fill(redis: &Redis) -> anyhow::Result<()> {
    let mut script = String::new();
    for gateway in 0..GATEWAYS {
        writeln!(
            script,
            "WORKER.BEAT gateway-{gateway}:b 127.0.0.1:{gateway} TTL 600000"
        )?;
    }
    for session in 0..SESSIONS {
        let (user, instance) = (session / OF_A_USER, session % INSTANCES);
        let of = format!("mcpgw:session_affinity:{session:034} ");
        writeln!(
            script,
            "SESSION.CREATE {of}s{session} user-{user:05}@example.org TTL 3600000 LABEL client bench"
        )?;
        writeln!(
            script,
            "SESSION.BIND {of}user-{user:05}@example.org tools gateway-{}:b t LEASE 60000 INSTANCES 1 \
             http://10.0.0.{instance}:9000/mcp UPSTREAM u{session}",
            session % GATEWAYS
        )?;
    }
    let mut cli = Command::new("redis-cli")
        .args(["-p", &redis.port().to_string(), "--pipe"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("start redis-cli")?;
    let mut input = cli.stdin.take().context("its input")?;
    let writer =
        std::thread::spawn(move || input.write_all(script.replace('\n', "\r\n").as_bytes()));
    let output = cli.wait_with_output()?;
    writer.join().ok().context("write the commands")??;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(text.contains("errors: 0,"), "{text}");
    Ok(())
}

/// Digests of sessions.
async fn digests(operator: &Operator) -> anyhow::Result<Vec<String>> {
    let list = operator
        .get("/admin/sessions?limit=500&order=oldest")
        .await?;
    let sessions = list.get("sessions").and_then(Value::as_array);
    let sessions = sessions.context("sessions")?.iter();
    let digests = sessions.filter_map(|session| session.get("session")?.as_str());
    Ok(digests.map(str::to_owned).collect())
}

/// An operator of a gateway.
struct Operator {
    gateway: Gateway,
    client: HttpClient,
}

impl Operator {
    fn of(gateway: Gateway) -> Self {
        Self {
            gateway,
            client: HttpClient::default(),
        }
    }

    async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let reply = self.client.get(&self.gateway.url(path)).await?;
        let status = reply.status;
        let text = reply.text().await?;
        ensure!(status == 200, "{path}: {status}: {text}");
        Ok(serde_json::from_str(&text)?)
    }

    /// How long each of these takes.
    async fn time_all(&self, paths: impl Iterator<Item = String>) -> anyhow::Result<Vec<Duration>> {
        let mut times = Vec::new();
        for path in paths {
            let started = Instant::now();
            self.get(&path).await?;
            times.push(started.elapsed());
        }
        Ok(times)
    }

    /// How long all pages of a list take.
    async fn walk(&self, path: &str) -> anyhow::Result<Duration> {
        let started = Instant::now();
        let mut page = self.get(path).await?;
        while let Some(cursor) = page.get("next_cursor").and_then(Value::as_str) {
            page = self.get(&format!("{path}&cursor={cursor}")).await?;
        }
        Ok(started.elapsed())
    }
}

/// Percentiles in milliseconds.
struct Figures {
    p50: f64,
    p95: f64,
}

impl Figures {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let ms = |part| percentile(&times, part).as_secs_f64() * MS_PER_SECOND;
        Self {
            p50: ms(0.5),
            p95: ms(0.95),
        }
    }
}
