//! What code may not call, and what comes of it when it tries: an exception, an entry among the security events, and
//! nothing at the other server.

use mooring_tests::client::HttpClient;
use mooring_tests::code::USER;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::Gateway;
use serde_json::{Value, json};

use super::{Rig, printed, run};
use crate::keyed::instances_table;

const ADA: &str = "ada@example.org";

/// A resource of the governing surface, as this user.
pub(super) async fn governed(gateway: &Gateway, user: &str, path: &str) -> anyhow::Result<Value> {
    let request = http::Request::get(gateway.url(path))
        .header(USER, user)
        .body(bytes::Bytes::new())?;
    let reply = HttpClient::default().send(request).await?;
    anyhow::ensure!(reply.status == 200, "{path}: {}", reply.status);
    reply.json().await
}

const CALLS: &str = r#"
import tools
def attempt(server, tool):
    try:
        tools.call(server, tool, {})
        print("made")
    except Exception as error:
        print(type(error).__name__, getattr(error, "kind", "-"))
attempt("web", "increment")
attempt("web", "whoami")
attempt("other", "increment")
attempt("sandbox", "shell_exec")
attempt("web", "../sandbox/shell_exec")
attempt("web", "in\0crement")
"#;

#[tokio::test]
async fn the_policy_and_the_mounts_hold_and_every_refusal_is_recorded() -> anyhow::Result<()> {
    let (web, other) = tokio::try_join!(Fixture::start("a"), Fixture::start("b"))?;
    let tables = [
        instances_table("web", "http", &[web.url()]),
        instances_table("other", "http", &[other.url()]),
    ];
    let of_code = "mount_rules = { exclude_servers = [\"oth*\"] }\n\
                   sandbox_policy = { tool_allow_patterns = [\"web/*\"], tool_deny_patterns = [\"web/who*\"] }\n";
    let rig = Rig::start(&tables.concat(), of_code).await?;
    let mut session = rig.open("sandbox", ADA).await?;
    let answer = run(&mut session, "python", CALLS).await?;
    let expected = "made\nToolDeniedError denied\nToolDeniedError denied\nToolDeniedError denied\n\
                    ToolNotMountedError not_mounted\nToolNotMountedError not_mounted\n";
    assert_eq!(answer["output"], expected, "{answer}");
    let events = governed(
        &rig.0.gateways[1],
        ADA,
        "/servers/sandbox/code/security-events",
    )
    .await?;
    let events = events["events"].as_array().cloned().unwrap_or_default();
    let blocked: Vec<&str> = events
        .iter()
        .filter(|event| event["kind"] == "tool_call_blocked")
        .filter_map(|event| event["tool"].as_str())
        .collect();
    assert!(blocked.contains(&"web/whoami"), "{events:?}");
    assert!(blocked.contains(&"other/increment"), "{events:?}");
    assert!(blocked.contains(&"sandbox/shell_exec"), "{events:?}");
    Ok(())
}

#[tokio::test]
async fn code_cannot_call_code_whatever_the_policy_says() -> anyhow::Result<()> {
    let tables = "[[servers]]\nid = \"second\"\nkind = \"code\"\nallow = [{}]\n";
    let rig = Rig::start(tables, "").await?;
    let mut session = rig.open("sandbox", ADA).await?;
    let code = "import tools\nfor server in ('sandbox', 'second'):\n    try:\n        tools.call(server, 'shell_exec', {'code': 'print(1)'})\n    except Exception as error:\n        print(error.kind)";
    assert_eq!(
        printed(&mut session, "python", code).await?,
        "recursion\nrecursion"
    );
    Ok(())
}

#[tokio::test]
async fn a_server_that_allows_no_calls_denies_every_one() -> anyhow::Result<()> {
    let web = Fixture::start("a").await?;
    let of_code = "sandbox_policy = { allow_tool_calls = false }\n";
    let rig = Rig::start(&instances_table("web", "http", &[web.url()]), of_code).await?;
    let mut session = rig.open("sandbox", ADA).await?;
    let code = "import tools\ntry:\n    tools.call('web', 'increment', {})\nexcept Exception as error:\n    print(error.kind)";
    assert_eq!(printed(&mut session, "python", code).await?, "denied");
    Ok(())
}

#[tokio::test]
async fn limits_of_calls_and_frames_hold_and_the_run_goes_on() -> anyhow::Result<()> {
    let web = Fixture::start("a").await?;
    let rig = Rig::start_with(
        &instances_table("web", "http", &[web.url()]),
        "",
        |settings| settings.env("MOORING_CODE_CALLS_PER_RUN", "10"),
    )
    .await?;
    let mut session = rig.open("sandbox", ADA).await?;
    let many = "import tools\nkinds = {}\nfor _ in range(25):\n    try:\n        tools.web.increment(); kind = 'made'\n    except Exception as error:\n        kind = error.kind\n    kinds[kind] = kinds.get(kind, 0) + 1\nprint(sorted(kinds.items()))";
    assert_eq!(
        printed(&mut session, "python", many).await?,
        "[('limit', 15), ('made', 10)]"
    );
    let large = "import tools\ntry:\n    tools.call('web', 'increment', {'x': 'y' * (2 << 20)})\nexcept Exception as error:\n    print(error.kind)\nprint(tools.call('web', 'increment', {})['count'] > 0)";
    let answer = run(&mut session, "python", large).await?;
    let output = answer["output"].as_str().unwrap_or_default();
    assert!(output.starts_with("limit\n"), "{answer}");
    let deep = "import tools\nvalue = []\nfor _ in range(5000):\n    value = [value]\ntry:\n    tools.call('web', 'increment', {'x': value})\nexcept BaseException as error:\n    print(getattr(error, 'kind', type(error).__name__))";
    let output = printed(&mut session, "python", deep).await?;
    assert!(
        matches!(output.as_str(), "limit" | "RecursionError" | "invalid"),
        "{output}"
    );
    // The session goes on.
    assert_eq!(printed(&mut session, "python", "print(1)").await?, "1");
    Ok(())
}

/// Raw writes to descriptor 3, each of which has to end in nothing worse than a closed bridge.
const ABUSE: [(&str, &str); 8] = [
    (
        "no frame",
        "os.write(3, b'hello, world, this is no frame at all')",
    ),
    (
        "a length that lies",
        "os.write(3, (4_000_000_000).to_bytes(4, 'big') + b'{}')",
    ),
    ("an empty frame", "os.write(3, (0).to_bytes(4, 'big'))"),
    ("no object", "os.write(3, (2).to_bytes(4, 'big') + b'[]')"),
    (
        "a forged answer",
        "frame({'id': 1, 'result': {'count': 99}})",
    ),
    (
        "half a frame",
        "os.write(3, (100).to_bytes(4, 'big') + b'{\"id\":')",
    ),
    ("closed", "os.close(3)"),
    (
        "descriptors",
        "import socket, array\nsock = socket.socket(fileno=os.dup(3))\n\
         sock.sendmsg([b'\\0\\0\\0\\2{}'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [1, 2]))])",
    ),
];

#[tokio::test]
async fn abuse_of_the_bridge_ends_the_bridge_and_nothing_else() -> anyhow::Result<()> {
    let web = Fixture::start("a").await?;
    let rig = Rig::start(&instances_table("web", "http", &[web.url()]), "").await?;
    let mut session = rig.open("sandbox", ADA).await?;
    for (what, code) in ABUSE {
        let code = format!(
            "import json, os\ndef frame(value):\n    data = json.dumps(value).encode()\n    \
             os.write(3, len(data).to_bytes(4, 'big') + data)\n{code}\nprint('went on')"
        );
        let answer = run(&mut session, "python", &code).await?;
        assert_eq!(answer["output"], "went on\n", "{what}: {answer}");
        assert_eq!(
            answer["metrics"]["outcome"], "completed",
            "{what}: {answer}"
        );
        let next = "from tools.web import increment\nprint(increment()['count'])";
        printed(&mut session, "python", next).await?;
    }
    let events = governed(
        &rig.0.gateways[0],
        ADA,
        "/servers/sandbox/code/security-events?kind=bridge_violation",
    )
    .await?;
    let count = events["events"].as_array().map_or(0, Vec::len);
    assert!(count >= 4, "{events}");
    Ok(())
}

#[tokio::test]
async fn a_run_that_is_out_of_time_ends_with_its_calls() -> anyhow::Result<()> {
    let web = Fixture::start("a").await?;
    let rig = Rig::start(&instances_table("web", "http", &[web.url()]), "").await?;
    let mut session = rig.open("sandbox", ADA).await?;
    let arguments = json!({
        "language": "python",
        "code": "from tools.web import hang\nhang(token='t')",
        "timeout_ms": 1500,
    });
    let result = session.call("shell_exec", arguments).await?;
    let answer = mooring_tests::code::whole_answer(&result)?;
    assert_eq!(answer["metrics"]["outcome"], "timed_out", "{answer}");
    let calls = answer["tool_calls_made"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    assert_eq!(calls.len(), 1, "{answer}");
    // The tool's turn is free again: its server was told that nobody waits.
    let next = "from tools.web import increment\nprint(increment()['count'])";
    assert_eq!(printed(&mut session, "python", next).await?, "1");
    Ok(())
}
