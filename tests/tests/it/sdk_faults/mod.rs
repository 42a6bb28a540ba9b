//! Real SDKs through three gateways while something breaks: every user has a right count, a mark on a result or an error,
//! and nobody hangs. The table in `docs/compatibility.md` says which, and is compared with what was seen.

use std::time::Duration;

use anyhow::ensure;
use futures_util::future::{join_all, try_join_all};

use client::{Client, SDKS};
use outcome::{Cell, Sign, signs_of};
use scene::{Fault, Scene};
use table::Seen;

mod client;
mod outcome;
mod scene;
mod table;

/// Calls of each session before the fault, and after it.
const CALLS_BEFORE: usize = 2;
const CALLS_AFTER: usize = 3;
/// How long a call may take on a busy machine. What users waited is printed.
const COUNTS_WITHIN: Duration = Duration::from_secs(90);

/// Inflicts the fault on a fleet of its own; the silent losses.
#[expect(
    clippy::print_stderr,
    reason = "how long users waited is a figure, and no assertion"
)]
async fn check(
    fault: Fault,
    clients: &mut [Client],
    seen: &mut Seen,
) -> anyhow::Result<Vec<String>> {
    let mut scene = Scene::start(fault).await?;
    let kinds = fault.kinds();
    for client in &mut *clients {
        client.open(kinds, |kind| scene.url(kind)).await?;
    }
    let sessions: Vec<(&Client, &'static str)> = (clients.iter())
        .flat_map(|client| kinds.iter().map(move |kind| (client, *kind)))
        .collect();
    let begun = (sessions.iter())
        .map(|(client, kind)| client.has_counted(kind, 0, CALLS_BEFORE, COUNTS_WITHIN));
    try_join_all(begun).await?;

    let before: Vec<usize> = (sessions.iter())
        .map(|(client, kind)| client.outcomes(kind).len())
        .collect();
    scene.inflict(fault).await?;
    let after = (sessions.iter().zip(before))
        .map(|((client, kind), seen)| client.has_counted(kind, seen, CALLS_AFTER, COUNTS_WITHIN));
    let after = join_all(after).await;
    let mut wrong = Vec::new();
    for ((client, kind), counted) in sessions.into_iter().zip(after) {
        let outcomes = client.outcomes(kind);
        let who = format!("{fault:?}, {} at {kind}", client.title);
        let waits = (outcomes.iter())
            .filter(|outcome| !outcome.is_reopened)
            .map(|outcome| outcome.seconds);
        let errors = outcomes.iter().filter_map(|outcome| outcome.error.as_ref());
        let errors: Vec<&String> = errors.collect();
        match signs_of(&outcomes) {
            Err(silent) => wrong.push(format!("{who}: {silent}")),
            Ok(mut signs) => {
                if counted.is_err() {
                    signs.insert(Sign::Waits);
                }
                let longest = waits.fold(0.0, f64::max);
                eprintln!("{who}: {}, {longest} s {errors:?}", Cell(&signs));
                seen.insert(&client.title, kind, fault, signs);
            }
        }
    }
    Ok(wrong)
}

async fn check_all(faults: &[Fault]) -> anyhow::Result<()> {
    let mut clients = try_join_all(SDKS.map(Client::start)).await?;
    let (mut seen, mut wrong) = (Seen::default(), Vec::new());
    for fault in faults {
        wrong.extend(check(*fault, &mut clients, &mut seen).await?);
    }
    ensure!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), seen.table());
    seen.compare_with_page()
}

/// With threads of its own for what stands between the processes: it must not wait for the test.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_user_of_an_sdk_knows_what_a_killed_gateway_or_instance_has_cost()
-> anyhow::Result<()> {
    check_all(&[Fault::GatewayKilled, Fault::InstanceKilled]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "soak"]
async fn soak_every_user_of_an_sdk_has_a_right_count_a_mark_or_an_error() -> anyhow::Result<()> {
    check_all(&Fault::ALL).await
}
