//! Whose state a stateful tool keeps: that of one user's session in one language, from run to run and through any worker.

use mooring_tests::fixture::{self, Fixture};
use serde_json::{Value, json};

use super::{Rig, printed, run};
use crate::keyed::{instances_table, stdio_table};

const ADA: &str = "ada@example.org";
const BOB: &str = "bob@example.org";

async fn counted(
    session: &mut super::McpSession,
    server: &str,
    language: &str,
) -> anyhow::Result<String> {
    let code = match language {
        "python" => format!("from tools.{server} import increment\nprint(increment()['count'])"),
        _ => format!(
            "import {{ increment }} from \"tools/{server}/mod.ts\";\nconst counted = await increment({{}});\n\
             console.log((counted as {{ count: number }}).count);"
        ),
    };
    printed(session, language, &code).await
}

#[tokio::test]
async fn a_stateful_tool_counts_on_for_one_session_and_for_nobody_else() -> anyhow::Result<()> {
    let (one, two, sse) = tokio::try_join!(
        Fixture::start("a"),
        Fixture::start("b"),
        Fixture::start("c")
    )?;
    let tables = [
        instances_table("web", "http", &[one.url(), two.url()]),
        instances_table("old", "sse", &[sse.sse_url()]),
        stdio_table("child", &fixture::stdio_command("d", None, &[])?),
    ];
    let rig = Rig::start(&tables.concat(), "").await?;
    let (mut ada, mut bob) = (
        rig.open("sandbox", ADA).await?,
        rig.open("sandbox", BOB).await?,
    );
    for server in ["web", "old", "child"] {
        for expected in ["1", "2", "3"] {
            assert_eq!(
                counted(&mut ada, server, "python").await?,
                expected,
                "{server}"
            );
        }
        assert_eq!(counted(&mut bob, server, "python").await?, "1", "{server}");
        assert_eq!(
            counted(&mut ada, server, "typescript").await?,
            "1",
            "{server}"
        );
        assert_eq!(counted(&mut ada, server, "python").await?, "4", "{server}");
        // A client of the server itself has a session of its own.
        let mut direct = rig.open(server, ADA).await?;
        assert_eq!(direct.increment().await?, 1, "{server}");
    }
    Ok(())
}

#[tokio::test]
async fn calls_are_told_in_the_answer_with_their_times() -> anyhow::Result<()> {
    let fixture = Fixture::start("a").await?;
    let rig = Rig::start(&instances_table("web", "http", &[fixture.url()]), "").await?;
    let mut session = rig.open("sandbox", ADA).await?;
    let code = "import tools\nfor _ in range(3):\n    tools.web.increment()\n\
                try:\n    tools.web.no_such_tool()\nexcept AttributeError:\n    print('absent')\n\
                try:\n    tools.call('web', 'no-such-tool', {})\nexcept Exception as error:\n    print(type(error).__name__)\n";
    let answer = run(&mut session, "python", code).await?;
    assert_eq!(
        answer["output"], "absent\nToolNotMountedError\n",
        "{answer}"
    );
    let calls = answer["tool_calls_made"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let told: Vec<(&str, bool)> = calls
        .iter()
        .map(|call| {
            (
                call["name"].as_str().unwrap_or_default(),
                call["success"] == true,
            )
        })
        .collect();
    let expected = [
        ("web/increment", true),
        ("web/increment", true),
        ("web/increment", true),
        ("web/no-such-tool", false),
    ];
    assert_eq!(told, expected);
    assert!(
        calls
            .iter()
            .all(|call| call["latency_ms"].as_f64().is_some())
    );
    let metrics = &answer["metrics"];
    assert_eq!(metrics["tool_call_count"], 4);
    assert_eq!(metrics["error_rate"], json!(0.25));
    assert!(
        metrics["tool_latency_p50_ms"].as_f64() > Some(0.0),
        "{metrics}"
    );
    Ok(())
}

#[tokio::test]
async fn hundreds_of_calls_cost_a_model_nothing() -> anyhow::Result<()> {
    let fixture = Fixture::start("a").await?;
    let rig = Rig::start(&instances_table("web", "http", &[fixture.url()]), "").await?;
    let mut session = rig.open("sandbox", ADA).await?;
    let code = "import tools\nfor _ in range(300):\n    last = tools.web.increment()\nprint(last['count'])";
    let arguments = json!({"language": "python", "code": code});
    let result = session.call("shell_exec", arguments).await?;
    assert_eq!(
        result["content"],
        json!([{"type": "text", "text": "300\n"}])
    );
    assert_eq!(result["structuredContent"], json!({"output": "300\n"}));
    let run = &result["_meta"]["mooring/run"];
    assert_eq!(run["metrics"]["tool_call_count"], 300, "{run}");
    assert_eq!(run["tool_calls_made"].as_array().map(Vec::len), Some(100));
    Ok(())
}

#[tokio::test]
async fn tools_are_resolved_once_for_the_fleet_and_found_by_words() -> anyhow::Result<()> {
    let fixture = Fixture::start("a").await?;
    let rig = Rig::start(&instances_table("web", "http", &[fixture.url()]), "").await?;
    let mut session = rig.open("sandbox", ADA).await?;
    for _ in 0..3 {
        let arguments = json!({"query": "increment", "detail": "name"});
        let found = session.call("tool_search", arguments).await?;
        let found = &found["structuredContent"];
        assert_eq!(found["tools"][0]["name"], "increment", "{found}");
    }
    let listed = rig.0.volume.own(".catalog")?;
    let is_list = |path: &&std::path::PathBuf| path.extension().is_some_and(|e| e == "json");
    assert_eq!(listed.iter().filter(is_list).count(), 1, "{listed:?}");
    let mut made = 0.0;
    for gateway in &rig.0.gateways {
        // Every gateway mounts, one has asked.
        made += gateway
            .metric(
                "mooring_upstream_duration_seconds_count",
                &["server=\"web\"", "method=\"tools/list\""],
            )
            .await?;
    }
    assert_eq!(made, 1.0, "one worker listed the tools");
    let catalog = session
        .call("fs_read", json!({"path": "/tools/_catalog.json"}))
        .await?;
    let catalog = catalog["structuredContent"]["content"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let catalog: Value = serde_json::from_str(&catalog)?;
    assert!(catalog["tool_count"].as_u64() > Some(0), "{catalog}");
    Ok(())
}

/// Code gets what the tool said and nothing besides, so the model is told by the run.
#[tokio::test]
async fn a_run_whose_calls_meet_lost_state_says_so_once() -> anyhow::Result<()> {
    const TEXT: &str = "This is a simple text response for testing.";
    let mut web = Fixture::start("web").await?;
    let other = Fixture::start("other").await?;
    let tables = [
        instances_table("web", "http", &[web.url()]),
        instances_table("other", "http", &[other.url()]),
    ];
    let rig = Rig::start(&tables.concat(), "").await?;
    let mut session = rig.open("sandbox", ADA).await?;
    let code = "from tools.web import increment, test_simple_text\nfrom tools.other import increment as increment_other\n\
                print(test_simple_text(), increment()['count'], increment()['count'], increment_other()['count'])";
    let before = run(&mut session, "python", code).await?;
    assert_eq!(before["output"], format!("{TEXT} 1 2 1\n"), "{before}");
    assert_eq!(before["metrics"]["state_lost"], Value::Null, "{before}");
    web.restart().await?;
    let told = run(&mut session, "python", code).await?;
    assert_eq!(told["output"], format!("{TEXT} 1 2 2\n"), "{told}");
    assert_eq!(told["metrics"]["state_lost"], json!(["web"]), "{told}");
    let error = told["error"].as_str().unwrap_or_default();
    assert!(
        error.contains("state lost: the session at the server web"),
        "{told}"
    );
    let after = run(&mut session, "python", code).await?;
    assert_eq!(after["output"], format!("{TEXT} 3 4 3\n"), "{after}");
    assert_eq!(after["metrics"]["state_lost"], Value::Null, "{after}");
    Ok(())
}
