//! The admin API as tools of a server of kind `admin`.

use anyhow::{Context, ensure};
use http::Method;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::session::{McpSession, Opening, read_exchange, result_of};
use mooring_tests::wait;
use serde_json::{Value, json};

use super::acts::audit_line;
use super::{LISTED_ORIGIN, Scene, digests};
use crate::rmcp_client::RmcpSession;

impl Scene {
    /// An operator's agent with these roles, each of whose requests goes to the next gateway.
    async fn agent(&self, roles: &str) -> anyhow::Result<McpSession> {
        let opening = Opening::default()
            .header("x-mooring-user", "olga")?
            .header("x-mooring-roles", roles)?;
        let gateways = self.gateways.iter();
        let endpoints: Vec<String> = gateways.map(|gateway| gateway.mcp_url("tools")).collect();
        McpSession::open_with(&self.client, &endpoints, opening).await
    }
}

/// The names of the tools that are listed.
async fn names(agent: &mut McpSession) -> anyhow::Result<Vec<String>> {
    let listed = result_of(agent.request("tools/list", json!({})).await?.response)?;
    let tools = listed["tools"].as_array().context("tools")?;
    let names = tools.iter().filter_map(|tool| tool["name"].as_str());
    Ok(names.map(str::to_owned).collect())
}

/// What a call that has to succeed returns; its text has the same.
async fn called(agent: &mut McpSession, tool: &str, arguments: Value) -> anyhow::Result<Value> {
    let result = agent.call(tool, arguments).await?;
    ensure!(result["isError"] == false, "{tool}: {result}");
    let text = result["content"][0]["text"].as_str().context("a text")?;
    let (of_text, structured): (Value, _) =
        (serde_json::from_str(text)?, &result["structuredContent"]);
    ensure!(of_text == *structured, "{tool}: {result}");
    Ok(of_text)
}

/// Why a call has failed.
async fn refused(agent: &mut McpSession, tool: &str, arguments: Value) -> anyhow::Result<String> {
    let result = agent.call(tool, arguments).await?;
    ensure!(result["isError"] == true, "{tool}: {result}");
    let text = result["content"][0]["text"].as_str().context("a text")?;
    Ok(text.to_owned())
}

#[tokio::test]
async fn an_agent_sees_and_does_what_its_rights_allow_and_others_see_no_server()
-> anyhow::Result<()> {
    let scene = Scene::over_redis().await?;
    let mut session = scene.session(0, "ada").await?;
    let guest = scene.agent("guest").await;
    let refusal = guest.map(drop).map_err(|error| format!("{error:#}"));
    ensure!(
        refusal.as_ref().is_err_and(|text| text.contains("404")),
        "{refusal:?}"
    );

    let mut reader = scene.agent("sessions.read").await?;
    ensure!(reader.id().is_none(), "it keeps no session");
    let seen = names(&mut reader).await?;
    for (tool, is_seen) in [
        ("sessions_list", true),
        ("sessions_history", true),
        ("whoami", true),
        ("workers_list", false),
        ("sessions_end", false),
        ("settings_reload", false),
    ] {
        assert_eq!(
            seen.iter().any(|name| name == tool),
            is_seen,
            "{tool}: {seen:?}"
        );
    }
    let digest =
        digests(&called(&mut reader, "sessions_list", json!({"user": "ada"})).await?).remove(0);
    let end = json!({"session": digest, "confirm": true});
    let text = refused(&mut reader, "sessions_end", end).await?;
    ensure!(
        text.contains("forbidden") && text.contains("sessions.manage"),
        "{text}"
    );
    session.increment().await?;

    let mut admin = scene.agent("admin").await?;
    ensure!(names(&mut admin).await?.len() > seen.len());
    let text = refused(&mut admin, "sessions_show", json!({"session": "ffff"})).await?;
    ensure!(text.contains("session_not_found"), "{text}");
    let text = refused(&mut admin, "sessions_list", json!({"usr": "ada"})).await?;
    ensure!(text.contains("usr"), "{text}");
    let unknown = admin.call("sessions_burn", json!({})).await;
    ensure!(unknown.is_err(), "{unknown:?}");
    let (shown, asked) = (
        called(&mut admin, "servers_show", json!({"server": "orders"})).await?,
        scene.get(0, "/admin/servers/orders").await?,
    );
    assert_eq!(shown["id"], asked["id"]);
    assert_eq!(
        shown
            .as_object()
            .map(|fields| fields.keys().collect::<Vec<_>>()),
        asked
            .as_object()
            .map(|fields| fields.keys().collect::<Vec<_>>()),
        "the same body as over the API"
    );
    Ok(())
}

#[tokio::test]
async fn a_page_of_another_origin_reads_by_tools_and_does_no_acts() -> anyhow::Result<()> {
    let scene = Scene::embedded().await?;
    let mut session = scene.session(0, "ada").await?;
    let opening = Opening::default()
        .header("x-mooring-user", "olga")?
        .header("x-mooring-roles", "admin")?
        .header("origin", LISTED_ORIGIN)?;
    let endpoint = scene.gateways[0].mcp_url("tools");
    let mut page = McpSession::open_with(&scene.client, &[endpoint], opening).await?;
    let listed = called(&mut page, "sessions_list", json!({"user": "ada"})).await?;
    let end = json!({"session": digests(&listed).remove(0), "confirm": true});
    let text = refused(&mut page, "sessions_end", end).await?;
    ensure!(text.contains("pages of this gateway only"), "{text}");
    session.increment().await?;
    Ok(())
}

#[tokio::test]
async fn an_act_of_an_agent_is_a_preview_until_it_is_confirmed_and_leaves_its_audit_line()
-> anyhow::Result<()> {
    let scene = Scene::embedded().await?;
    let mut session = scene.session(0, "ada").await?;
    let mut agent = scene.agent("admin").await?;
    let digest = digests(&scene.get(0, "/admin/sessions").await?).remove(0);
    let filter = json!({"filter": {"user": "ada"}});
    let preview = called(&mut agent, "sessions_end_matching", filter).await?;
    assert_eq!(preview["preview"]["sessions"], 1, "{preview}");
    let preview = agent
        .call("sessions_end", json!({"session": digest}))
        .await?;
    ensure!(
        preview["structuredContent"]["preview"]["sessions"] == 1,
        "{preview}"
    );
    ensure!(
        preview["content"][1]["text"]
            .to_string()
            .contains("confirm"),
        "{preview}"
    );
    session.increment().await?;
    ensure!(
        !scene.log(0).contains("operator's act"),
        "a preview is no act"
    );

    let call = json!({"name": "sessions_end", "arguments": {"session": digest, "confirm": true}});
    let body = agent.request_body("tools/call", call);
    let reply = agent.post(&body).await?;
    let id = reply
        .header("x-request-id")
        .context("X-Request-Id")?
        .to_owned();
    let ended = result_of(read_exchange(reply, &body).await?.response)?;
    assert_eq!(
        ended["structuredContent"]["progress"]["changed"], 1,
        "{ended}"
    );
    let line = audit_line(&scene, 0, &id).await?;
    for part in [
        "operator=olga",
        "act=sessions.end",
        &format!("subject={digest}"),
    ] {
        ensure!(line.contains(part), "{part}: {line}");
    }
    ensure!(session.increment().await.is_err(), "its session has ended");

    // Changes of servers and reloads can say what they would do too.
    let definition = json!({"id": "late", "url": scene.instances[0].url()});
    let add = json!({"definition": definition});
    let preview = called(&mut agent, "servers_add", add).await?;
    assert_eq!(
        preview["report"]["servers_added"],
        json!(["late"]),
        "{preview}"
    );
    let (status, answer, _) = scene
        .ask(0, Method::GET, "/admin/servers/late", "admin", None)
        .await?;
    assert_eq!(status, 404, "{answer}");
    let wrong = json!({"definition": {"id": "late", "url": "ftp://x/"}});
    let text = refused(&mut agent, "servers_add", wrong).await?;
    ensure!(text.contains("server_invalid"), "{text}");
    called(&mut agent, "settings_reload", json!({})).await?;
    ensure!(
        !scene.log(0).contains("settings reloaded"),
        "a preview reloads nothing"
    );
    let add = json!({"definition": definition, "confirm": true});
    called(&mut agent, "servers_add", add).await?;
    scene.get(0, "/admin/servers/late").await?;
    called(&mut agent, "servers_remove", json!({"server": "late"})).await?;
    scene.get(0, "/admin/servers/late").await?;
    called(
        &mut agent,
        "servers_remove",
        json!({"server": "late", "confirm": true}),
    )
    .await?;
    wait::until_true("it is removed", wait::STARTED_WITHIN, async || {
        let asked = scene.ask(0, Method::GET, "/admin/servers/late", "admin", None);
        Ok(asked.await?.0 == 404)
    })
    .await
}

#[tokio::test]
async fn a_client_of_rmcp_reads_the_tools_and_calls_one() -> anyhow::Result<()> {
    let settings = Settings::toml("[[servers]]\nid = \"tools\"\nkind = \"admin\"\n");
    let gateway = Gateway::start("operators-tools", settings).await?;
    let session = RmcpSession::open(&[gateway.mcp_url("tools")], 0).await?;
    let tools = session.tools().await?;
    let end = tools
        .iter()
        .find(|tool| tool.name == "sessions_end")
        .context("sessions_end")?;
    let hints = end.annotations.as_ref().context("annotations")?;
    ensure!(
        hints.read_only_hint == Some(false) && hints.destructive_hint == Some(true),
        "{end:?}"
    );
    ensure!(
        tools.iter().all(|tool| tool.output_schema.is_some()),
        "{tools:?}"
    );
    let list = session.call("servers_list", serde_json::Map::new()).await?;
    let list = list.structured_content.context("structured content")?;
    ensure!(list["servers"][0]["kind"] == "admin", "{list}");
    session.close().await
}

#[tokio::test]
async fn a_client_over_standard_input_gets_no_operators_tools() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let settings = Settings::toml("[[servers]]\nid = \"tools\"\nkind = \"admin\"\n");
    let mut command = settings.command("stdio", directory.path())?;
    let output = command
        .args(["--server", "tools"])
        .stdin(std::process::Stdio::null())
        .output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(64), "{output:?}");
    ensure!(text.contains("kind admin"), "{text}");
    Ok(())
}
