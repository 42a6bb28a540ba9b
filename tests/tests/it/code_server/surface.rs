//! The protocol: what a code server says of itself, how it answers, and which arguments it refuses.

use std::time::Duration;

use anyhow::Context;
use http::Method;
use mooring_tests::client::HttpClient;
use mooring_tests::code::{SERVER, USER};
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::paths;
use mooring_tests::script::run_client;
use mooring_tests::session::McpSession;
use serde_json::{Value, json};

use super::{ADA, Scene, text};
use crate::rig::refusal;

#[tokio::test]
async fn it_says_what_it_is_and_keeps_no_mcp_session() -> anyhow::Result<()> {
    let scene = Scene::start().await?;
    // A client that can be asked is given an id that says just that.
    let asked = scene.session().await?;
    let id = asked.id().context("an id")?;
    assert!(id.starts_with("asking-"), "{id}");
    let mut session = scene.session_of(json!({})).await?;
    assert_eq!(session.id(), None);
    let about = session.initialize_result.clone();
    assert_eq!(about["protocolVersion"], "2025-11-25");
    assert_eq!(about["capabilities"], json!({"tools": {}}));
    assert_eq!(about["serverInfo"]["name"], "mooring");
    for word in ["/scratch", "/results", "/tools", "Python", "30000 ms"] {
        assert!(text(&about, "/instructions").contains(word), "{word}");
    }
    let client = HttpClient::default();
    for method in [Method::GET, Method::DELETE] {
        let reply = client
            .send(session.http_request(method.clone(), bytes::Bytes::new())?)
            .await?;
        assert_eq!(reply.header("allow"), Some("POST"), "{method}");
        assert_eq!(refusal(reply).await?, (405.try_into()?, -32000), "{method}");
    }
    // A session id that some client sends from elsewhere is nobody's, and changes nothing.
    let mut request = session.http_request(
        Method::POST,
        json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})
            .to_string()
            .into(),
    )?;
    request
        .headers_mut()
        .insert("mcp-session-id", "abc".parse()?);
    assert_eq!(
        client.send(request).await?.json().await?["result"],
        json!({})
    );
    Ok(())
}

#[tokio::test]
async fn it_lists_its_tools_and_refuses_what_it_does_not_know() -> anyhow::Result<()> {
    let off = |settings: Settings| settings.env("MOORING_CODE_FS_WRITE_ENABLED", "false");
    let scene = Scene::start_with(off).await?;
    let mut session = scene.session().await?;
    let listed = session.request("tools/list", json!({})).await?.response;
    let tools = listed["result"]["tools"].as_array().context("tools")?;
    let hints: Vec<_> = tools
        .iter()
        .map(|tool| {
            for schema in ["inputSchema", "outputSchema"] {
                assert_eq!(tool[schema]["type"], "object", "{tool}");
            }
            assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{tool}");
            (
                text(tool, "/name"),
                tool["annotations"]["readOnlyHint"].clone(),
            )
        })
        .collect();
    let expected = [
        ("shell_exec", false),
        ("fs_browse", true),
        ("fs_read", true),
        ("tool_search", true),
    ];
    assert_eq!(hints, expected.map(|(name, hint)| (name, json!(hint))));
    for (method, params, code) in [
        ("resources/list", json!({}), -32601),
        ("prompts/list", json!({}), -32601),
        ("tools/list", json!({"cursor": "x"}), -32602),
        (
            "tools/call",
            json!({"name": "fs_write", "arguments": {}}),
            -32602,
        ),
        ("tools/call", json!({"name": "nothing"}), -32602),
        ("tools/call", json!({}), -32602),
    ] {
        let answer = session.request(method, params.clone()).await?.response;
        assert_eq!(answer["error"]["code"], code, "{method} {params}: {answer}");
    }
    Ok(())
}

/// A model that is told of a directory tries it.
#[tokio::test]
async fn only_directories_that_the_policy_allows_are_told() -> anyhow::Result<()> {
    let policy = [
        ("READ", "/scratch/**,/tools/**"),
        ("WRITE", "/scratch/out/**"),
        ("DENY", "/scratch/private/**"),
    ];
    let scene = Scene::start_with(|settings| {
        policy.iter().fold(settings, |settings, (list, paths)| {
            let name = format!("MOORING_CODE_DEFAULT_FILESYSTEM_{list}_PATHS");
            settings.env(&name, paths)
        })
    })
    .await?;
    let mut session = scene.session().await?;
    let instructions = text(&session.initialize_result, "/instructions").to_owned();
    let listed = session.request("tools/list", json!({})).await?.response;
    let tools = listed["result"]["tools"].as_array().context("tools")?;
    let described = |name: &str| {
        let tool = tools.iter().find(|tool| tool["name"] == name);
        tool.map_or("", |tool| text(tool, "/description"))
    };
    for told in [
        instructions.as_str(),
        described("shell_exec"),
        described("fs_write"),
        described("fs_browse"),
    ] {
        assert!(told.contains("/scratch/out"), "{told}");
        for withheld in ["/results", "/skills"] {
            assert!(!told.contains(withheld), "{withheld}: {told}");
        }
    }
    assert!(
        instructions.contains("nothing in /scratch/private can be used"),
        "{instructions}"
    );
    Ok(())
}

#[tokio::test]
async fn only_languages_that_work_are_offered() -> anyhow::Result<()> {
    let deno = paths::tool("deno")?.display().to_string();
    for (deno, policy, languages, absent) in [
        (
            &*deno,
            "",
            json!(["python", "typescript", "javascript"]),
            "no TypeScript",
        ),
        ("/nonexistent/deno", "", json!(["python"]), "TypeScript"),
        (&*deno, "python", json!(["python"]), "TypeScript"),
    ] {
        let scene = Scene::start_with(|settings| {
            let settings = settings.env("MOORING_CODE_DENO_PATH", deno);
            match policy {
                "" => settings,
                only => settings
                    .env("MOORING_CODE_DEFAULT_ALLOWED_RUNTIMES", only)
                    .env("MOORING_CODE_DEFAULT_RUNTIME", only),
            }
        })
        .await?;
        let mut session = scene.session().await?;
        let listed = session.request("tools/list", json!({})).await?.response;
        let tools = listed["result"]["tools"].as_array().context("tools")?;
        for tool in tools {
            let offered = &tool["inputSchema"]["properties"]["language"]["enum"];
            assert_eq!(*offered, languages, "{tool}");
        }
        let said = format!("{}{}", listed, session.initialize_result);
        assert!(!said.contains(absent), "{absent}: {said}");
        let offers_line = said.contains("ls cat grep");
        assert_eq!(offers_line, policy.is_empty(), "{said}");
    }
    Ok(())
}

#[tokio::test]
async fn code_and_file_tools_share_a_session_where_deno_is_missing() -> anyhow::Result<()> {
    let without = |settings: Settings| settings.env("MOORING_CODE_DENO_PATH", "/nonexistent/deno");
    let mut scene = Scene::start_with(without).await?;
    let code = json!({"code": "print(open('/scratch/a', 'w').write('b'))"});
    scene.coder.done("shell_exec", code).await?;
    assert_eq!(scene.coder.read("/scratch/a").await?, "b");
    let line = scene
        .coder
        .done("shell_exec", json!({"code": "cat /scratch/a"}))
        .await?;
    assert_eq!(text(&line, "/output"), "b");
    Ok(())
}

#[tokio::test]
async fn the_official_clients_are_served() -> anyhow::Result<()> {
    let scene = Scene::start().await?;
    let url = scene.gateway.mcp_url(SERVER);
    let user = format!("{USER}={ADA}");
    for (script, sdk) in [
        ("round_robin.py", &[][..]),
        ("round_robin.mjs", &["--sdk", "v2"]),
        ("round_robin.mjs", &["--sdk", "v1"]),
    ] {
        let mut arguments = vec!["--url", &url, "--header", &user, "--tool", "fs_browse"];
        arguments.extend(["--sessions", "2", "--calls", "3"]);
        arguments.extend(sdk);
        let report = run_client(script, &arguments).await?;
        assert!(report.errors.is_empty(), "{script} {sdk:?}: {report:?}");
        let answers: Vec<&Value> = report.sessions.values().flatten().collect();
        assert_eq!(answers.len(), 6, "{script} {sdk:?}: {report:?}");
        for answer in answers {
            let answer = answer.as_str().context("a text")?;
            assert!(answer.contains("_catalog.json"), "{answer}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn arguments_that_no_tool_takes_are_named_and_nothing_is_made() -> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    for (tool, arguments, said) in [
        ("shell_exec", json!({}), "`code` is missing"),
        ("shell_exec", json!({"code": 1}), "`code` must be a string"),
        (
            "shell_exec",
            json!({"code": "1", "timeout": 5}),
            "unknown argument `timeout`",
        ),
        (
            "shell_exec",
            json!({"code": "1", "timeout_ms": 99}),
            "`timeout_ms` must be 100 to",
        ),
        (
            "shell_exec",
            json!({"code": "1", "language": "ruby"}),
            "`language` must be one of",
        ),
        (
            "shell_exec",
            json!({"code": "a".repeat(1024 * 1024 + 1)}),
            "may have 1048576",
        ),
        (
            "fs_browse",
            json!({"max_entries": 0}),
            "`max_entries` must be 1 to 1000",
        ),
        ("fs_browse", json!({"path": "/etc"}), "must lie in"),
        (
            "fs_read",
            json!({"path": "/scratch/../.mooring/stamp.json"}),
            "not valid",
        ),
        (
            "fs_write",
            json!({"path": "/scratch/a"}),
            "`content` is missing",
        ),
    ] {
        let (answer, is_error) = scene.coder.call(tool, arguments.clone()).await?;
        assert!(is_error, "{tool} {answer}");
        assert!(text(&answer, "/error").contains(said), "{said}: {answer}");
    }
    assert!(scene.volume.sessions()?.is_empty());
    for (tool, arguments, said) in [
        ("fs_read", json!({"path": "/scratch/none"}), "no such file"),
        ("fs_read", json!({"path": "/scratch"}), "is a directory"),
        (
            "fs_write",
            json!({"path": "/tools/x", "content": ""}),
            "read-only",
        ),
    ] {
        let (answer, is_error) = scene.coder.call(tool, arguments).await?;
        assert!(is_error, "{tool} {answer}");
        assert!(text(&answer, "/error").contains(said), "{said}: {answer}");
    }
    Ok(())
}

#[tokio::test]
#[ignore = "soak"]
async fn soak_a_run_that_takes_long_is_answered_on_a_stream() -> anyhow::Result<()> {
    let scene = Scene::start().await?;
    let mut session = scene.session().await?;
    let arguments = json!({"code": "import time\ntime.sleep(5.5)\nprint('late')"});
    let call = session.request_body(
        "tools/call",
        json!({"name": "shell_exec", "arguments": arguments}),
    );
    let mut reply = session.post(&call).await?;
    assert_eq!(reply.status, 200);
    assert!(reply.is_event_stream());
    assert_eq!(reply.header("x-accel-buffering"), Some("no"));
    let answer = reply.next_message().await?.context("an answer")?;
    assert_eq!(answer["id"], call["id"]);
    assert_eq!(answer["result"]["structuredContent"]["output"], "late\n");
    assert_eq!(reply.next_message().await?, None);
    Ok(())
}

#[tokio::test]
async fn a_call_goes_on_without_its_client() -> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    let mut session = scene.session().await?;
    let code = "import time\ntime.sleep(1)\nopen('/scratch/done', 'w').write('yes')";
    let params = json!({"name": "shell_exec", "arguments": {"code": code}});
    let body = serde_json::to_vec(&session.request_body("tools/call", params))?;
    let request = session.http_request(Method::POST, body.into())?;
    let gone = HttpClient::new(Duration::from_millis(200))
        .send(request)
        .await;
    assert!(gone.is_err(), "the client has gone before the answer");
    // The next call of the session waits for its turn, and so for the run.
    assert_eq!(
        scene
            .coder
            .python("print(open('/scratch/done').read())")
            .await?,
        "yes"
    );
    Ok(())
}

#[tokio::test]
async fn a_volume_that_cannot_be_used_is_said_and_harms_nobody_else() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let toml = format!(
        "[[servers]]\nid = \"tools\"\nkind = \"http\"\ninstances = [{:?}]\n\
         [[servers]]\nid = {SERVER:?}\nkind = \"code\"\nallow = [{{}}]\n",
        fixture.url()
    );
    let settings = Settings::toml(toml).env("MOORING_CODE_BASE_DIR", "/proc/mooring");
    let gateway = Gateway::start("no-volume", settings).await?;
    let client = HttpClient::default();
    let ready = client.get(&gateway.url("/readyz")).await?.json().await?;
    assert_eq!(ready["status"], "degraded");
    let code = &ready["parts"]["code"];
    assert_eq!(code["status"], "unavailable");
    assert!(
        text(code, "/base_dir/problem").contains("base directory"),
        "{code}"
    );
    assert_eq!(code["sandbox"]["tier"], "strict");
    assert_eq!(code["sandbox"]["runtimes"]["python"]["status"], "ok");
    let mut session = McpSession::open(&client, &[gateway.mcp_url(SERVER)]).await?;
    let answer = session
        .call("shell_exec", json!({"code": "print(1)"}))
        .await?;
    assert_eq!(answer["isError"], true);
    assert!(text(&answer, "/structuredContent/error").contains("/readyz"));
    let mut tools = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
    assert_eq!(tools.increment().await?, 1);
    Ok(())
}
