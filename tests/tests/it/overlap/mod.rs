//! No two calls of one session run at its server at once, whatever fails: gateways are killed, frozen and cut off from
//! Redis at random, also at the moment of a call; Redis is frozen, restarted, fails over and closes connections; wall clocks
//! are stepped. The upstream server itself keeps what ran when.
//!
//! Invariants that are checked: no overlap; every call ends, with its result or an error that says what is known and is
//! true; a session's count never goes back without a told loss. Calls are short (50 ms at most): a gateway that is frozen
//! for longer than a lease cannot end a call that its server is still at. The seed of a run is printed;
//! `MOORING_TEST_SEED` sets it.

mod aim;
mod arrangement;
mod faults;
mod ledger;
mod user;
mod witness;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures_util::future::{join_all, try_join_all};
use mooring_tests::client::HttpClient;
use mooring_tests::gateway::has_setting;
use mooring_tests::session::McpSession;
use mooring_tests::wait;

use self::aim::Aim;
use self::arrangement::{Arrangement, GATEWAYS};
use self::faults::Faults;
use self::user::{Diligence, Outcome, Role, SharedSession, User};
use crate::owned::rig::tell;

/// How large a run is.
#[derive(Clone, Copy, Debug)]
struct Scale {
    sessions: usize,
    faults: usize,
    /// How long one lasts at most.
    lasts_max: Duration,
}

/// Part of every test run.
const SMALL: Scale = Scale {
    sessions: 6,
    faults: 8,
    lasts_max: Duration::from_millis(2_200),
};

/// `make test-soak`.
const SOAK: Scale = Scale {
    sessions: 12,
    faults: 1_000,
    lasts_max: Duration::from_secs(5),
};

/// A gateway with this setting can have turns delegated to it.
const DELEGATION: &str = "affinity.delegation_ms";

const OPENED_WITHIN: Duration = Duration::from_secs(60);
/// Results of a session in a row before the first fault, of whose calls the commands are counted.
const QUIET_CALLS: usize = 30;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_fault_lets_two_calls_of_a_session_run_at_once() -> anyhow::Result<()> {
    check(SMALL).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak"]
async fn soak_no_fault_lets_two_calls_of_a_session_run_at_once() -> anyhow::Result<()> {
    check(SOAK).await
}

async fn check(scale: Scale) -> anyhow::Result<()> {
    let seed = match std::env::var("MOORING_TEST_SEED") {
        Ok(text) => text.parse().context("MOORING_TEST_SEED is a number")?,
        Err(_) => fastrand::u64(..),
    };
    tell(&format!("overlap: MOORING_TEST_SEED={seed}"));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut arrangement = Arrangement::start().await?;
    let began = Instant::now() - arrangement.witness.now();
    let aim = Arc::new(Aim::new(GATEWAYS));
    let mut users = open_users(&arrangement, scale, &aim, &mut random).await?;
    measure_commands(&arrangement, &mut users).await?;

    let faults = Faults::new(scale.faults, scale.lasts_max, &aim, began);
    let is_over = AtomicBool::new(false);
    let running = join_all(users.iter_mut().map(|user| user.run(&is_over)));
    let injecting = async {
        let injected = faults.inject(&mut arrangement, &mut random).await;
        is_over.store(true, Ordering::Relaxed);
        injected
    };
    let started = Instant::now();
    let (_, injected) = tokio::join!(running, injecting);
    injected?;
    for user in &mut users {
        user.call_until_good().await?;
    }

    let count = |outcome| {
        let of = |user: &User| {
            user.outcomes()
                .iter()
                .filter(|one| **one == outcome)
                .count()
        };
        users.iter().map(of).sum::<usize>()
    };
    let [ran, has_not_run, may_have_run] =
        [Outcome::Ran, Outcome::HasNotRun, Outcome::MayHaveRun].map(count);
    let (overlaps, unordered) = arrangement.witness.overlaps();
    let (stalls, longest) = arrangement.witness.stalls();
    tell(&format!(
        "overlap: {} faults in {:.0} s, {ran} results, {has_not_run} calls that have not run, {may_have_run} that may have; \
         {} overlaps, {unordered} that the witness cannot order; it slept {stalls} times, {longest:?} at most\n{}",
        scale.faults,
        started.elapsed().as_secs_f64(),
        overlaps.len(),
        faults.summary(),
    ));
    for overlap in overlaps.iter().take(20) {
        tell(&format!(
            "{overlap}\n  {:#?}",
            faults.around(overlap.later.2)
        ));
    }
    let mut violations: Vec<String> = overlaps.iter().map(ToString::to_string).collect();
    violations.extend(
        users
            .iter()
            .flat_map(|user| user.check(&arrangement.witness)),
    );
    ensure!(
        violations.is_empty(),
        "seed {seed}: {} violations, the first of them: {:#?}",
        violations.len(),
        violations.iter().take(10).collect::<Vec<_>>()
    );
    ensure!(ran > users.len() * 10, "only {ran} results");
    Ok(())
}

/// The users of each session: one that calls nearly always, and for all but every third session another one.
async fn open_users(
    arrangement: &Arrangement,
    scale: Scale,
    aim: &Arc<Aim>,
    random: &mut fastrand::Rng,
) -> anyhow::Result<Vec<User>> {
    let (endpoints, client) = (arrangement.endpoints(), HttpClient::default());
    let mut users = Vec::new();
    for number in 0..scale.sessions {
        // On a busy machine Redis may take too long.
        let session = wait::until("a session to open", OPENED_WITHIN, async || {
            Ok(McpSession::open(&client, &endpoints).await.ok())
        })
        .await?;
        let shared = Arc::<SharedSession>::default();
        let mut diligences = vec![Diligence::Constant];
        if number % 3 != 2 {
            diligences.push(Diligence::Occasional);
        }
        for diligence in diligences {
            let role = Role {
                number: users.len(),
                diligence,
                session: &session,
                shared: Arc::clone(&shared),
            };
            let seed = random.u64(..);
            users.push(User::new(role, &endpoints, &arrangement.lives, aim, seed));
        }
    }
    Ok(users)
}

/// Says how many turns the calls of sessions that stay at a gateway ask Redis for: fewer than there are calls, where the
/// gateway can have turns delegated to it.
async fn measure_commands(arrangement: &Arrangement, users: &mut [User]) -> anyhow::Result<()> {
    let before = arrangement.stores.turns_entered()?;
    // Each session is used by one user only.
    let constant = users.iter_mut().filter(|user| user.is_constant());
    let calls = constant.map(|user| user.call_undisturbed(QUIET_CALLS));
    let calls: u64 = try_join_all(calls).await?.into_iter().sum();
    let entered = arrangement.stores.turns_entered()? - before;
    tell(&format!(
        "overlap: {entered} turns asked for in {calls} calls before the first fault"
    ));
    ensure!(
        entered < calls || !has_setting(DELEGATION)?,
        "no turn was delegated: {entered} were asked for in {calls} calls"
    );
    Ok(())
}
