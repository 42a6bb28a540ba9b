//! Where an owner is reached is what it signed: whoever can write to Redis cannot have its requests sent elsewhere.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::time::Duration;

use anyhow::Context;
use mooring_tests::client::HttpClient;
use mooring_tests::wait;
use serde_json::Value;

use crate::recovery::attempt;

use super::rig::{GONE_WITHIN, OwnedFleet, goes_on};

/// Forgets what the worker announced, and announces another address for it before it can do so again.
const ANNOUNCE_FIRST: &str = "redis.call('WORKER.GONE', ARGV[1])
    return redis.call('WORKER.BEAT', ARGV[1], ARGV[2], 'TTL', 600000)";

/// A gateway looks for 15 s whether the owner can be asked after all.
const REFUSED_WITHIN: Duration = Duration::from_secs(60);

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
async fn an_address_that_its_owner_did_not_sign_receives_nothing() -> anyhow::Result<()> {
    let fleet = OwnedFleet::start(2).await?;
    let mut session = fleet.open_at(0).await?;
    goes_on(&mut session, 1, 2).await?;
    let (owner, announced) = announced_by(&fleet, 0)?;
    let attacker = TcpListener::bind("127.0.0.1:0")?;
    attacker.set_nonblocking(true)?;
    let forged = attacker.local_addr()?.to_string();
    let script = ["EVAL", ANNOUNCE_FIRST, "0", &owner, &forged];
    fleet.redis.cli(&script)?;
    let patient = HttpClient::new(REFUSED_WITHIN);
    let mut through_other = session.fork(&patient, &[fleet.endpoint(1)]);
    let refused = attempt(&mut through_other, "increment").await?;
    refused.assert_try_again();
    let connected = attacker.accept().err().map(|error| error.kind());
    assert_eq!(connected, Some(ErrorKind::WouldBlock), "somebody connected");
    let unverified = [r#"outcome="unverified""#];
    let told = fleet.gateways[1]
        .metric("mooring_forward_duration_seconds_count", &unverified)
        .await?;
    assert!(told >= 1.0, "{told}");

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
