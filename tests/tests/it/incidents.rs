//! Four incidents in a live fleet, found with the commands of docs/incidents.md as they are printed there.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::pages;
use mooring_tests::paths;
use mooring_tests::redis::Redis;
use mooring_tests::session::{McpSession, Opening};
use mooring_tests::wait;
use serde_json::json;
use tempfile::TempDir;

/// How long something that is under way may take on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// Three gateways that write their logs where an operator finds them.
struct Scene {
    gateways: Vec<Gateway>,
    logs: TempDir,
    config: String,
    _redis: Redis,
    orders: Fixture,
    _keys: FleetKeys,
}

impl Scene {
    async fn start() -> anyhow::Result<Self> {
        let (redis, orders) = (Redis::start().await?, Fixture::start("orders").await?);
        let (keys, logs) = (FleetKeys::new()?, TempDir::new()?);
        let toml = format!(
            "[store]\nurl = {:?}\n[affinity]\nenabled = true\n[worker]\n{}\
             [auth]\nmode = \"trusted-header\"\ntrusted_peers = [\"127.0.0.1\"]\n\
             [[servers]]\nid = \"orders\"\nkind = \"http\"\nconcurrency = \"parallel\"\ninstances = [{:?}]\n\
             [[servers.allow]]\nteams = [\"sales\"]\n",
            redis.url(),
            keys.toml(),
            orders.url(),
        );
        let config = logs.path().join("mooring.toml").display().to_string();
        std::fs::write(&config, &toml)?;
        let mut gateways = Vec::new();
        for number in 1..=3 {
            let log = logs.path().join(format!("{number}.log"));
            let settings = Settings::toml(&toml).stderr(&log);
            gateways.push(Gateway::start(&format!("gateway-{number}"), settings).await?);
        }
        Ok(Self {
            gateways,
            logs,
            config,
            _redis: redis,
            orders,
            _keys: keys,
        })
    }

    /// A session whose requests go to the gateways in turn.
    async fn session(&self, user: &str, team: &str) -> anyhow::Result<McpSession> {
        let endpoints: Vec<String> = (self.gateways.iter())
            .map(|gateway| gateway.mcp_url("orders"))
            .collect();
        let opening = Opening::default()
            .header("x-mooring-user", user)?
            .header("x-mooring-teams", team)?;
        McpSession::open_with(&HttpClient::default(), &endpoints, opening).await
    }

    /// What the steps under this heading of the page print, one after another.
    fn steps(&self, heading: &str) -> anyhow::Result<Vec<String>> {
        const MARK: &str = "--- next step ---";
        let steps = pages::commands("incidents.md", &format!("## {heading}"))?;
        ensure!(steps.len() == 3, "{} steps for {heading:?}", steps.len());
        let script = steps.join(&format!("\necho '{MARK}'\n"));
        let urls: Vec<String> = self
            .gateways
            .iter()
            .map(|gateway| gateway.url(""))
            .collect();
        let binaries = paths::binary("mooring")?;
        let binaries = binaries.parent().context("a directory of binaries")?;
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new("bash")
            .args(["-c", &format!("set -eu\n{script}")])
            .env_clear()
            .env("PATH", format!("{}:{path}", binaries.display()))
            .env("HOME", self.logs.path())
            .env("LOGS", format!("{}/*.log", self.logs.path().display()))
            .env("GATEWAYS", urls.join(" "))
            .env("CONFIG", &self.config)
            .output()?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{heading}: {}: {errors}\n{printed}",
            output.status
        );
        Ok(printed.split(MARK).map(str::to_owned).collect())
    }

    fn log(&self) -> String {
        let read = |number| std::fs::read_to_string(self.logs.path().join(format!("{number}.log")));
        (1..=3).filter_map(|number| read(number).ok()).collect()
    }
}

#[tokio::test]
async fn a_slow_upstream_over_event_streams_is_found() -> anyhow::Result<()> {
    let scene = Scene::start().await?;
    let mut session = scene.session("ada", "sales").await?;
    for _ in 0..3 {
        session.call("slow", json!({"ms": 2000})).await?;
    }
    wait::until_logged("tool=slow", 3, || scene.log()).await?;
    let steps = scene.steps("An upstream server is slow")?;
    let [lines, times, waiting] = steps.as_slice() else {
        anyhow::bail!("{steps:?}")
    };
    let slow: Vec<f64> = lines
        .lines()
        .filter(|line| line.contains("instance=http://127.0.0.1") && line.contains("tool=slow"))
        .filter_map(|line| line.rsplit_once("ms=")?.1.parse().ok())
        .collect();
    ensure!(
        slow.len() == 3 && slow.iter().all(|ms| *ms >= 2000.0),
        "{lines}"
    );
    let sum_of = |name: &str| -> f64 {
        let lines = times.lines().filter(|line| line.starts_with(name));
        let values = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        values.sum()
    };
    let count = sum_of("mooring_upstream_duration_seconds_count");
    let sum = sum_of("mooring_upstream_duration_seconds_sum");
    ensure!((count - 3.0).abs() < 0.5 && sum >= 6.0, "{times}");
    ensure!(waiting.contains("requests_in_flight"), "{waiting}");
    Ok(())
}

#[tokio::test]
async fn a_session_that_floods_is_found_and_ended() -> anyhow::Result<()> {
    let scene = Scene::start().await?;
    let mut quiet = scene.session("ada", "sales").await?;
    let mut loud = scene.session("sam", "sales").await?;
    quiet.increment().await?;
    for _ in 0..90 {
        loud.increment().await?;
    }
    let steps = scene.steps("A session floods")?;
    let [top, shown, whose] = steps.as_slice() else {
        anyhow::bail!("{steps:?}")
    };
    let rows = |title: &str| -> Vec<Vec<String>> {
        let table = top.split(title).nth(1).unwrap_or_default();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        table.lines().skip(1).take(1).map(words).collect()
    };
    let (user, session) = (rows("USER ").concat(), rows("SESSION ").concat());
    let of_sam = whose.lines().find(|line| line.ends_with(" sam"));
    let of_sam = of_sam
        .and_then(|line| line.split(' ').next())
        .context("a digest")?;
    ensure!(
        of_sam.len() == 16 && user.first().is_some_and(|of| of == of_sam),
        "{top}\n{whose}"
    );
    // The calls, initialize and initialized.
    let calls: u64 = user.get(1).context("calls")?.parse()?;
    ensure!(calls == 92, "{top}");
    ensure!(session.contains(&"orders".to_owned()), "{top}");
    let digest = session.first().context("a session")?;
    ensure!(
        shown.contains(digest.as_str()) && shown.contains("sam"),
        "{shown}"
    );
    ensure!(loud.increment().await.is_err(), "it is ended");
    quiet.increment().await?;
    Ok(())
}

#[tokio::test]
async fn why_a_session_has_lost_its_state_is_found() -> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    let mut session = scene.session("ada", "sales").await?;
    session.increment().await?;
    scene.orders.restart().await?;
    session.increment().await?;
    wait::until_logged("session rebound", 1, || scene.log()).await?;
    // The history follows within a moment.
    wait::until("the move in the history", SOON, async || {
        let steps = scene.steps("A session has lost what it had")?;
        let [_, shown, why] = steps.as_slice() else {
            anyhow::bail!("{steps:?}")
        };
        let is_found = shown.contains("orders has a new upstream session at")
            && shown.contains("the state it had there is lost")
            && shown.contains("created by")
            && why.contains("nothing in the store makes a call of the session wait");
        Ok(is_found.then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_user_who_is_refused_is_found() -> anyhow::Result<()> {
    let scene = Scene::start().await?;
    for _ in 0..3 {
        let refused = scene.session("zoe", "marketing").await;
        ensure!(refused.is_err(), "zoe is in no team of the rule");
    }
    wait::until_logged("user may not use the server", 1, || scene.log()).await?;
    let steps = scene.steps("A user is refused")?;
    let [lines, whoami, explained] = steps.as_slice() else {
        anyhow::bail!("{steps:?}")
    };
    let rows: Vec<&str> = lines.lines().skip(1).collect();
    ensure!(
        !rows.is_empty()
            && rows
                .iter()
                .all(|row| row.ends_with("no rule of servers.allow fits")),
        "{lines}"
    );
    ensure!(rows.iter().all(|row| row.contains("orders")), "{lines}");
    let log = scene.log();
    let digest = log.split("user=").nth(1).and_then(|rest| rest.get(..16));
    let digest = digest.context("a digest")?;
    ensure!(
        whoami.contains(digest) && whoami.contains("teams: marketing"),
        "{whoami}"
    );
    ensure!(whoami.contains("servers: none"), "{whoami}");
    ensure!(
        explained.contains("server orders (http): may not use it"),
        "{explained}"
    );
    Ok(())
}
