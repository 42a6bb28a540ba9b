//! Upstreams that spoil the handshake: the client gets an error that says so, and no session that would never work.

use mooring_tests::client::HttpClient;
use mooring_tests::gateway::Gateway;
use serde_json::json;

use crate::rig::{initialize_params, kept, refusal};
use crate::scripted::{Scripted, initialize_result};

#[tokio::test]
async fn a_handshake_that_fails_leaves_no_session() -> anyhow::Result<()> {
    let refused =
        r#"{"jsonrpc":"2.0","id":"ID","error":{"code":-32602,"message":"no such client"}}"#;
    let endless = "x".repeat(9 * 1024 * 1024);
    let too_long = format!("application/json\r\nmcp-session-id: {}", "x".repeat(1_025));
    let initialized =
        json!({"jsonrpc": "2.0", "id": "ID", "result": initialize_result()}).to_string();
    let table = [
        (
            "no JSON",
            "200 OK",
            "application/json",
            "not json",
            (502, -32011),
        ),
        (
            "a notification",
            "200 OK",
            "application/json",
            r#"{"jsonrpc":"2.0","method":"x"}"#,
            (502, -32011),
        ),
        (
            "no answer on the stream",
            "200 OK",
            "text/event-stream",
            ": nothing\n\n",
            (503, -32009),
        ),
        (
            "an endless answer",
            "200 OK",
            "application/json",
            &endless,
            (503, -32009),
        ),
        (
            "a session id that is too long",
            "200 OK",
            &too_long,
            &initialized,
            (502, -32011),
        ),
        (
            "a session id that is no text",
            "200 OK",
            "application/json\r\nmcp-session-id: a b",
            &initialized,
            (502, -32011),
        ),
        (
            "a switch of protocols",
            "101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: other",
            "text/plain",
            "",
            (502, -32015),
        ),
        (
            "a server error",
            "500 Internal Server Error",
            "text/plain",
            "oops",
            (503, -32009),
        ),
        (
            "credentials refused",
            "401 Unauthorized",
            "text/plain",
            "who?",
            (502, -32015),
        ),
        (
            "a client refused",
            "400 Bad Request",
            "application/json",
            refused,
            (200, -32602),
        ),
    ];
    let mut upstream = Scripted::start_without_handshake().await?;
    let gateway = Gateway::start("hostile", kept(&[upstream.url()])).await?;
    let client = HttpClient::default();
    let url = gateway.mcp_url("tools");
    let initialize =
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize_params()});
    let request = || {
        http::Request::post(&url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(initialize.to_string().into())
    };
    for (what, status, content_type, body, expected) in table {
        let answered = async {
            // The gateway may close before an endless answer is written.
            let exchange = upstream.next().await?;
            let body = body.replace(r#""ID""#, &exchange.wire_id());
            let _ = exchange.answer(status, content_type, &body).await;
            Ok(())
        };
        let (reply, ()) = tokio::try_join!(client.send(request()?), answered)?;
        assert_eq!(reply.header("mcp-session-id"), None, "{what}");
        let (status, code) = refusal(reply).await?;
        assert_eq!((status.as_u16(), code), expected, "{what}");
        assert_eq!(
            gateway
                .metric("session_affinity_bindings_active", &[])
                .await?,
            0.0,
            "{what}"
        );
    }
    // The client is told which status it was, and what to look at.
    let answered = async {
        let next = upstream.next().await?;
        next.answer("403 Forbidden", "text/html", "<html>").await
    };
    let (reply, ()) = tokio::try_join!(client.send(request()?), answered)?;
    let message = reply.json().await?["error"]["message"].to_string();
    for said in ["403 Forbidden", "servers.headers"] {
        assert!(message.contains(said), "{message}");
    }
    // A server without sessions of its own is served all the same.
    let answered = async { upstream.next().await?.result(&initialize_result()).await };
    let (reply, ()) = tokio::try_join!(client.send(request()?), answered)?;
    assert_eq!(reply.status, 200);
    assert!(reply.header("mcp-session-id").is_some());
    Ok(())
}
