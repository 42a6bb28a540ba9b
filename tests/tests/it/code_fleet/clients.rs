//! The official clients against a code server through a fleet: what they hold against the output schemas, errors
//! included, and answers that come late.

use anyhow::Context;
use mooring_tests::code::{CodeVolume, SERVER};
use mooring_tests::gateway::Gateway;
use mooring_tests::redis::Redis;
use mooring_tests::script::answers;
use serde_json::{Value, json};

/// A call, whether it fails, and what its structured answer holds.
type ExpectedCall = (&'static str, Value, bool, &'static str);

/// Calls, whether each fails, and what its structured answer holds.
fn calls() -> Vec<ExpectedCall> {
    let python = |code: &str| json!({"code": code, "language": "python"});
    vec![
        (
            "fs_write",
            json!({"path": "/scratch/a", "content": "written"}),
            false,
            "/scratch/a",
        ),
        ("fs_read", json!({"path": "/scratch/a"}), false, "written"),
        ("fs_browse", json!({"path": "/scratch"}), false, "\"a\""),
        (
            "shell_exec",
            json!({"code": "cat /scratch/a | wc -c"}),
            false,
            "7",
        ),
        (
            "shell_exec",
            json!({"code": "const n: number = 20; console.log(n + 3)", "language": "typescript"}),
            false,
            "23\\n",
        ),
        (
            "shell_exec",
            python("raise SystemExit(3)"),
            true,
            "exit code 3",
        ),
        ("shell_exec", python("breakpoint()"), true, "blocked"),
        (
            "shell_exec",
            json!({"code": "ls; ls"}),
            true,
            "not supported",
        ),
        (
            "shell_exec",
            json!({"code": "while True: pass", "language": "python", "timeout_ms": 300}),
            true,
            "timed out",
        ),
        ("shell_exec", json!({"code": 1}), true, "must be a string"),
        ("shell_exec", python("print(1)\0print(2)"), true, "NUL"),
        ("fs_read", json!({}), true, "is missing"),
        (
            "fs_read",
            json!({"path": "/scratch/none"}),
            true,
            "no such file",
        ),
        ("fs_browse", json!({"path": "/etc"}), true, "must lie in"),
        ("tool_search", json!({"query": "x"}), false, "\"total\":0"),
        (
            "tool_search",
            json!({"query": "x", "detail": "all"}),
            true,
            "must be one of",
        ),
        (
            "fs_write",
            json!({"path": "/tools/a", "content": ""}),
            true,
            "read-only",
        ),
    ]
}

#[tokio::test]
async fn what_tools_answer_is_what_their_schemas_say() -> anyhow::Result<()> {
    answers_meet_their_schemas("brief", calls()).await
}

#[tokio::test]
async fn what_tools_answer_in_full_is_what_their_schemas_say() -> anyhow::Result<()> {
    answers_meet_their_schemas("full", calls()).await
}

#[tokio::test]
#[ignore = "soak"]
async fn soak_what_tools_answer_late_is_what_their_schemas_say() -> anyhow::Result<()> {
    for form in ["brief", "full"] {
        // Longer than an answer is waited for without a stream.
        let arguments = json!({"code": "import time; time.sleep(5.5); print('late')"});
        let late = ("shell_exec", arguments, false, "late\\n");
        answers_meet_their_schemas(form, vec![late]).await?;
    }
    Ok(())
}

async fn answers_meet_their_schemas(form: &str, calls: Vec<ExpectedCall>) -> anyhow::Result<()> {
    let (volume, redis) = (CodeVolume::new()?, Redis::start().await?);
    let deno = mooring_tests::paths::tool("deno")?;
    let settings = volume
        .settings(&redis.url())
        .env("MOORING_CODE_ANSWER", form)
        .env("MOORING_CODE_DENO_PATH", &deno.display().to_string());
    let gateways = Gateway::fleet(3, &settings).await?;
    let urls: Vec<String> = gateways.iter().map(|g| g.mcp_url(SERVER)).collect();
    for (script, sdk) in [
        ("answers.py", &[][..]),
        ("answers.mjs", &["--sdk", "v2"]),
        ("answers.mjs", &["--sdk", "v1"]),
    ] {
        let named = calls.iter().map(|(tool, arguments, ..)| (*tool, arguments));
        let report = answers(script, sdk, &urls, "ada@example.org", named).await?;
        let tools = [
            "shell_exec",
            "fs_browse",
            "fs_read",
            "fs_write",
            "tool_search",
        ];
        assert_eq!(report.tools, tools, "{script} {sdk:?}");
        assert_eq!(report.answers.len(), calls.len(), "{script} {sdk:?}");
        for ((tool, arguments, is_error, holds), answer) in calls.iter().zip(&report.answers) {
            let about = format!("{script} {sdk:?}: {tool} {arguments}: {answer:?}");
            assert_eq!(answer.is_error, *is_error, "{about}");
            assert!(answer.structured.to_string().contains(holds), "{about}");
            if form == "brief" {
                assert!(answer.text.len() < 400, "{about}");
                if let Some(output) = answer.structured["output"].as_str() {
                    assert!(answer.text.starts_with(output), "{about}");
                    assert_eq!(answer.structured.get("metrics"), None, "{about}");
                }
                continue;
            }
            let text: Value = serde_json::from_str(&answer.text).context(about.clone())?;
            let [text, structured] = [text, answer.structured.clone()].map(numbers_alike);
            assert_eq!(text, structured, "{about}");
        }
    }
    Ok(())
}

/// The same value with every number as a float: JavaScript writes the `4.0` that it read as `4`.
fn numbers_alike(value: Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().map_or(Value::Null, Value::from),
        Value::Array(items) => items.into_iter().map(numbers_alike).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (name, numbers_alike(value)))
            .collect(),
        other => other,
    }
}
