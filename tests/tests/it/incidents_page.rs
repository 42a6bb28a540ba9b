//! Five incidents in a live fleet, each found at the operators' page in three looks or fewer, as docs/incidents.md says, and
//! its pages clean for axe in both themes. A look is a page that is opened or followed to.
//!
//! `MOORING_PAGE_IMAGES=docs/images cargo test --workspace --test it incidents_page::` makes the pictures of the guide anew.

use std::time::Duration;

use anyhow::Context as _;
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::{Fixture, stdio_command};
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::Redis;
use mooring_tests::session::{McpSession, Opening};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::keyed::stdio_table;
use crate::page::{browse, check, follow_link, look, look_and_picture, open, press_button, see};

/// Most looks until the cause is found.
const LOOKS_MAX: usize = 3;

/// Three gateways with a server of two instances and one that is a program, and the page of the first gateway.
struct IncidentFleet {
    gateways: Vec<Gateway>,
    orders: Vec<Fixture>,
    home: TempDir,
    client: HttpClient,
    _redis: Redis,
    _keys: FleetKeys,
}

impl IncidentFleet {
    async fn start() -> anyhow::Result<Self> {
        let (redis, keys, home) = (Redis::start().await?, FleetKeys::new()?, TempDir::new()?);
        let orders = vec![Fixture::start("one").await?, Fixture::start("two").await?];
        let instances: Vec<String> = orders.iter().map(Fixture::url).collect();
        let toml = format!(
            "[store]\nurl = {:?}\n[affinity]\nenabled = true\n[log]\nslow_request_ms = 300\n\
             [worker]\nbeat_interval_ms = 100\nbeat_ttl_ms = 3000\n{}\n\
             [auth]\nmode = \"trusted-header\"\ntrusted_peers = [\"127.0.0.1\"]\n\
             [[servers]]\nid = \"orders\"\nkind = \"http\"\ninstances = {instances:?}\n\
             [[servers.allow]]\nteams = [\"sales\"]\n{}[[servers.allow]]\nteams = [\"sales\"]\n",
            redis.url(),
            keys.toml(),
            stdio_table("notes", &stdio_command("notes", None, &[])?),
        );
        Ok(Self {
            gateways: Gateway::fleet(3, &Settings::toml(toml)).await?,
            orders,
            home,
            client: HttpClient::new(Duration::from_secs(90)),
            _redis: redis,
            _keys: keys,
        })
    }

    /// A session whose requests go to these gateways in turn.
    async fn session(
        &self,
        (user, team): (&str, &str),
        server: &str,
        gateways: &[usize],
    ) -> anyhow::Result<McpSession> {
        let opening = Opening::default()
            .header("x-mooring-user", user)?
            .header("x-mooring-teams", team)?;
        let endpoints = self.endpoints(server, gateways);
        McpSession::open_with(&self.client, &endpoints, opening).await
    }

    fn endpoints(&self, server: &str, gateways: &[usize]) -> Vec<String> {
        let gateways = gateways.iter();
        gateways
            .map(|gateway| self.gateways[*gateway].mcp_url(server))
            .collect()
    }

    /// The instance that has got calls of this tool.
    async fn instance_with(&mut self, tool: &str) -> anyhow::Result<&mut Fixture> {
        for fixture in &mut self.orders {
            if fixture.stats().await?.calls_of(tool) > 0 {
                return Ok(fixture);
            }
        }
        anyhow::bail!("no instance has got a call of {tool}")
    }

    /// Takes these steps as an operator, and checks the pages that were looked at.
    async fn find(&self, steps: Vec<Value>, pages: &[&str]) -> anyhow::Result<()> {
        let is_look = |step: &&Value| step.get("open").or(step.get("follow")).is_some();
        let looks = steps.iter().filter(is_look).count();
        assert!(looks <= LOOKS_MAX, "{looks} looks");
        let operator = json!({"headers": {"x-mooring-user": "olga", "x-mooring-roles": "admin"}});
        let steps = [vec![operator], steps].concat();
        let report = browse(&self.gateways, &self.home, steps.into()).await?;
        check(&report, pages);
        Ok(())
    }
}

const ADA: (&str, &str) = ("ada", "sales");

/// A row of a table with all these texts, on a page that changes by itself.
fn row(texts: &[&str]) -> Value {
    json!({ "row": texts })
}

/// The same on a page that has to be loaded again.
fn row_after_reload(texts: &[&str]) -> Value {
    json!({"row": texts, "reload": true})
}

/// Follows the first link of the row with this text, in the table of this name.
fn follow_row(table: &str, text: &str) -> Value {
    json!({"follow": format!("[aria-label={table:?}] tr:has-text({text:?}) a")})
}

#[tokio::test]
async fn an_instance_that_has_become_slow_is_found_and_parked() -> anyhow::Result<()> {
    let mut fleet = IncidentFleet::start().await?;
    let mut sessions = Vec::new();
    for gateway in 0..3 {
        let mut session = fleet.session(ADA, "orders", &[gateway]).await?;
        session.increment().await?;
        sessions.push(session);
    }
    for _ in 0..2 {
        sessions[1].call("slow", json!({"ms": 2000})).await?;
    }
    let slow = fleet.instance_with("slow").await?.url();
    let steps = vec![
        open("/ui/traffic"),
        row(&["orders", &slow, "slow"]),
        row(&["gateway-3"]),
        look_and_picture("incident-slow", "light"),
        follow_row("Exchanges with instances", &slow),
        row(&[&slow, "Park"]),
        look("server"),
        json!({"follow": format!("[aria-label=Instances] tr:has-text({slow:?}) a:text('Park')")}),
        see("If you confirm"),
        press_button("Park"),
        see("it gets nothing new"),
    ];
    fleet.find(steps, &["incident-slow", "server"]).await
}

#[tokio::test]
async fn a_gateway_that_has_died_is_found_with_what_it_took_along() -> anyhow::Result<()> {
    let mut fleet = IncidentFleet::start().await?;
    let mut session = fleet.session(ADA, "notes", &[2]).await?;
    session.increment().await?;
    fleet.gateways[2].process().kill_now()?;
    let mut next = session.fork(&fleet.client, &fleet.endpoints("notes", &[0]));
    assert_eq!(next.increment().await?, 1, "the process has gone with it");
    let steps = vec![
        open("/ui/fleet"),
        row(&["gateway-3", "dead"]),
        row(&["gateway-1", "serving"]),
        look_and_picture("incident-gateway", "light"),
        open("/ui/sessions?text=user%3Aada"),
        follow_row("Sessions", "notes"),
        see("the state it had there is lost"),
        look_and_picture("incident-moved", "light"),
    ];
    fleet
        .find(steps, &["incident-gateway", "incident-moved"])
        .await
}

#[tokio::test]
async fn a_session_that_floods_is_found_at_the_page_and_ended() -> anyhow::Result<()> {
    let fleet = IncidentFleet::start().await?;
    let mut quiet = fleet.session(ADA, "orders", &[0, 1, 2]).await?;
    let mut loud = fleet
        .session(("sam", "sales"), "orders", &[0, 1, 2])
        .await?;
    quiet.increment().await?;
    for _ in 0..58 {
        loud.increment().await?;
    }
    // The calls, initialize and initialized, which each gateway has counted a third of.
    let first = "[aria-label='Sessions that send most'] tbody tr:first-child";
    let steps = vec![
        open("/ui/traffic"),
        json!({"row": ["orders", "60"], "in": "Sessions that send most"}),
        look_and_picture("incident-flood", "dark"),
        json!({"follow": format!("{first} a")}),
        see("sam"),
        look("session"),
        follow_link("End this session"),
        press_button("End the session"),
        see("The session has ended."),
    ];
    fleet.find(steps, &["incident-flood", "session"]).await?;
    assert!(loud.increment().await.is_err(), "it is ended");
    quiet.increment().await?;
    Ok(())
}

#[tokio::test]
async fn why_a_user_is_refused_is_found_at_the_page() -> anyhow::Result<()> {
    let fleet = IncidentFleet::start().await?;
    for gateway in [1, 1, 2] {
        let refused = fleet
            .session(("zoe", "marketing"), "orders", &[gateway])
            .await;
        assert!(refused.is_err(), "zoe is in no team of the rule");
    }
    let steps = vec![
        open("/ui/rights?user=zoe&teams=marketing"),
        row(&["orders", "no"]),
        row_after_reload(&["orders", "no rule of servers.allow fits", "gateway-2"]),
        row_after_reload(&["orders", "no rule of servers.allow fits", "gateway-3"]),
        look_and_picture("incident-refused", "light"),
        open("/ui/rights?user=ada&teams=sales"),
        see("This user was refused nothing."),
    ];
    fleet.find(steps, &["incident-refused"]).await
}

#[tokio::test]
async fn an_instance_that_is_lost_is_found_with_its_sessions() -> anyhow::Result<()> {
    let mut fleet = IncidentFleet::start().await?;
    let mut session = fleet.session(ADA, "orders", &[0, 1, 2]).await?;
    session.increment().await?;
    let lost = fleet.instance_with("increment").await?;
    let name = lost.url();
    lost.process().kill_now().context("kill the instance")?;
    assert_eq!(session.increment().await?, 1, "it began again elsewhere");
    let steps = vec![
        open("/ui/servers/orders"),
        row_after_reload(&[&name, "refused"]),
        look_and_picture("incident-instance", "light"),
        open("/ui/sessions?text=server%3Aorders"),
        follow_row("Sessions", "ada"),
        see("the state it had there is lost"),
        look("session"),
    ];
    fleet.find(steps, &["incident-instance", "session"]).await
}
