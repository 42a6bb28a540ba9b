//! Tasks (extension `io.modelcontextprotocol/tasks`): sealed ids lead to the instance that has them, from any gateway.

use mooring_tests::hook::{Hook, HookAnswer};
use serde_json::json;

use super::{Gateways, call, discovered, gateway, request};
use crate::small_server::{SmallServer, result};

/// A server that begins a task for each call, and knows its own tasks alone.
async fn working(name: &'static str) -> anyhow::Result<SmallServer> {
    SmallServer::start(move |request| {
        let (own, sent) = (format!("task of {name}"), request.json());
        let named = sent["params"]["taskId"].as_str();
        match (request.method().as_str(), named) {
            ("server/discover", _) => discovered(request),
            ("tools/call", _) => result(
                request,
                "",
                &json!({"resultType": "task", "taskId": own, "status": "working"}),
            ),
            ("tasks/get" | "tasks/cancel", Some(id)) if id == own => {
                let header = request.header("mcp-name").unwrap_or_default();
                result(
                    request,
                    "",
                    &json!({
                        "resultType": "complete", "taskId": id, "status": "completed",
                        "result": {"content": [], "structuredContent": {"header": header}},
                    }),
                )
            }
            _ => result(
                request,
                "",
                &json!({"resultType": "complete", "lost": true}),
            ),
        }
    })
    .await
}

#[tokio::test]
async fn a_task_is_found_at_its_instance_through_any_gateway() -> anyhow::Result<()> {
    let (one, other) = (working("one").await?, working("other").await?);
    let fleet = Gateways::start(2, &[one.url(), other.url()]).await?;
    for id in 0..4 {
        let (_, begun) = call(id, "work", &json!({})).answer(&fleet.url(0)).await?;
        let task = begun["result"]["taskId"].as_str().unwrap_or_default();
        assert!(!task.is_empty() && !task.contains("task"), "{begun}");
        for (at, method) in [(1, "tasks/get"), (0, "tasks/get"), (1, "tasks/cancel")] {
            let asked = request(id, method, json!({"taskId": task}));
            let (_, found) = asked.answer(&fleet.url(at)).await?;
            assert_eq!(found["result"]["status"], "completed", "{found}");
            assert_eq!(
                found["result"]["taskId"], task,
                "one id for one task: {found}"
            );
            // What a server routes by is its own id.
            let header = &found["result"]["result"]["structuredContent"]["header"];
            assert!(
                header.as_str().is_some_and(|id| id.starts_with("task of ")),
                "{found}"
            );
        }
    }
    let foreign = request(9, "tasks/get", json!({"taskId": "task of one"}));
    let (_, refused) = foreign.answer(&fleet.url(0)).await?;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    Ok(())
}

#[tokio::test]
async fn a_hook_is_asked_about_the_result_in_a_task() -> anyhow::Result<()> {
    let server = working("one").await?;
    let hook = Hook::start(
        |question| match question["result"]["structuredContent"].is_null() {
            true => HookAnswer::allowed(),
            false => {
                let result = json!({"content": [], "structuredContent": {"by": "hook"}});
                HookAnswer::Json(json!({"allow": true, "result": result}))
            }
        },
    )
    .await?;
    let fields = format!(
        "era = \"modern\"\n[[calls.hooks]]\nurl = {:?}\nwhen = [\"after\"]\nheaders = {{ Authorization = \"a\" }}\n",
        hook.url()
    );
    let gateway = gateway(&server, &fields).await?;
    let url = gateway.mcp_url("tools");
    let (_, begun) = call(1, "work", &json!({})).answer(&url).await?;
    let task = begun["result"]["taskId"].clone();
    let asked = request(2, "tasks/get", json!({"taskId": task}));
    let (_, found) = asked.answer(&url).await?;
    assert_eq!(found["result"]["taskId"], task, "{found}");
    assert_eq!(found["result"]["status"], "completed", "{found}");
    let shown = &found["result"]["result"]["structuredContent"];
    assert_eq!(*shown, json!({"by": "hook"}), "{found}");
    Ok(())
}
