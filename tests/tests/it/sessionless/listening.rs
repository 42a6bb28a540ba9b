//! `subscriptions/listen`: over any gateway, with the client's id, and with a result at a graceful end.

use mooring_tests::fleet::settings_toml;
use mooring_tests::gateway::{Gateway, Settings};
use serde_json::json;

use super::request;
use crate::scripted::Scripted;

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

#[tokio::test]
async fn a_subscription_has_its_clients_id_and_ends_with_a_result() -> anyhow::Result<()> {
    let mut server = Scripted::start().await?;
    let settings = settings_toml("embedded", &[server.url()]) + "era = \"modern\"\n";
    let mut gateway = Gateway::start("sessionless", Settings::toml(settings)).await?;
    let url = gateway.mcp_url("tools");
    let mut listen = request(
        0,
        "subscriptions/listen",
        json!({"notifications": {"toolsListChanged": true}}),
    );
    listen.id = json!("listen \"1\"");
    let listening = tokio::spawn(async move { listen.send(&url).await });
    let mut stream = server.next().await?;
    let wire_id = stream.wire_id();
    assert_eq!(
        stream.request.header("mcp-method"),
        Some("subscriptions/listen")
    );
    stream.begin_events().await?;
    let notification = |method: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"_meta":{{"{SUBSCRIPTION}":{wire_id}}},"notifications":{{"toolsListChanged":true}}}}}}"#
        )
    };
    stream
        .event(&notification("notifications/subscriptions/acknowledged"))
        .await?;
    let mut reply = listening.await??;
    assert_eq!(reply.header("x-accel-buffering"), Some("no"));
    let first = reply.next_message().await?.unwrap_or_default();
    assert_eq!(
        first["method"], "notifications/subscriptions/acknowledged",
        "{first}"
    );
    assert_eq!(
        first["params"]["_meta"][SUBSCRIPTION], "listen \"1\"",
        "{first}"
    );
    stream
        .event(&notification("notifications/tools/list_changed"))
        .await?;
    let change = reply.next_message().await?.unwrap_or_default();
    assert_eq!(
        change["params"]["_meta"][SUBSCRIPTION], "listen \"1\"",
        "{change}"
    );

    gateway.process().begin_to_terminate()?;
    let end = reply.next_message().await?.unwrap_or_default();
    assert_eq!(end["id"], "listen \"1\"", "{end}");
    assert_eq!(end["result"]["resultType"], "complete", "{end}");
    assert_eq!(
        end["result"]["_meta"][SUBSCRIPTION], "listen \"1\"",
        "{end}"
    );
    assert!(reply.next_message().await?.is_none());
    gateway.process().terminate().await?;
    Ok(())
}
