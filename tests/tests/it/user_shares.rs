//! What one user may take from what all share: memory and calls. Whatever a user does, another one is served.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::ensure;
use bytes::Bytes;
use mooring_tests::client::{HttpClient, Reply};
use mooring_tests::fixture::{Fixture, stdio_command};
use mooring_tests::gate::Gate;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::legacy::LegacySession;
use mooring_tests::session::{McpSession, Opening};
use mooring_tests::wait;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::rig::{RAW_WITHIN, connect_from, increment, kept, post_text, read_until};
use crate::user_floods::noisy;

pub(crate) const USER: &str = "x-mooring-user";
/// Who floods, and who must not notice.
pub(crate) const ADA: &str = "ada";
pub(crate) const BOB: &str = "bob";
/// The code of an error for too many requests.
const TOO_MANY: i64 = -32007;
const OVERLOADED: i64 = -32015;

/// A session of this user at the server.
pub(crate) async fn open_as(
    client: &HttpClient,
    gateway: &Gateway,
    user: &str,
    server: &str,
) -> anyhow::Result<McpSession> {
    let opening = Opening::default().header(USER, user)?;
    McpSession::open_with(client, &[gateway.mcp_url(server)], opening).await
}

/// A body of this length without its last byte, from this user.
async fn unfinished_body(
    gateway: &Gateway,
    user: &str,
    length: usize,
) -> anyhow::Result<TcpStream> {
    let head = format!(
        "POST /servers/tools/mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\n{USER}: {user}\r\ncontent-length: {length}\r\n\r\n"
    );
    let mut stream = connect_from("127.0.0.1", gateway).await?;
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&vec![b' '; length - 1]).await?;
    Ok(stream)
}

/// A call with arguments of about this length.
fn long_call(length: usize) -> String {
    let padding = "x".repeat(length);
    format!(
        r#"{{"jsonrpc":"2.0","id":"long","method":"tools/call","params":{{"name":"increment","arguments":{{"padding":"{padding}"}}}}}}"#
    )
}

/// Makes a call and reads its reply to the end.
async fn call_to_its_end(mut session: McpSession, call: Value) -> anyhow::Result<()> {
    let mut reply = session.post(&call).await?;
    if reply.is_event_stream() {
        while reply.next_event().await?.is_some() {}
        return Ok(());
    }
    ensure!(reply.status == 200, "{}", reply.status);
    Ok(())
}

async fn status_and_code(reply: Reply) -> anyhow::Result<(u16, Option<i64>, String)> {
    let status = reply.status.as_u16();
    let body = match reply.is_event_stream() {
        true => Value::Null,
        false => reply.json().await?,
    };
    let message = body["error"]["message"].as_str().unwrap_or_default();
    Ok((status, body["error"]["code"].as_i64(), message.to_owned()))
}

/// How many threads of the process serve long messages.
fn threads_beside(id: u32) -> anyhow::Result<usize> {
    let mut count = 0;
    for thread in std::fs::read_dir(format!("/proc/{id}/task"))? {
        // One that has ended meanwhile has no name.
        let name = std::fs::read_to_string(thread?.path().join("comm"));
        count += usize::from(name.is_ok_and(|name| name.trim_end() == "long-messages"));
    }
    Ok(count)
}

#[tokio::test]
async fn a_long_message_is_served_beside_the_thread_of_its_connection() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let settings = kept(&[fixture.url()]).users_by_header();
    let mut gateway = Gateway::start("long-messages", settings).await?;
    let id = gateway.process().id();
    let client = HttpClient::default();
    let mut ada = open_as(&client, &gateway, ADA, "tools").await?;
    assert_eq!(ada.increment().await?, 1);
    assert_eq!(threads_beside(id)?, 0, "short messages need none");
    let reply = post_text(&client, &mut ada, long_call(1024 * 1024)).await?;
    ensure!(reply.status == 200, "{}", reply.status);
    reply.text().await?;
    assert_eq!(threads_beside(id)?, 1);
    assert_eq!(ada.increment().await?, 3);
    Ok(())
}

#[tokio::test]
async fn a_members_long_list_is_read_beside_the_thread_of_the_request() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let (_noisy, long) = noisy().await?;
    let server = |id, url| format!("[[servers]]\nid = \"{id}\"\ninstances = [{url:?}]\n");
    let group = |id, members| {
        format!("[[servers]]\nid = \"{id}\"\nkind = \"group\"\nmembers = [{members}]\n")
    };
    let toml = server("short", fixture.url())
        + &server("long", long)
        + &group("few", "\"short\"")
        + &group("many", "\"short\", \"long\"");
    let mut gateway = Gateway::start("long-lists", Settings::toml(toml).users_by_header()).await?;
    let id = gateway.process().id();
    let client = HttpClient::default();
    for (group, least, threads) in [("few", 1, 0), ("many", 10_000, 1)] {
        let mut ada = open_as(&client, &gateway, ADA, group).await?;
        let list = ada.request("tools/list", json!({})).await?.response;
        let tools = list["result"]["tools"].as_array().map_or(0, Vec::len);
        ensure!(tools >= least, "{group}: {tools} tools");
        assert_eq!(threads_beside(id)?, threads, "{group}");
    }
    Ok(())
}

#[tokio::test]
async fn one_users_unfinished_bodies_leave_others_their_share() -> anyhow::Result<()> {
    const BODY_BYTES_MAX: usize = 256 * 1024;
    let fixture = Fixture::start("one").await?;
    let settings = kept(&[fixture.url()])
        .users_by_header()
        .env("MOORING_LISTEN_BODY_BYTES_MAX", &BODY_BYTES_MAX.to_string())
        .env(
            "MOORING_LISTEN_BODY_BUDGET_BYTES",
            &(16 * BODY_BYTES_MAX).to_string(),
        );
    let gateway = Gateway::start("bodies", settings).await?;
    let client = HttpClient::default();
    let mut ada = open_as(&client, &gateway, ADA, "tools").await?;
    // Connections of hers are closed with refusals.
    let of_bob = HttpClient::default();
    let mut bob = open_as(&of_bob, &gateway, BOB, "tools").await?;
    // More than the whole budget: a quarter is hers, of which an eighth is for short bodies.
    let mut open = Vec::new();
    for _ in 0..20 {
        open.push(unfinished_body(&gateway, ADA, BODY_BYTES_MAX).await?);
    }
    let refused = wait::until("a body to be refused", RAW_WITHIN, async || {
        let is_answered = |stream: &TcpStream| stream.try_read(&mut [0; 1]).is_ok();
        Ok(open.iter().position(is_answered))
    });
    let mut refused = open.remove(refused.await?);
    let said = read_until(&mut refused, "listen.body_budget_bytes", RAW_WITHIN).await?;
    assert!(said.contains(" 503 Service Unavailable\r\n"), "{said}");
    assert!(said.contains(&OVERLOADED.to_string()), "{said}");
    let short = post_text(&client, &mut ada, increment("1")).await?;
    assert_eq!(short.status, 200, "her short calls have a reserve");
    for _ in 0..3 {
        let long = post_text(&of_bob, &mut bob, long_call(200_000)).await?;
        assert_eq!(long.status, 200, "another's long calls have a share");
    }
    drop(open);
    wait::until_true("her share to be given back", RAW_WITHIN, async || {
        // A refusal of a body that is not read closes the connection, which can hide it from the client.
        let long = post_text(&client, &mut ada, long_call(200_000)).await;
        Ok(long.is_ok_and(|long| long.status == 200))
    })
    .await
}

#[tokio::test]
async fn calls_of_a_slow_tool_with_long_arguments_leave_others_their_share() -> anyhow::Result<()> {
    const BODY_BYTES_MAX: usize = 256 * 1024;
    let fixture = Fixture::start("one").await?;
    let toml = format!(
        "[[servers]]\nid = \"tools\"\naffinity = \"on\"\nconcurrency = \"parallel\"\ninstances = [{:?}]\n",
        fixture.url()
    );
    let settings = Settings::toml(toml)
        .users_by_header()
        .env("MOORING_LISTEN_BODY_BYTES_MAX", &BODY_BYTES_MAX.to_string())
        .env(
            "MOORING_LISTEN_BODY_BUDGET_BYTES",
            &(16 * BODY_BYTES_MAX).to_string(),
        );
    let gateway = Gateway::start("slow", settings).await?;
    let client = HttpClient::default();
    let mut ada = open_as(&client, &gateway, ADA, "tools").await?;
    // Connections of hers are closed with refusals.
    let of_bob = HttpClient::default();
    let mut bob = open_as(&of_bob, &gateway, BOB, "tools").await?;
    let gate = Gate::new()?;
    let mut refused = 0;
    let mut open = Vec::new();
    for _ in 0..40 {
        let arguments = json!({"until": gate.path(), "padding": "x".repeat(200_000)});
        let call = json!({"name": "slow_increment", "arguments": arguments});
        let call = ada.request_body("tools/call", call);
        let fork = ada.fork(&client, &[gateway.mcp_url("tools")]);
        open.push(tokio::spawn(call_to_its_end(fork, call)));
    }
    wait::until_true("her calls to be refused", RAW_WITHIN, async || {
        refused = open.iter().filter(|call| call.is_finished()).count();
        Ok(refused > 0)
    })
    .await?;
    let long = post_text(&of_bob, &mut bob, long_call(200_000)).await?;
    assert_eq!(long.status, 200, "another's long calls have a share");
    gate.open()?;
    let mut served = 0;
    for call in open {
        served += usize::from(call.await?.is_ok());
    }
    assert!(served > 0, "those within her share");
    Ok(())
}

/// Two calls of a user are in progress, of whichever kind: the third is refused, and another user's is not.
#[tokio::test]
async fn the_calls_of_a_user_at_once_are_limited() -> anyhow::Result<()> {
    let http = Fixture::start("one").await?;
    let toml = format!(
        "[listen]\ncalls_per_user_at_once = 2\n\
         [[servers]]\nid = \"tools\"\naffinity = \"on\"\nconcurrency = \"parallel\"\ninstances = [{:?}]\n\
         [[servers]]\nid = \"piped\"\nkind = \"stdio\"\nconcurrency = \"parallel\"\ncommand = {:?}\n\
         [[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"tools\", \"piped\"]\n",
        http.url(),
        stdio_command("two", None, &[])?,
    );
    let gateway = Gateway::start("calls", Settings::toml(toml).users_by_header()).await?;
    let client = HttpClient::default();
    let opening = Opening {
        protocol_version: "2024-11-05".to_owned(),
        ..Opening::default().header(USER, ADA)?
    };
    for server in ["tools", "piped", "all"] {
        let mut ada = open_as(&client, &gateway, ADA, server).await?;
        let url = gateway.url(&format!("/servers/{server}/sse"));
        let mut older = LegacySession::open_with(&client, &url, &opening).await?;
        let mut bob = open_as(&client, &gateway, BOB, server).await?;
        let gate = Gate::new()?;
        let tool = if server == "all" {
            "tools__slow_increment"
        } else {
            "slow_increment"
        };
        let slow = json!({"name": tool, "arguments": {"until": gate.path()}});
        let call = ada.request_body("tools/call", slow.clone());
        let fork = ada.fork(&client, &[gateway.mcp_url(server)]);
        let first = tokio::spawn(call_to_its_end(fork, call));
        let second = older.request_body("tools/call", slow);
        older.send(&second).await?;
        let ping = ada.request_body("ping", json!({}));
        wait::until_true("the third to be refused", RAW_WITHIN, async || {
            Ok(ada.post(&ping).await?.status == 429)
        })
        .await?;
        let refused = ada.post(&ping).await?;
        assert_eq!(refused.header("retry-after"), Some("1"));
        let (_, code, message) = status_and_code(refused).await?;
        assert_eq!(code, Some(TOO_MANY), "{server}");
        assert!(
            message.contains("listen.calls_per_user_at_once"),
            "{message}"
        );
        let third = Bytes::from(older.request_body("ping", json!({})).to_string());
        assert_eq!(
            older.connection().post(third).await?.status,
            429,
            "{server}"
        );
        let ping_of_bob = bob.request_body("ping", json!({}));
        assert_eq!(bob.post(&ping_of_bob).await?.status, 200, "{server}");
        gate.open()?;
        first.await??;
        older.response(&second["id"]).await?;
        wait::until_true("her calls to have ended", RAW_WITHIN, async || {
            Ok(ada.post(&ping).await?.status == 200)
        })
        .await?;
    }
    Ok(())
}

/// Requests that are refused, one after another, of this user.
fn refused_requests(user: &str, count: usize) -> Vec<u8> {
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {}}});
    let call = call.to_string();
    let head = format!(
        "POST /servers/tools/mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\n{USER}: {user}\r\ncontent-length: {}\r\n\r\n",
        call.len()
    );
    (head + &call).repeat(count).into_bytes()
}

fn replies_in(bytes: &[u8]) -> usize {
    String::from_utf8_lossy(bytes).matches("HTTP/1.1 ").count()
}

/// Both send without waiting for replies, one of them over sixty-four connections: on a thread they share, the other one's
/// requests take turns with hers, and not with each of her connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_users_connections_take_turns_with_anothers_as_one() -> anyhow::Result<()> {
    const CONNECTIONS: usize = 64;
    const REQUESTS: usize = 320;
    let fixture = Fixture::start("one").await?;
    let toml = format!(
        "[worker]\nthreads = 1\n\
         [[servers]]\nid = \"tools\"\ninstances = [{:?}]\nallow = [{{ tools = [\"increment\"] }}]\n",
        fixture.url()
    );
    let gateway = Gateway::start("turns", Settings::toml(toml).users_by_header()).await?;
    let served = Arc::new(AtomicUsize::new(0));
    let mut flood = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (mut reading, mut writing) = connect_from("127.0.0.1", &gateway).await?.into_split();
        let served = Arc::clone(&served);
        flood.spawn(async move {
            let requests = refused_requests(ADA, 16);
            while writing.write_all(&requests).await.is_ok() {}
        });
        flood.spawn(async move {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(read @ 1..) = reading.read(&mut buffer).await {
                let replies = replies_in(buffer.get(..read).unwrap_or_default());
                served.fetch_add(replies, Ordering::Relaxed);
            }
        });
    }
    wait::until_true("the flood to be served", RAW_WITHIN, async || {
        Ok(served.load(Ordering::Relaxed) > 10 * CONNECTIONS)
    })
    .await?;
    let mut bob = connect_from("127.0.0.1", &gateway).await?;
    let before = served.load(Ordering::Relaxed);
    bob.write_all(&refused_requests(BOB, REQUESTS)).await?;
    let mut all = Vec::new();
    while replies_in(&all) < REQUESTS {
        ensure!(bob.read_buf(&mut all).await? > 0, "the connection closed");
    }
    let of_ada = served.load(Ordering::Relaxed) - before;
    assert!(of_ada > 0, "the flood goes on");
    // Her connections served alike would have got sixty-four times as many.
    ensure!(
        of_ada < 16 * REQUESTS,
        "{of_ada} requests of hers were served before {REQUESTS} of another user"
    );
    Ok(())
}
