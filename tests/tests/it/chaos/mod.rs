//! Chaos: sessions of every kind keep calling while gateways, upstream instances and Redis are killed, frozen and
//! restarted at random. A checker reads every reply.
//!
//! Invariants that are checked: a counter only grows, unless a reply (an error reply counts) said that state was lost; no
//! session sees another one's state; no session is unknown; no call runs twice; nothing is left at the end: no key, no
//! child process, no directory. The seed of a run is printed; `MOORING_TEST_SEED` sets it.

mod arrangement;
mod client;
mod faults;
mod history;
mod recovery;

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, ensure};
use futures_util::future::join_all;

use self::arrangement::Arrangement;
use self::client::{ChaosClient, ClientKind};
use self::recovery::recovery_table;
use crate::owned::rig::tell;

/// How large a run is.
#[derive(Clone, Copy, Debug)]
struct Scale {
    http_clients: usize,
    stdio_clients: usize,
    code_clients: usize,
    /// How often every kind of fault is injected.
    rounds: usize,
}

/// Part of every test run.
const SMALL: Scale = Scale {
    http_clients: 8,
    stdio_clients: 3,
    code_clients: 2,
    rounds: 1,
};

/// `make test-soak`.
const SOAK: Scale = Scale {
    http_clients: 64,
    stdio_clients: 8,
    code_clients: 4,
    rounds: 12,
};

#[tokio::test]
async fn random_faults_lose_nothing_without_saying_so() -> anyhow::Result<()> {
    check(SMALL).await
}

#[tokio::test]
#[ignore = "soak"]
async fn soak_random_faults_lose_nothing_without_saying_so() -> anyhow::Result<()> {
    check(SOAK).await
}

async fn check(scale: Scale) -> anyhow::Result<()> {
    let seed = match std::env::var("MOORING_TEST_SEED") {
        Ok(text) => text.parse().context("MOORING_TEST_SEED is a number")?,
        Err(_) => fastrand::u64(..),
    };
    tell(&format!("chaos: MOORING_TEST_SEED={seed}"));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut arrangement = Arrangement::start().await?;
    let mut clients = open_clients(&arrangement, scale, &mut random).await?;

    let is_over = AtomicBool::new(false);
    let running = join_all(clients.iter_mut().map(|client| client.run(&is_over)));
    let injecting = async {
        let faults = faults::inject(&mut arrangement, &mut random, scale.rounds).await;
        is_over.store(true, Ordering::Relaxed);
        faults
    };
    let (_, faults) = tokio::join!(running, injecting);
    let faults = faults?;

    for client in &mut clients {
        client.call_until_good().await?;
    }
    let good: usize = clients.iter().map(|client| client.good_calls()).sum();
    let unread: u64 = clients.iter().map(ChaosClient::unread_losses).sum();
    tell(&format!(
        "chaos: {} faults, {good} good replies, {unread} losses whose reply was itself lost",
        faults.len()
    ));
    tell(&recovery_table(&faults, &clients));
    ensure!(good > clients.len() * 10, "only {good} good replies");

    let violations: Vec<&String> = clients.iter().flat_map(ChaosClient::violations).collect();
    ensure!(
        violations.is_empty(),
        "seed {seed}: {} violations, the first of them: {:#?}",
        violations.len(),
        violations.iter().take(10).collect::<Vec<_>>()
    );
    arrangement.check_tokens(&clients)?;
    for client in clients {
        client.end().await?;
    }
    arrangement
        .check_nothing_left(scale.code_clients)
        .await
        .with_context(|| format!("seed {seed}"))
}

async fn open_clients(
    arrangement: &Arrangement,
    scale: Scale,
    random: &mut fastrand::Rng,
) -> anyhow::Result<Vec<ChaosClient>> {
    let kinds = [
        (ClientKind::Http, scale.http_clients),
        (ClientKind::Stdio, scale.stdio_clients),
        (ClientKind::Code, scale.code_clients),
    ];
    let mut clients = Vec::new();
    for (kind, count) in kinds {
        for number in 0..count {
            let endpoints = arrangement.endpoints(kind, number);
            let client = ChaosClient::open(kind, number, &endpoints, random.u64(..)).await;
            clients.push(client.with_context(|| format!("open {kind:?} client {number}"))?);
        }
    }
    Ok(clients)
}
