//! Refusals that come before the request's body was read: the client gets them, and knows what becomes of the connection.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use mooring_tests::certificates::Authority;
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::Gateway;
use tokio::io::AsyncWriteExt as _;

use crate::rig::{connect_from, kept, read_until};

/// How long an answer takes on a busy machine.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);
/// Refused requests of a client that loses some of the refusals otherwise.
const REFUSALS: usize = 25;

fn head(length: usize) -> String {
    format!(
        "POST /servers/nowhere/mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\ncontent-length: {length}\r\n\r\n"
    )
}

#[tokio::test]
async fn a_connection_outlives_a_refusal_whose_small_body_comes_late() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let gateway = Gateway::start("unread", kept(&[fixture.url()])).await?;
    let mut stream = connect_from("127.0.0.1", &gateway).await?;
    for _ in 0..3 {
        stream.write_all(head(4).as_bytes()).await?;
        // The head alone is enough for the refusal.
        tokio::task::yield_now().await;
        stream.write_all(b"null").await?;
        let reply = read_until(&mut stream, "no server has this name", ANSWERED_WITHIN).await?;
        ensure!(reply.starts_with("HTTP/1.1 404 "), "{reply}");
        ensure!(!reply.contains("connection: close"), "{reply}");
    }
    Ok(())
}

#[tokio::test]
async fn a_refusal_that_leaves_a_body_unread_says_that_the_connection_closes() -> anyhow::Result<()>
{
    let fixture = Fixture::start("one").await?;
    let gateway = Gateway::start("unread", kept(&[fixture.url()])).await?;
    let waiting = head(4).replace("\r\n\r\n", "\r\nexpect: 100-continue\r\n\r\n");
    for request in [head(1 << 20), head(4), waiting] {
        let mut stream = connect_from("127.0.0.1", &gateway).await?;
        stream.write_all(request.as_bytes()).await?;
        let reply = read_until(&mut stream, "no server has this name", ANSWERED_WITHIN).await?;
        ensure!(reply.starts_with("HTTP/1.1 404 "), "{reply}");
        ensure!(reply.contains("connection: close"), "{reply}");
    }
    Ok(())
}

#[tokio::test]
async fn curl_gets_every_refusal_over_http2() -> anyhow::Result<()> {
    let (authority, fixture) = (Authority::new()?, Fixture::start("one").await?);
    let certificate = authority.certify("own", "DNS:localhost,IP:127.0.0.1")?;
    let client = HttpClient::over_tls(&authority.root(), None)?;
    let settings = kept(&[fixture.url()]).tls(&[&certificate], &client);
    let gateway = Gateway::start("unread", settings).await?;
    for _ in 0..REFUSALS {
        let output = Command::new("curl")
            .args([
                "--silent",
                "--show-error",
                "--include",
                "--http2",
                "--cacert",
            ])
            .arg(authority.root())
            .args(["--header", "content-type: application/json"])
            .args(["--header", "accept: application/json, text/event-stream"])
            .args([
                "--data",
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#,
            ])
            .arg(gateway.mcp_url("nowhere"))
            .output()
            .context("run curl")?;
        let (said, errors) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        ensure!(
            output.status.success() && said.starts_with("HTTP/2 404"),
            "{said}{errors}"
        );
        ensure!(said.contains("no server has this name"), "{said}{errors}");
    }
    Ok(())
}
