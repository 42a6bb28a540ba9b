//! The same operations give the same answers from every store.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests fail by panicking"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mooring_session::limits::TURN_PICKUP;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::operations::{Operation, operations};
use super::side::Side;
use crate::Store;
use crate::clock::{Clock, ManualClock};
use crate::embedded::EmbeddedStore;
use crate::test_support::requests::PREFIX;
use crate::test_support::server::{Module, RedisServer};
use crate::test_support::{
    embedded, memory, redis_store as redis, scripted_store, turns_are_given,
};

/// The shortest time that the clock of a store may cut short.
const LAPSES_AFTER: Duration = Duration::from_millis(TURN_PICKUP.get());
const STARTED_AT: u64 = 1_700_000_000_000;
/// After how many operations the columns of the file are checked again.
const CHECKED_EVERY: usize = 5;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn check(cases: u32, test: impl Fn(Vec<Operation>) -> Result<(), TestCaseError>) {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&operations(), test);
    assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
}

/// The file, of which another process may see every answer change, answers as the engine without a file does, and its
/// columns as an index of the rules.
#[test]
fn memory_and_the_file_answer_alike_at_every_moment() {
    let runtime = runtime();
    let (asked, carried_out) = (AtomicU64::new(0), AtomicU64::new(0));
    check(128, |case| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sessions.db");
        let time = ManualClock::starting_at(STARTED_AT);
        let clock = Clock::Manual(Arc::clone(&time));
        let stores = (memory(clock.clone()), embedded(&path, clock.clone()));
        let observer = EmbeddedStore::open(&path, clock, PREFIX).unwrap();
        runtime.block_on(async {
            let mut memory = Side::new(&stores.0, 0);
            let mut file = Side::new(&stores.1, 0);
            for (count, op) in case.iter().enumerate() {
                time.pass(op.waits_ms());
                let expected = memory.apply(op).await;
                asked.fetch_add(1, Ordering::Relaxed);
                if expected.starts_with("Ok") {
                    carried_out.fetch_add(1, Ordering::Relaxed);
                }
                let told = file.apply(op).await;
                prop_assert_eq!(told, expected, "{:?}", op);
                if count % CHECKED_EVERY == 0 || count + 1 == case.len() {
                    observer.check_columns(file.workers()).await;
                }
            }
            Ok(())
        })
    });
    // Refusals alone would compare little.
    let (asked, carried_out) = (asked.into_inner(), carried_out.into_inner());
    assert!(carried_out > asked / 3, "{carried_out} of {asked}");
}

#[test]
fn redis_answers_as_memory_does() {
    let server = RedisServer::start(Module::Loaded);
    let runtime = runtime();
    let redis = runtime.block_on(redis(&server));
    answers_as_memory_does(&runtime, &redis);
}

#[test]
fn redis_without_the_module_answers_as_memory_does() {
    let server = RedisServer::start(Module::Absent);
    let runtime = runtime();
    let redis = runtime.block_on(scripted_store(&server));
    answers_as_memory_does(&runtime, &redis);
}

fn answers_as_memory_does(runtime: &tokio::runtime::Runtime, redis: &Store) {
    runtime.block_on(turns_are_given(redis));
    let memory = memory(Clock::system());
    let runs = AtomicU64::new(0);
    check(64, |case| {
        let run = runs.fetch_add(1, Ordering::Relaxed);
        runtime.block_on(async {
            // The clocks are the machines' own here, and nothing lapses within a turn's pick-up.
            let begun = Instant::now();
            let mut memory = Side::new(&memory, run).without_returns();
            let mut redis = Side::new(redis, run).without_returns();
            for op in &case {
                let expected = comparable(&memory.apply(op).await);
                let told = comparable(&redis.apply(op).await);
                // On a machine that stood still meanwhile a turn may have lapsed at one of them.
                prop_assume!(told == expected || begun.elapsed() < LAPSES_AFTER);
                prop_assert_eq!(told, expected, "{:?}", op);
            }
            Ok(())
        })
    });
}

/// What two stores with clocks of their own must agree on. The module's ROUTE leaves out the end of a binding, from
/// `rebinds` on, and `bound_at`: callers that route do not need them.
fn comparable(answer: &str) -> String {
    // The engine knows the order of use to a step only: which session a cap names may differ.
    let answer = answer
        .split(", least_recently_used:")
        .next()
        .unwrap_or_default();
    let mut text = without_moments(answer);
    if let Some((before, held)) = text.split_once("held_for: Millis(") {
        let after = held.trim_start_matches(|digit: char| digit.is_ascii_digit());
        text = format!("{before}held_for: Millis(#{after}");
    }
    if text.starts_with("Ok(RouteReply") || text.starts_with("Ok(EnterReply") {
        text = text.replace("bound_at: Timestamp(0)", "bound_at: Timestamp(#)");
        if let (Some(from), Some(to)) = (text.find("rebinds: "), text.find("worker_lost: ")) {
            text.replace_range(from..to, "");
        }
    }
    text
}

/// Numbers of twelve digits and more are moments, epochs and generations: they differ from store to store.
fn without_moments(text: &str) -> String {
    let mut out = String::new();
    let mut digits = String::new();
    for character in text.chars().chain(std::iter::once('\n')) {
        if character.is_ascii_digit() {
            digits.push(character);
            continue;
        }
        out.push_str(if digits.len() >= 12 { "#" } else { &digits });
        digits.clear();
        out.push(character);
    }
    out
}
