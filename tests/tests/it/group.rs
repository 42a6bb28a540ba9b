//! Several servers behind one endpoint: one session, each member's own state, and every message at the right member.

use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::session::{McpSession, result_of};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::recovery::{call, mark_of};
use crate::rig::{initialize_params, sharing};

/// How long a message of a member may take to be on the group's stream.
const TOLD_WITHIN: Duration = Duration::from_secs(60);

/// Two counting servers and a group of them, over two gateways that share their sessions.
struct GroupScene {
    one: Fixture,
    two: Fixture,
    gateways: Vec<Gateway>,
    client: HttpClient,
    _shared: TempDir,
}

impl GroupScene {
    async fn start(more_toml: &str) -> anyhow::Result<Self> {
        let shared = TempDir::new()?;
        let (one, two) = (Fixture::start("one").await?, Fixture::start("two").await?);
        let settings = settings(&[("one", &one), ("two", &two)], more_toml);
        let gateways = vec![
            sharing("left", &settings, shared.path()).await?,
            sharing("right", &settings, shared.path()).await?,
        ];
        Ok(Self {
            one,
            two,
            gateways,
            client: HttpClient::default(),
            _shared: shared,
        })
    }

    /// A session whose requests go to the gateways in turn.
    async fn session(&self) -> anyhow::Result<McpSession> {
        let endpoints: Vec<String> = self
            .gateways
            .iter()
            .map(|gateway| gateway.mcp_url("all"))
            .collect();
        McpSession::open(&self.client, &endpoints).await
    }
}

/// Servers of kind `http` with affinity off, which a group keeps all the same, and the group `all`, whose table
/// `more_toml` follows.
fn settings(servers: &[(&str, &Fixture)], more_toml: &str) -> Settings {
    let mut toml = "[store]\nurl = \"embedded\"\n".to_owned();
    for (id, fixture) in servers {
        let url = fixture.url();
        toml += &format!("[[servers]]\nid = {id:?}\naffinity = \"off\"\ninstances = [{url:?}]\n");
    }
    let ids: Vec<&str> = servers.iter().map(|(id, _)| *id).collect();
    toml += &format!("[[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = {ids:?}\n{more_toml}");
    Settings::toml(toml)
}

fn names(list: &Value) -> Vec<&str> {
    let entries = list.as_array().expect("a list");
    entries
        .iter()
        .map(|entry| entry["name"].as_str().expect("a name"))
        .collect()
}

async fn count(session: &mut McpSession, tool: &str) -> anyhow::Result<Value> {
    let result = session.call(tool, json!({})).await?;
    let told = &result["structuredContent"];
    Ok(json!([told["instance"], told["count"]]))
}

#[tokio::test]
async fn every_member_keeps_its_own_state_of_the_one_session() -> anyhow::Result<()> {
    let scene = GroupScene::start("").await?;
    let mut session = scene.session().await?;
    for round in 1..=4 {
        assert_eq!(
            count(&mut session, "one__increment").await?,
            json!(["one", round])
        );
        assert_eq!(
            count(&mut session, "two__increment").await?,
            json!(["two", round])
        );
    }
    assert_eq!(scene.one.stats().await?.initializes, 1);
    assert_eq!(scene.two.stats().await?.initializes, 1);

    assert_eq!(session.delete().await?.status, 204);
    assert_eq!(scene.one.stats().await?.deletes, 1);
    assert_eq!(scene.two.stats().await?.deletes, 1);
    assert!(count(&mut session, "one__increment").await.is_err());
    Ok(())
}

#[tokio::test]
async fn the_group_introduces_itself_and_lists_what_all_members_have() -> anyhow::Result<()> {
    let scene = GroupScene::start("").await?;
    let mut direct = McpSession::open(&scene.client, &[scene.one.url()]).await?;
    let own = result_of(direct.request("tools/list", json!({})).await?.response)?;
    let mut session = scene.session().await?;
    assert_eq!(session.initialize_result["serverInfo"]["name"], "all");
    for (capability, offered) in direct.initialize_result["capabilities"]
        .as_object()
        .expect("capabilities")
    {
        if capability != "tasks" && capability != "extensions" {
            assert_eq!(
                &session.initialize_result["capabilities"][capability],
                offered
            );
        }
    }

    let listed = result_of(session.request("tools/list", json!({})).await?.response)?;
    assert!(listed.get("nextCursor").is_none() && listed.get("_meta").is_none());
    let mut expected = Vec::new();
    for member in ["one", "two"] {
        for tool in own["tools"].as_array().expect("tools") {
            let mut tool = tool.clone();
            tool["name"] = json!(format!(
                "{member}__{}",
                tool["name"].as_str().expect("a name")
            ));
            expected.push(tool);
        }
    }
    assert_eq!(
        listed["tools"],
        json!(expected),
        "every field but the name is the member's"
    );

    let prompts = result_of(session.request("prompts/list", json!({})).await?.response)?;
    assert!(names(&prompts["prompts"]).contains(&"two__test_simple_prompt"));
    let prompt = session
        .request("prompts/get", json!({"name": "two__test_simple_prompt"}))
        .await?;
    assert!(result_of(prompt.response)?["messages"].is_array());
    Ok(())
}

#[tokio::test]
async fn what_no_member_has_is_refused_and_says_who_there_is() -> anyhow::Result<()> {
    let scene = GroupScene::start("").await?;
    let mut session = scene.session().await?;
    for name in ["increment", "three__increment", "one_increment", ""] {
        let refused = session.request("tools/call", json!({"name": name})).await?;
        let error = &refused.response["error"];
        assert_eq!(error["code"], -32602, "{name}: {error}");
        assert!(
            error["message"]
                .as_str()
                .expect("words")
                .contains("one, two"),
            "{error}"
        );
    }
    let calls = scene.one.stats().await?.calls;
    assert!(calls.is_empty(), "nothing ran: {calls:?}");
    let paged = session
        .request("tools/list", json!({"cursor": "x"}))
        .await?;
    assert_eq!(paged.response["error"]["code"], -32602);
    let other = session.request("vendor/method", json!({})).await?;
    assert_eq!(other.response["error"]["code"], -32601);
    Ok(())
}

#[tokio::test]
async fn with_unique_names_the_first_members_tool_is_meant() -> anyhow::Result<()> {
    let scene = GroupScene::start("unique_names = true\n").await?;
    let mut session = scene.session().await?;
    // Also without a list before it, at either gateway.
    assert_eq!(count(&mut session, "increment").await?, json!(["one", 1]));
    assert_eq!(count(&mut session, "increment").await?, json!(["one", 2]));
    let listed = result_of(session.request("tools/list", json!({})).await?.response)?;
    let all = names(&listed["tools"]);
    assert_eq!(all.iter().filter(|name| **name == "increment").count(), 1);
    assert_eq!(scene.two.stats().await?.calls_of("increment"), 0);
    Ok(())
}

#[tokio::test]
async fn a_question_of_a_member_is_answered_over_another_gateway() -> anyhow::Result<()> {
    let scene = GroupScene::start("").await?;
    let mut session = scene.session().await?;
    for member in ["one", "two", "one"] {
        let arguments = json!({"message": "m", "secret": member});
        let call = session.request_body(
            "tools/call",
            json!({"name": format!("{member}__ask"), "arguments": arguments}),
        );
        let mut stream = session.post(&call).await?;
        let question = stream.next_message().await?.expect("the question");
        assert_eq!(question["method"], "elicitation/create");
        let answer = json!({"jsonrpc": "2.0", "id": question["id"],
            "result": {"action": "accept", "content": {"answer": format!("to {member}")}}});
        // The session's next request goes to the other gateway.
        assert_eq!(session.post(&answer).await?.status, 202);
        let answered = stream.next_message().await?.expect("the answer");
        assert_eq!(answered["id"], call["id"]);
        let text = answered["result"].to_string();
        assert!(text.contains(&format!("to {member}")), "{text}");
    }
    let made_up = json!({"jsonrpc": "2.0", "id": "s:1:1", "result": {}});
    assert_eq!(session.post(&made_up).await?.status, 400);
    Ok(())
}

#[tokio::test]
async fn resources_are_read_where_they_are() -> anyhow::Result<()> {
    let scene = GroupScene::start("").await?;
    let mut session = scene.session().await?;
    for uri in ["test://static-text", "test://template/7/data"] {
        let read = session
            .request("resources/read", json!({"uri": uri}))
            .await?;
        assert_eq!(result_of(read.response)?["contents"][0]["uri"], uri);
    }
    let unknown = session
        .request("resources/read", json!({"uri": "test://nowhere"}))
        .await?;
    assert!(
        unknown.response["error"]["code"].is_i64(),
        "{}",
        unknown.response
    );
    let subscribe = session
        .request("resources/subscribe", json!({"uri": "test://nowhere"}))
        .await?;
    assert_eq!(subscribe.response["error"]["code"], -32602);
    let level = session
        .request("logging/setLevel", json!({"level": "debug"}))
        .await?;
    assert_eq!(level.response["result"], json!({}));
    Ok(())
}

#[tokio::test]
async fn one_stream_tells_what_every_member_has_to_tell() -> anyhow::Result<()> {
    let scene = GroupScene::start("").await?;
    let mut session = scene.session().await?;
    let mut stream = session.listen(None).await?;
    assert_eq!(
        (stream.status.as_u16(), stream.is_event_stream()),
        (200, true)
    );
    let mut told = Vec::new();
    for (member, kind) in [("one", "tools"), ("two", "prompts"), ("one", "resources")] {
        let tool = format!("{member}__notify_list_changed");
        session.call(&tool, json!({"kind": kind})).await?;
        let message = tokio::time::timeout(TOLD_WITHIN, stream.next_message()).await??;
        told.push(message.expect("a notification")["method"].clone());
    }
    assert_eq!(
        told,
        [
            "notifications/tools/list_changed",
            "notifications/prompts/list_changed",
            "notifications/resources/list_changed"
        ]
    );
    Ok(())
}

#[tokio::test]
async fn a_member_that_is_away_is_named_and_served_once_it_is_back() -> anyhow::Result<()> {
    let one = Fixture::start("one").await?;
    let mut late = Fixture::start("late").await?;
    late.process().kill_now()?;
    let gateway = Gateway::start("alone", settings(&[("late", &late), ("one", &one)], "")).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &[gateway.mcp_url("all")]).await?;
    let missing = json!({"mooring/missing": ["late"]});
    assert_eq!(session.initialize_result["_meta"], missing);
    let instructions = session.initialize_result["instructions"].to_string();
    assert!(
        instructions.contains("Not available now: late."),
        "{instructions}"
    );
    let listed = result_of(session.request("tools/list", json!({})).await?.response)?;
    assert_eq!(listed["_meta"], missing);
    assert!(
        names(&listed["tools"])
            .iter()
            .all(|name| name.starts_with("one__"))
    );
    assert_eq!(
        count(&mut session, "one__increment").await?,
        json!(["one", 1])
    );

    late.restart().await?;
    assert_eq!(
        count(&mut session, "late__increment").await?,
        json!(["late", 1])
    );
    let listed = result_of(session.request("tools/list", json!({})).await?.response)?;
    assert!(listed.get("_meta").is_none());
    assert_eq!(
        names(&listed["tools"])[0]
            .split_once("__")
            .expect("a member")
            .0,
        "late"
    );
    Ok(())
}

#[tokio::test]
async fn a_group_of_nobody_is_an_error() -> anyhow::Result<()> {
    let mut gone = Fixture::start("gone").await?;
    gone.process().kill_now()?;
    let gateway = Gateway::start("alone", settings(&[("gone", &gone)], "")).await?;
    let opened = McpSession::open(&HttpClient::default(), &[gateway.mcp_url("all")]).await;
    let refused = format!("{:#}", opened.expect_err("nobody is there"));
    assert!(refused.contains("-32009"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn a_member_that_lost_its_state_says_so_and_the_others_keep_theirs() -> anyhow::Result<()> {
    let mut scene = GroupScene::start("").await?;
    let mut session = scene.session().await?;
    assert_eq!(
        count(&mut session, "one__increment").await?,
        json!(["one", 1])
    );
    assert_eq!(
        count(&mut session, "two__increment").await?,
        json!(["two", 1])
    );
    scene.two.restart().await?;
    // A list that meets the loss tells of it, and so does the next result of a tool.
    let listed = session.request("tools/list", json!({})).await?;
    assert_eq!(listed.before.len(), 1, "the warning: {:?}", listed.before);
    let mark = &listed.response["result"]["_meta"]["mooring/rebound"];
    assert_eq!(
        mark["state_lost"], true,
        "{}",
        listed.response["result"]["_meta"]
    );
    let called = call(&mut session, "two__increment").await?;
    assert_eq!(mark_of(&called), Some(mark), "{called:?}");
    assert_eq!(
        count(&mut session, "two__increment").await?,
        json!(["two", 2])
    );
    assert_eq!(
        count(&mut session, "one__increment").await?,
        json!(["one", 2])
    );
    Ok(())
}

#[tokio::test]
async fn code_is_a_member_like_any_other() -> anyhow::Result<()> {
    let one = Fixture::start("one").await?;
    let volume = TempDir::with_prefix("mooring-code-")?;
    let url = one.url();
    let toml = format!(
        "[store]\nurl = \"embedded\"\n[[servers]]\nid = \"one\"\nkind = \"http\"\ninstances = [{url:?}]\n\
         [[servers]]\nid = \"sandbox\"\nkind = \"code\"\n\
         [[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"one\", \"sandbox\"]\n"
    );
    let settings = Settings::toml(toml).env(
        "MOORING_CODE_BASE_DIR",
        &volume.path().display().to_string(),
    );
    let gateway = Gateway::start("alone", settings).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &[gateway.mcp_url("all")]).await?;
    let listed = result_of(session.request("tools/list", json!({})).await?.response)?;
    let all = names(&listed["tools"]);
    assert!(
        all.contains(&"one__increment") && all.contains(&"sandbox__fs_write"),
        "{all:?}"
    );
    let arguments = json!({"path": "/scratch/a.txt", "content": "kept"});
    session.call("sandbox__fs_write", arguments).await?;
    let read = session
        .call("sandbox__fs_read", json!({"path": "/scratch/a.txt"}))
        .await?;
    assert!(read.to_string().contains("kept"), "{read}");
    let instructions = session.initialize_result["instructions"]
        .as_str()
        .expect("words");
    assert!(instructions.contains("# sandbox\n"), "{instructions}");

    // Without a session there is no group, not even its code.
    let mut stranger = McpSession::open(&client, &[gateway.mcp_url("all")]).await?;
    assert_eq!(stranger.delete().await?.status, 204);
    assert!(
        stranger
            .call("sandbox__fs_read", json!({"path": "/scratch/a.txt"}))
            .await
            .is_err()
    );
    Ok(())
}

/// Which of several servers has failed cannot be guessed from the error of one.
#[tokio::test]
async fn an_error_of_a_member_names_it() -> anyhow::Result<()> {
    let mut scene = GroupScene::start("").await?;
    let mut session = scene.session().await?;
    assert_eq!(
        count(&mut session, "two__increment").await?,
        json!(["two", 1])
    );
    let other = McpSession::open(&scene.client, &[scene.gateways[0].mcp_url("all")]).await?;
    scene.two.process().kill_now()?;
    let params = json!({"name": "two__increment", "arguments": {}});
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
    let mut other = other.fork(&scene.client, &[scene.gateways[1].mcp_url("all")]);
    let reply = other.post(&call).await?;
    assert_eq!(reply.status, 503);
    let message = reply.json().await?["error"]["message"].to_string();
    assert!(message.starts_with("\"two: "), "{message}");

    // Where no member is left, the first one's reason is told.
    scene.one.process().kill_now()?;
    let initialize =
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize_params()});
    let mut request = other.http_request(http::Method::POST, initialize.to_string().into())?;
    request.headers_mut().remove("mcp-session-id");
    let reply = scene.client.send(request).await?;
    assert_eq!(reply.status, 503);
    let message = reply.json().await?["error"]["message"].to_string();
    assert!(message.starts_with("\"one: "), "{message}");
    Ok(())
}

#[tokio::test]
async fn a_path_without_a_server_says_which_there_are() -> anyhow::Result<()> {
    let scene = GroupScene::start("").await?;
    let gateway = &scene.gateways[0];
    for (path, said) in [
        ("/mcp", ["all, one, two", "default.server"]),
        ("/servers/nobody/mcp", ["all, one, two", "the servers are"]),
    ] {
        let url = gateway.url(path);
        let request = http::Request::post(&url).body(bytes::Bytes::new())?;
        let reply = scene.client.send(request).await?;
        assert_eq!(reply.status, 404, "{path}");
        let message = reply.json().await?["error"]["message"].to_string();
        for said in said {
            assert!(message.contains(said), "{path}: {message}");
        }
    }
    Ok(())
}
