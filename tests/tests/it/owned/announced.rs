//! An announced address alone proves nothing: whoever can write to Redis can have its owner's peers connect elsewhere, and
//! receives nothing of what they would send.

use anyhow::Context;
use mooring_tests::client::HttpClient;
use mooring_tests::wait;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::recovery::attempt;

use super::rig::{GONE_WITHIN, OwnedFleet, goes_on};

/// Forgets what the worker announced, and announces another address for it before it can do so again.
const ANNOUNCE_FIRST: &str = "redis.call('WORKER.GONE', ARGV[1])
    return redis.call('WORKER.BEAT', ARGV[1], ARGV[2], 'TTL', 600000)";

/// What the gateway announced: its worker id and its address.
fn announced_by(fleet: &OwnedFleet, gateway: usize) -> anyhow::Result<(String, String)> {
    let listed = fleet.redis.cli(&["-3", "--json", "WORKER.LIST"])?;
    let workers: Vec<Value> = serde_json::from_str(&listed)?;
    let name = format!("gateway-{}:", gateway + 1);
    let mut texts = workers.iter().filter_map(|worker| {
        let (id, address) = (worker["worker"].as_str()?, worker["address"].as_str()?);
        Some((id.to_owned(), address.to_owned()))
    });
    texts
        .find(|(id, _)| id.starts_with(&name))
        .with_context(|| format!("{name} in {listed}"))
}

#[tokio::test]
async fn who_has_an_address_announced_for_an_owner_receives_nothing() -> anyhow::Result<()> {
    let fleet = OwnedFleet::start(2).await?;
    let mut session = fleet.open_at(0).await?;
    goes_on(&mut session, 1, 2).await?;
    let (owner, announced) = announced_by(&fleet, 0)?;
    let attacker = TcpListener::bind("127.0.0.1:0").await?;
    let forged = attacker.local_addr()?.to_string();
    let receiving = tokio::spawn(async move {
        let (mut stream, _) = attacker.accept().await?;
        let mut bytes = vec![0; 64 * 1024];
        let count = stream.read(&mut bytes).await?;
        bytes.truncate(count);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .await?;
        // Whether it closes in order or not, nothing more came.
        let _ = stream.read_to_end(&mut bytes).await;
        anyhow::Ok((attacker, bytes))
    });
    let script = ["EVAL", ANNOUNCE_FIRST, "0", &owner, &forged];
    fleet.redis.cli(&script)?;
    let client = HttpClient::default();
    let mut through_other = session.fork(&client, &[fleet.endpoint(1)]);
    let refused = attempt(&mut through_other, "increment").await?;
    refused.assert_try_again();
    let (attacker, received) = receiving.await??;
    assert_eq!(received.first(), Some(&0x16), "a TLS handshake was begun");
    let id = session.id().context("a session id")?;
    for secret in ["increment", "mcpgw", "HTTP", id] {
        let is_shown = received
            .windows(secret.len())
            .any(|part| part == secret.as_bytes());
        assert!(!is_shown, "{secret}");
    }
    let unverified = [r#"outcome="unverified""#];
    let attempts = fleet.gateways[1]
        .metric("mooring_forward_duration_seconds_count", &unverified)
        .await?;
    assert_eq!(attempts, 1.0, "it is not tried again");
    drop(attacker);

    // Once the forged beat is over, the owner announces itself again.
    fleet.redis.cli(&["WORKER.GONE", &owner])?;
    wait::until_true("the owner's own beat", GONE_WITHIN, async || {
        Ok(announced_by(&fleet, 0)?.1 == announced)
    })
    .await?;
    wait::until_true("the session to be served", GONE_WITHIN, async || {
        Ok(attempt(&mut through_other, "increment").await?.status == 200)
    })
    .await
}
