//! A group whose members are of every kind: what lives in one worker is reached from all, and lost with it alone.

use mooring_tests::client::HttpClient;
use mooring_tests::fixture::{Fixture, stdio_command};
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::process_tree::started_with;
use mooring_tests::session::{McpSession, result_of};
use mooring_tests::wait;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::recovery::{call, count_of, mark_of};
use crate::rig::sharing;

/// The members' ids, which are the names of their instances.
const MEMBERS: [&str; 3] = ["http", "stdio", "sse"];

/// Beats that lapse soon, so that a death is known soon.
const QUICK_BEATS: &str = "[worker]\nbeat_interval_ms = 100\nbeat_ttl_ms = 2000\n";

struct Scene {
    gateways: Vec<Gateway>,
    client: HttpClient,
    sse: Fixture,
    /// The argument by which the child processes are found.
    child: String,
    _http: Fixture,
    _shared: TempDir,
}

impl Scene {
    async fn start() -> anyhow::Result<Self> {
        let shared = TempDir::new()?;
        let (http, sse) = (Fixture::start("http").await?, Fixture::start("sse").await?);
        let child = format!("group-{}", shared.path().display());
        let command = stdio_command(&child, None, &[])?;
        let toml = format!(
            "[store]\nurl = \"embedded\"\n\n{QUICK_BEATS}\n\
             [[servers]]\nid = \"http\"\nkind = \"http\"\ninstances = [{:?}]\n\n\
             [[servers]]\nid = \"stdio\"\nkind = \"stdio\"\ncommand = {command:?}\n\n\
             [[servers]]\nid = \"sse\"\nkind = \"sse\"\ninstances = [{:?}]\n\n\
             [[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = {MEMBERS:?}\n",
            http.url(),
            sse.sse_url(),
        );
        let settings = Settings::toml(toml);
        let gateways = vec![
            sharing("left", &settings, shared.path()).await?,
            sharing("right", &settings, shared.path()).await?,
        ];
        Ok(Self {
            gateways,
            client: HttpClient::default(),
            sse,
            child,
            _http: http,
            _shared: shared,
        })
    }

    /// A session that was opened at the first gateway, and the same one at both and at the second alone.
    async fn session(&self) -> anyhow::Result<(McpSession, McpSession)> {
        let endpoints: Vec<String> = self
            .gateways
            .iter()
            .map(|gateway| gateway.mcp_url("all"))
            .collect();
        let session = McpSession::open(&self.client, &endpoints[..1]).await?;
        let both = session.fork(&self.client, &endpoints);
        Ok((both, session.fork(&self.client, &endpoints[1..])))
    }
}

async fn check_counts(session: &mut McpSession, round: u64) -> anyhow::Result<()> {
    for member in MEMBERS {
        let exchange = call(session, &format!("{member}__increment")).await?;
        assert_eq!(count_of(&exchange), Some(round), "{member}: {exchange:?}");
        assert_eq!(mark_of(&exchange), None, "{member}");
    }
    Ok(())
}

#[tokio::test]
async fn members_of_every_kind_keep_their_state_and_end_with_the_session() -> anyhow::Result<()> {
    let scene = Scene::start().await?;
    let (mut session, _) = scene.session().await?;
    let listed = result_of(session.request("tools/list", json!({})).await?.response)?;
    let listed = listed["tools"].to_string();
    for member in MEMBERS {
        assert!(listed.contains(&format!("{member}__increment")), "{member}");
    }
    // An odd number of members, so that each is called at both gateways.
    for round in 1..=4 {
        check_counts(&mut session, round).await?;
    }
    assert_eq!(started_with(&scene.child)?.len(), 1);
    assert_eq!(scene.sse.stats().await?.sessions_live, 1);
    assert_eq!(session.delete().await?.status, 204);
    wait::until_true(
        "the end of what it held",
        wait::STARTED_WITHIN,
        async || {
            let is_empty = started_with(&scene.child)?.is_empty();
            Ok(is_empty && scene.sse.stats().await?.sessions_live == 0)
        },
    )
    .await
}

#[tokio::test]
async fn a_question_of_a_member_of_any_kind_is_answered_over_another_gateway() -> anyhow::Result<()>
{
    let scene = Scene::start().await?;
    let (mut session, _) = scene.session().await?;
    for member in MEMBERS {
        let arguments = json!({"message": "m", "secret": member});
        let params = json!({"name": format!("{member}__ask"), "arguments": arguments});
        // Each answer goes to the gateway that the call did not go to.
        let exchange = session
            .request_answering("tools/call", params, |question: &Value| {
                assert_eq!(question["method"], "elicitation/create");
                Ok(json!({"action": "accept", "content": {"answer": format!("to {member}")}}))
            })
            .await?;
        let result = result_of(exchange.response)?;
        assert_eq!(
            result["structuredContent"],
            json!({"action": "accept", "answer": format!("to {member}"), "secret": member})
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_killed_gateway_takes_what_lived_in_it_and_no_other_members_state() -> anyhow::Result<()>
{
    let mut scene = Scene::start().await?;
    let (mut session, mut survivor) = scene.session().await?;
    for round in 1..=2 {
        check_counts(&mut session, round).await?;
    }
    scene.gateways[0].process().kill_now()?;
    for member in MEMBERS {
        let tool = format!("{member}__increment");
        let exchange = wait::until("an answer", wait::STARTED_WITHIN, async || {
            // Until the death is known, nobody can tell what became of the member's connection.
            Ok(call(&mut survivor, &tool).await.ok())
        })
        .await?;
        let is_kept = member == "http";
        let expected = if is_kept { 3 } else { 1 };
        assert_eq!(count_of(&exchange), Some(expected), "{exchange:?}");
        assert_eq!(mark_of(&exchange).is_some(), !is_kept, "{exchange:?}");
        assert_eq!(
            count_of(&call(&mut survivor, &tool).await?),
            Some(expected + 1)
        );
    }
    wait::until_true("one child", wait::STARTED_WITHIN, async || {
        Ok(started_with(&scene.child)?.len() == 1)
    })
    .await
}
