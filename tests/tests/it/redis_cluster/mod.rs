//! A store that is a Redis Cluster: three gateways, servers of every kind that keeps sessions, slots that move, and
//! primaries that come and are killed.

mod load;

use std::time::Duration;

use anyhow::Context;
use mooring_tests::client::HttpClient;
use mooring_tests::code::{CodeVolume, Coder, SERVER, USER};
use mooring_tests::fixture::{Fixture, stdio_command};
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::port::free_port;
use mooring_tests::redis_cluster::{RANGES, RedisCluster};
use mooring_tests::session::{McpSession, Opening};
use mooring_tests::wait;
use serde_json::{Value, json};

use crate::doctor::mooring;
use crate::owned::rig::unique;

const GATEWAYS: usize = 3;
/// For all that takes a few seconds on an idle machine.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);

/// Gateways in front of a remote server, a program, a group of both and code, and the cluster that they share.
struct ClusterFleet {
    gateways: Vec<Gateway>,
    cluster: RedisCluster,
    fixture: Fixture,
    _keys: FleetKeys,
    _volume: CodeVolume,
}

impl ClusterFleet {
    async fn start() -> anyhow::Result<Self> {
        let (cluster, fixture) = (RedisCluster::start().await?, Fixture::start("one").await?);
        let (keys, volume) = (FleetKeys::new()?, CodeVolume::new()?);
        let command = stdio_command(&unique("cluster"), None, &[])?;
        let toml = format!(
            "[store]\nurl = {:?}\n\n[affinity]\nenabled = true\ninitializes_per_minute = 0\n\n[worker]\n{}\n\
             [[servers]]\nid = \"tools\"\ninstances = [{:?}]\nallow = [{{}}]\n\n\
             [[servers]]\nid = \"notes\"\nkind = \"stdio\"\ncommand = {command:?}\nallow = [{{}}]\n\n\
             [[servers]]\nid = {SERVER:?}\nkind = \"code\"\nallow = [{{}}]\n\
             sandbox_policy = {{ max_runs_per_minute = 1000 }}\n\n\
             [[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"tools\", \"notes\"]\nallow = [{{}}]\n",
            cluster.url(),
            keys.toml(),
            fixture.url(),
        );
        let settings = Settings::toml(toml)
            .env(
                "MOORING_CODE_BASE_DIR",
                &volume.path().display().to_string(),
            )
            .users_by_header();
        let gateways = Gateway::fleet(GATEWAYS, &settings).await?;
        Ok(Self {
            gateways,
            cluster,
            fixture,
            _keys: keys,
            _volume: volume,
        })
    }

    /// A session at a server, whose requests go to the gateways in turn.
    async fn session(&self, server: &str) -> anyhow::Result<McpSession> {
        let endpoints: Vec<String> = (self.gateways.iter())
            .map(|gateway| gateway.mcp_url(server))
            .collect();
        let opening = Opening::default().header(USER, "zoe")?;
        McpSession::open_with(&HttpClient::default(), &endpoints, opening).await
    }

    /// The slot of a session, and the place of the primary that serves it at first.
    fn slot_of(&self, session: &McpSession) -> anyhow::Result<(u16, usize)> {
        let id = session.id().context("an id")?;
        let slot = self
            .cluster
            .slot_of(&format!("mcpgw:session_affinity:{id}"))?;
        Ok((slot, self.cluster.place_of(slot)?))
    }

    /// How many sessions of clients the primaries have.
    fn stored(&self) -> anyhow::Result<usize> {
        let mut count = 0;
        for node in &self.cluster.nodes {
            if node
                .cli(&["ROLE"])
                .is_ok_and(|role| role.starts_with("master"))
            {
                let keys = node.cli(&["KEYS", "mcpgw:session_affinity:*"])?;
                count += keys.split_whitespace().count();
            }
        }
        Ok(count)
    }

    /// Waits until `mooring sessions` lists all sessions that the primaries have: the index of one that was just promoted is
    /// verified first.
    async fn until_all_listed(&self) -> anyhow::Result<()> {
        wait::until_true("a complete list", SETTLED_WITHIN, async || {
            Ok(self.listed().await? == Some(self.stored()?))
        })
        .await
    }

    /// How many sessions of clients `mooring sessions` lists; none if its list is not complete.
    async fn listed(&self) -> anyhow::Result<Option<usize>> {
        let url = self.cluster.url();
        let (code, text) = mooring(
            &[
                "sessions", "list", "--kind", "mcp", "--json", "--store", &url,
            ],
            "",
        )
        .await?;
        assert_eq!(code, Some(0), "{text}");
        // Lines of the log come with it.
        let list = text
            .lines()
            .find(|line| line.starts_with(r#"{"complete""#) || line.starts_with(r#"{"sessions""#));
        let list: Value = serde_json::from_str(list.context("a list")?)?;
        let sessions = list["sessions"].as_array().context("sessions")?;
        Ok((list["complete"] == true).then_some(sessions.len()))
    }
}

/// What `/readyz` says of the store.
async fn store_part(gateway: &Gateway) -> anyhow::Result<Value> {
    let reply = HttpClient::default().get(&gateway.url("/readyz")).await?;
    Ok(reply.json().await?["parts"]["store"].clone())
}

async fn count(session: &mut McpSession, tool: &str) -> anyhow::Result<Value> {
    let result = session.call(tool, json!({})).await?;
    Ok(result["structuredContent"]["count"].clone())
}

#[tokio::test]
async fn servers_of_every_kind_keep_their_sessions_in_a_cluster() -> anyhow::Result<()> {
    let fleet = ClusterFleet::start().await?;
    for gateway in &fleet.gateways {
        let store = store_part(gateway).await?;
        assert_eq!(store["discovery"], "cluster", "{store}");
        let primaries = store["primaries"].as_array().context("primaries")?;
        assert_eq!(primaries.len(), RANGES.len(), "{store}");
        assert!(
            primaries.iter().all(|primary| primary["status"] == "ok"),
            "{store}"
        );
        let up = gateway
            .metric("mooring_store_primaries", &["state=\"up\""])
            .await?;
        assert!((up - 3.0).abs() < f64::EPSILON, "{up}");
    }
    let mut sessions = Vec::new();
    for (server, tools) in [
        ("tools", &["increment"][..]),
        ("notes", &["increment"]),
        ("all", &["tools__increment", "notes__increment"]),
    ] {
        let mut session = fleet.session(server).await?;
        for round in 1..=GATEWAYS {
            for tool in tools {
                assert_eq!(count(&mut session, tool).await?, round, "{server}");
            }
        }
        sessions.push((session, tools));
    }
    let gateways: Vec<&Gateway> = fleet.gateways.iter().collect();
    let mut coder = Coder::open(&gateways, "zoe").await?;
    coder.write("/results/kept", "a line").await?;
    assert_eq!(coder.read("/results/kept").await?, "a line");

    // Each session moves, and goes on where it is then.
    for (session, tools) in &mut sessions {
        let (slot, from) = fleet.slot_of(session)?;
        fleet
            .cluster
            .move_slot(slot, from, (from + 1) % RANGES.len())?;
        for round in GATEWAYS + 1..=2 * GATEWAYS {
            for tool in *tools {
                assert_eq!(count(session, tool).await?, round);
            }
        }
    }
    assert_eq!(coder.read("/results/kept").await?, "a line");
    fleet.until_all_listed().await
}

#[tokio::test]
async fn a_cluster_is_named_before_anything_is_served() -> anyhow::Result<()> {
    let cluster = RedisCluster::start().await?;
    let toml = |url: &str| -> anyhow::Result<String> {
        Ok(format!(
            "[store]\nurl = {url:?}\n[listen]\naddress = \"127.0.0.1:{}\"\n\
             [[servers]]\nid = \"code\"\nkind = \"code\"\n",
            free_port()?
        ))
    };
    let (_, report) = mooring(&["doctor"], &toml(&cluster.url())?).await?;
    for primary in cluster.primaries() {
        assert!(
            report.contains(&format!("127.0.0.1:{}", primary.port())),
            "{report}"
        );
    }
    assert!(report.contains("(discovery: cluster)"), "{report}");
    let secret = cluster.url().replace("://", "://gateway:a-secret@");
    let (code, text) = mooring(&["config", "check"], &toml(&secret)?).await?;
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("the primaries of the cluster redis+cluster://"),
        "{text}"
    );
    assert!(!text.contains("a-secret"), "{text}");
    let node = cluster.node(0)?;
    node.cli(&["MODULE", "UNLOAD", "mooring"])?;
    let (status, text) = Gateway::refused(Settings::toml(toml(&cluster.url())?)).await?;
    assert_eq!(status.code(), Some(69), "{text}");
    for part in ["without the mooring module", &node.port().to_string()] {
        assert!(text.contains(part), "{part}: {text}");
    }
    Ok(())
}
