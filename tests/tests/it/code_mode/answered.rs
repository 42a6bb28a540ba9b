//! What code is told of a call that its server or a proxy answered in another way than MCP says: never that nothing ran where
//! it may have run.

use serde_json::{Value, json};

use super::{Rig, printed};
use crate::keyed::instances_table;
use crate::scripted::{Seen, initialize_result};
use crate::small_server::{JSON, SmallServer, response, result};

/// Status and headers, media type, body, and what code is told; `ID` stands for the request's id.
const ANSWERS: [(&str, &str, &str, &str); 11] = [
    (
        "500 Internal Server Error",
        "text/plain",
        "failed",
        "outcome_unknown",
    ),
    ("502 Bad Gateway", "text/html", "<html>", "outcome_unknown"),
    ("504 Gateway Timeout", "text/plain", "", "outcome_unknown"),
    (
        "503 Service Unavailable",
        "text/plain",
        "reset",
        "outcome_unknown",
    ),
    ("200 OK", "text/html", "<html>", "outcome_unknown"),
    ("200 OK", JSON, "{", "outcome_unknown"),
    (
        "500 Internal Server Error",
        JSON,
        r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"failed"}}"#,
        "outcome_unknown",
    ),
    (
        "503 Service Unavailable\r\nretry-after: 1",
        "text/plain",
        "",
        "unavailable",
    ),
    ("429 Too Many Requests", "text/plain", "", "unavailable"),
    ("422 Unprocessable Entity", "text/plain", "", "unavailable"),
    (
        "200 OK",
        JSON,
        r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"no such account"}}"#,
        "tool_error",
    ),
];

fn answer(request: &Seen) -> String {
    let message = request.json();
    match request.method().as_str() {
        "initialize" => result(request, "mcp-session-id: one\r\n", &initialize_result()),
        "tools/list" => {
            let schema = json!({"type": "object"});
            let tool = json!({"name": "pay", "description": "Pays.", "inputSchema": schema});
            result(request, "", &json!({"tools": [tool]}))
        }
        "ping" => result(request, "", &json!({})),
        "tools/call" => {
            let number = message["params"]["arguments"]["number"].as_u64();
            let known = number.and_then(|number| ANSWERS.get(usize::try_from(number).ok()?));
            let (status, content_type, body, _) = known.copied().unwrap_or(ANSWERS[0]);
            let body = body.replace("ID", &message["id"].to_string());
            response(status, content_type, "", &body)
        }
        _ => response("202 Accepted", JSON, "", ""),
    }
}

#[tokio::test]
async fn code_is_told_that_nothing_ran_only_where_that_is_known() -> anyhow::Result<()> {
    let server = SmallServer::start(answer).await?;
    let rig = Rig::start(&instances_table("web", "http", &[server.url()]), "").await?;
    let mut session = rig.open("sandbox", "ada@example.org").await?;
    let code = format!(
        "import json, tools\nkinds = []\nfor number in range({}):\n    try:\n        tools.call('web', 'pay', {{'number': number}})\n        kinds.append('ran')\n    except tools.ToolError as error:\n        kinds.append(error.kind)\nprint(json.dumps(kinds))\n",
        ANSWERS.len()
    );
    let kinds: Vec<Value> = serde_json::from_str(&printed(&mut session, "python", &code).await?)?;
    for ((status, content_type, body, expected), kind) in ANSWERS.into_iter().zip(kinds) {
        assert_eq!(kind, expected, "{status} {content_type} {body}");
    }
    Ok(())
}
