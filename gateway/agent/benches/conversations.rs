//! What a conversation of an agent costs the embedded store, by how many there are already, a thousand of each principal at
//! most: to begin one at the principal's cap, and to keep the id of a run. Each is set against the same with one conversation in the file.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a benchmark prints, and fails by panicking"
)]

use std::time::{Duration, Instant};

use mooring_agent::conversations::Conversations;
use mooring_agent::parent::ParentSession;
use mooring_session::names::{Principal, ServerName, WorkerId};
use mooring_store::{self as store, Store, StoreOptions, StorePlace};

/// How many there are already.
const SIZES: [usize; 3] = [1, 1_000, 100_000];
/// Most conversations of one principal: the standard setting.
const OF_ONE_MAX: usize = 1_000;
/// Operations of each kind that are timed.
const OPERATIONS: usize = 500;
const TTL: Duration = Duration::from_secs(86_400);

fn main() {
    // `cargo test --benches` runs this file too; without `--bench` it measures nothing.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    println!(
        "| conversations | begin p50 us | keep an id p50 us | begin against 1 | keep against 1 |"
    );
    println!("|---|---|---|---|---|");
    let mut first = None;
    for size in SIZES {
        let (begin, keep) = runtime.block_on(measure(size));
        let (begin_of_one, keep_of_one) = *first.get_or_insert((begin, keep));
        println!(
            "| {size} | {:.0} | {:.0} | {:.2} | {:.2} |",
            begin * 1e6,
            keep * 1e6,
            begin / begin_of_one,
            keep / keep_of_one,
        );
    }
}

/// The medians of both, with so many conversations in the file.
async fn measure(size: usize) -> (f64, f64) {
    let directory = tempfile::tempdir().expect("a directory");
    let options = StoreOptions {
        place: StorePlace::Embedded {
            path: directory.path().join("sessions.db"),
        },
        key_prefix: "mcpgw:".to_owned(),
        command_timeout: Duration::from_secs(5),
        session_ttl: TTL,
        history_entries_max: 0,
    };
    let store = store::open_with(&options).await.expect("a store");
    let conversations = of(&store, u64::try_from(size.min(OF_ONE_MAX)).unwrap());
    for number in 0..size {
        let principal = principal(number / OF_ONE_MAX);
        begin(&conversations, &principal, &format!("old-{number}")).await;
    }
    let principal = principal(0);
    let (mut begins, mut keeps) = (Vec::new(), Vec::new());
    for number in 0..OPERATIONS {
        // The principal is at its cap, so each of these ends the one that was used longest ago.
        let started = Instant::now();
        let parent = begin(&conversations, &principal, &format!("new-{number}")).await;
        begins.push(started.elapsed().as_secs_f64());
        let session = conversations.session(&principal, parent.as_str()).unwrap();
        let started = Instant::now();
        let known = conversations.known(&session).await.unwrap();
        let id = format!("id-{number}");
        let kept = conversations.keep(&session, &parent, &known, &id).await;
        keeps.push(started.elapsed().as_secs_f64());
        kept.expect("it is kept");
    }
    (median(begins), median(keeps))
}

fn principal(number: usize) -> Principal {
    Principal::parse(format!("bench-{number}@example.org").as_bytes()).unwrap()
}

fn of(store: &Store, sessions_max: u64) -> Conversations {
    Conversations::new(
        store.clone(),
        WorkerId::parse(b"bench:0").unwrap(),
        ServerName::parse(b"assistant").unwrap(),
        TTL,
        sessions_max,
    )
}

async fn begin(conversations: &Conversations, principal: &Principal, name: &str) -> ParentSession {
    let parent = ParentSession::parse(name).unwrap();
    let session = conversations.session(principal, parent.as_str()).unwrap();
    let begun = conversations.begin(&session, &parent).await;
    begun.expect("it begins");
    parent
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().expect("a value")
}
