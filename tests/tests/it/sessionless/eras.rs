//! In which era a server serves clients without sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use mooring_tests::client::{HttpClient, STEP_WITHIN};
use mooring_tests::code::{CodeVolume, SERVER, USER};
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::session::McpSession;
use mooring_tests::wait::until_true;
use serde_json::{Value, json};

use super::{REVISION, Sessionless, call, discovered, gateway, request, unheard_of};
use crate::scripted::initialize_result;
use crate::small_server::{JSON, SmallServer, response, result};

/// A server of both eras, which counts what it is asked.
async fn dual(
    discoveries: &Arc<AtomicUsize>,
    session: &'static str,
) -> anyhow::Result<SmallServer> {
    let counted = Arc::clone(discoveries);
    SmallServer::start(move |request| match request.method().as_str() {
        "server/discover" => {
            counted.fetch_add(1, Ordering::Relaxed);
            discovered(request)
        }
        "initialize" => result(request, session, &initialize_result()),
        "notifications/initialized" => response("202 Accepted", JSON, "", ""),
        "tools/call" => result(
            request,
            "",
            &json!({"resultType": "complete", "content": []}),
        ),
        _ => result(request, "", &json!({})),
    })
    .await
}

fn code_of((status, answer): &(u16, Value)) -> (u16, i64) {
    (
        *status,
        answer["error"]["code"].as_i64().unwrap_or_default(),
    )
}

/// Without a session such a server would answer each call from an empty state.
#[tokio::test]
async fn a_server_whose_sessions_are_kept_asks_for_a_session() -> anyhow::Result<()> {
    let discoveries = Arc::default();
    let server = dual(&discoveries, "mcp-session-id: one\r\n").await?;
    for fields in ["", "era = \"legacy\"\naffinity = \"off\"\n"] {
        let gateway = gateway(&server, fields).await?;
        let url = gateway.mcp_url("tools");
        let discovery = request(1, "server/discover", json!({}))
            .answer(&url)
            .await?;
        assert_eq!(
            code_of(&discovery),
            (200, -32601),
            "{fields}: {}",
            discovery.1
        );
        let called = call(2, "a", &json!({})).answer(&url).await?;
        assert_eq!(code_of(&called), (400, -32022), "{fields}: {}", called.1);
        let supported = &called.1["error"]["data"]["supported"];
        assert!(supported.to_string().contains("2025-11-25"), "{supported}");
        assert!(!supported.to_string().contains(REVISION), "{supported}");
        let mut session = McpSession::open(&HttpClient::default(), &[url]).await?;
        session.call("a", json!({})).await?;
    }
    assert_eq!(discoveries.load(Ordering::Relaxed), 0, "nothing was asked");
    Ok(())
}

/// Clients of both eras are served at one path, and the server is asked once.
#[tokio::test]
async fn a_server_without_sessions_serves_both_eras() -> anyhow::Result<()> {
    let discoveries = Arc::default();
    let server = dual(&discoveries, "").await?;
    let toml = format!(
        "[store]\nurl = \"embedded\"\n\n[[servers]]\nid = \"tools\"\nkind = \"http\"\ninstances = [{:?}]\n",
        server.url()
    );
    let settings = Settings::toml(toml);
    let gateway = Gateway::start("sessionless", settings).await?;
    let url = gateway.mcp_url("tools");
    for id in 1..=3 {
        let (status, answer) = call(id, "a", &json!({})).answer(&url).await?;
        assert_eq!(
            (status, &answer["result"]["resultType"]),
            (200, &json!("complete")),
            "{answer}"
        );
    }
    let mut session = McpSession::open(&HttpClient::default(), &[url]).await?;
    session.call("a", json!({})).await?;
    assert_eq!(discoveries.load(Ordering::Relaxed), 1);
    Ok(())
}

/// A server that refuses as one of the other era does is asked again, and one that fails is not taken for one.
#[tokio::test]
async fn only_evidence_changes_what_a_server_is_taken_for() -> anyhow::Result<()> {
    let (is_legacy, fails) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(true)),
    );
    let states = (Arc::clone(&is_legacy), Arc::clone(&fails));
    let server = SmallServer::start(move |request| {
        let (is_legacy, fails) = &states;
        match request.method().as_str() {
            _ if fails.load(Ordering::Relaxed) => {
                response("500 Internal Server Error", "text/plain", "", "broken")
            }
            _ if is_legacy.load(Ordering::Relaxed) => unheard_of(request),
            "server/discover" => discovered(request),
            _ => result(
                request,
                "",
                &json!({"resultType": "complete", "content": []}),
            ),
        }
    })
    .await?;
    let gateway = gateway(&server, "affinity = \"off\"\n").await?;
    let url = gateway.mcp_url("tools");
    let failed = request(1, "server/discover", json!({})).send(&url).await?;
    assert_eq!(
        failed.status.as_u16(),
        500,
        "what is broken is no server of the other era"
    );
    fails.store(false, Ordering::Relaxed);
    until_true("the server is asked again", STEP_WITHIN, async || {
        let called = call(2, "a", &json!({})).send(&url).await?;
        Ok(called.status.is_success())
    })
    .await?;
    is_legacy.store(true, Ordering::Relaxed);
    let refused = call(3, "a", &json!({})).answer(&url).await?;
    assert_eq!(code_of(&refused), (400, -32000), "{}", refused.1);
    let told = call(4, "a", &json!({})).answer(&url).await?;
    assert_eq!(code_of(&told), (400, -32022), "{}", told.1);
    let discovery = request(5, "server/discover", json!({}))
        .answer(&url)
        .await?;
    assert_eq!(code_of(&discovery), (200, -32601), "{}", discovery.1);
    Ok(())
}

#[tokio::test]
async fn a_code_server_serves_both_eras() -> anyhow::Result<()> {
    let volume = CodeVolume::new()?;
    let gateway = Gateway::start("code", volume.settings("embedded")).await?;
    let url = gateway.mcp_url(SERVER);
    let as_ada = |asked: Sessionless| asked.header(USER, "ada@example.org");
    let discovery = as_ada(request(1, "server/discover", json!({})));
    let (status, answer) = discovery.answer(&url).await?;
    assert_eq!(status, 200, "{answer}");
    let found = &answer["result"];
    assert_eq!(found["supportedVersions"], json!([REVISION]), "{answer}");
    assert!(found["capabilities"]["tools"].is_object(), "{answer}");
    let (_, answer) = as_ada(request(2, "tools/list", json!({})))
        .answer(&url)
        .await?;
    let tools = answer["result"]["tools"].as_array();
    assert!(tools.is_some_and(|tools| !tools.is_empty()), "{answer}");
    assert_eq!(answer["result"]["cacheScope"], "private", "{answer}");
    let run = as_ada(call(3, "shell_exec", &json!({"code": "print(6 * 7)"})));
    let mut reply = run.send(&url).await?;
    let answer = reply.next_message().await?.unwrap_or_default();
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    assert!(answer["result"].to_string().contains("42"), "{answer}");
    for method in ["ping", "subscriptions/listen"] {
        let (status, answer) = as_ada(request(4, method, json!({}))).answer(&url).await?;
        assert_eq!(
            (status, &answer["error"]["code"]),
            (404, &json!(-32601)),
            "{method}"
        );
    }
    Ok(())
}
