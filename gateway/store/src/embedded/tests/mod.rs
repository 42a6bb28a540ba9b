//! The file: shared by threads and processes, killed in the middle, of another version.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod clock_steps;
mod columns;
mod damage;
mod fleet;
mod migration;
mod order;
mod processes;
mod unwritable;
mod uses;

use std::path::PathBuf;
use std::sync::Arc;

use mooring_session::refusal::Refusal;
use mooring_session::view::BindingState;

use super::EmbeddedStore;
use super::tables::SCHEMA_VERSION;
use crate::clock::{Clock, ManualClock};
use crate::error::{NotReady, OpenError, StoreError};
use crate::key::InitDigest;
use crate::test_support::requests as make;
use crate::transition::Get;

/// The moment at which a test begins.
const STARTED_AT: u64 = 1_700_000_000_000;

struct File {
    _directory: tempfile::TempDir,
    path: PathBuf,
    time: Arc<ManualClock>,
}

impl File {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self {
            path: directory.path().join("state").join("sessions.db"),
            _directory: directory,
            time: ManualClock::starting_at(STARTED_AT),
        }
    }

    /// A store of its own over the same file: what another process has.
    fn open(&self) -> EmbeddedStore {
        let clock = Clock::Manual(Arc::clone(&self.time));
        EmbeddedStore::open(&self.path, clock, make::PREFIX).unwrap()
    }

    fn pass(&self, ms: u64) {
        self.time.pass(ms);
    }

    /// What lies in its directory.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path.parent().unwrap()).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn connection(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(&self.path).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_writers_in_two_processes_lose_nothing() {
    let file = File::new();
    let stores = [Arc::new(file.open()), Arc::new(file.open())];
    let key = make::key("s");
    stores[0].run(&key, &make::create("s")).await.unwrap();
    let writers: Vec<_> = (0..100)
        .map(|n| {
            let (store, key) = (Arc::clone(&stores[n % 2]), key.clone());
            tokio::spawn(async move {
                let own = format!("w{n}");
                let own_key = make::key(&own);
                store.run(&own_key, &make::create(&own)).await.unwrap();
                let bind = make::bind(&format!("t{n}"), &format!("i{n}"), &format!("u{n}"));
                store.run(&own_key, &bind).await.unwrap();
                store.run(&key, &bind).await.unwrap()
            })
        })
        .collect();
    let mut answers = Vec::new();
    for writer in writers {
        answers.push(writer.await.unwrap());
    }
    assert_eq!(answers.iter().filter(|bound| bound.won).count(), 1);
    let first = &answers[0].binding;
    assert!(answers.iter().all(|bound| bound.binding == *first));
    for n in 0..100 {
        let record = stores[n % 2]
            .run(&make::key(&format!("w{n}")), &Get)
            .await
            .unwrap();
        assert_eq!(
            record.bindings[0].instance,
            make::instance(&format!("i{n}"))
        );
    }
}

#[tokio::test]
async fn what_was_answered_survives_a_kill_and_what_was_not_leaves_no_trace() {
    let file = File::new();
    let key = make::key("s");
    {
        let store = file.open();
        store.run(&key, &make::create("s")).await.unwrap();
        // A process that dies between its write and its commit.
        let dying = file.connection();
        dying
            .execute_batch("BEGIN IMMEDIATE; DELETE FROM sessions;")
            .unwrap();
        drop(dying);
    }
    let record = file.open().run(&key, &Get).await.unwrap();
    assert_eq!(record.id, make::id("s"));
}

#[tokio::test]
async fn a_route_without_a_due_touch_needs_no_write_lock() {
    let file = File::new();
    let store = file.open();
    let key = make::key("s");
    store.run(&key, &make::create("s")).await.unwrap();
    store.run(&key, &make::bind("t", "i", "u")).await.unwrap();
    let other = file.connection();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let routed = store.run(&key, &make::route()).await.unwrap();
    assert_eq!(routed.binding.unwrap().state, BindingState::Bound);
    // One step of the TTL later the touch is due, and the lock is another's.
    file.pass(300_000);
    assert_eq!(
        store.run(&key, &make::route()).await,
        Err(StoreError::NotReady(NotReady::Locked))
    );
    other.execute_batch("ROLLBACK").unwrap();
    store.run(&key, &make::route()).await.unwrap();
}

#[tokio::test]
async fn workers_hear_of_each_other_through_the_file() {
    let file = File::new();
    let (store, other) = (file.open(), file.open());
    let key = make::key("s");
    store.beat(&make::beat("w:1", 1_500)).await.unwrap();
    store.run(&key, &make::create("s")).await.unwrap();
    let mut owned = make::bind("t", "i", "u");
    owned.ownership = mooring_session::rules::Ownership::Owned;
    store.run(&key, &owned).await.unwrap();
    let state = async |store: &EmbeddedStore| {
        let view = store.run(&key, &make::route()).await.unwrap();
        view.binding.unwrap().state
    };
    assert_eq!(state(&other).await, BindingState::Bound);
    file.pass(1_500);
    assert_eq!(state(&other).await, BindingState::Orphaned);
    store.beat(&make::beat("w:1", 1_500)).await.unwrap();
    assert_eq!(state(&other).await, BindingState::Bound);
    // A process that starts later reads what was beaten before it.
    assert_eq!(state(&file.open()).await, BindingState::Bound);
    assert!(store.gone(&make::worker("w:1")).await.unwrap());
    assert_eq!(state(&other).await, BindingState::Orphaned);
    // A later boot of the name ends the earlier one in every process.
    other.beat(&make::beat("w:2", 1_500)).await.unwrap();
    assert!(matches!(
        store.beat(&make::beat("w:1", 1_500)).await,
        Err(StoreError::Refused(Refusal::Stale(_)))
    ));
}

#[tokio::test]
async fn ended_tombstones_are_dropped_and_their_numbers_are_not_used_again() {
    let file = File::new();
    let store = file.open();
    let key = make::key("s");
    let first = store.run(&key, &make::create("s")).await.unwrap();
    for n in 0..300 {
        let own = format!("x{n}");
        store
            .run(&make::key(&own), &make::create(&own))
            .await
            .unwrap();
    }
    file.pass(3 * 3_600_000);
    for _ in 0..8 {
        store
            .run_on_thread(|database| {
                database.purge();
                Ok(())
            })
            .await
            .unwrap();
    }
    let count = file
        .connection()
        .query_row("SELECT count(*) FROM sessions", [], |row| {
            row.get::<_, i64>(0)
        })
        .unwrap();
    assert_eq!(count, 0);
    // The wall clock steps back to before the first one was made.
    file.time.set_wall(STARTED_AT - 100_000_000_000);
    let second = store.run(&key, &make::create("s")).await.unwrap();
    assert!(second.record.generation > first.record.generation);
}

/// A process of one call comes to no interval.
#[tokio::test]
async fn what_is_over_is_dropped_when_the_file_is_opened() {
    let file = File::new();
    let store = file.open();
    for session in ["a", "b"] {
        store
            .run(&make::key(session), &make::create(session))
            .await
            .unwrap();
    }
    drop(store);
    file.pass(3 * 3_600_000);
    let store = file.open();
    let gone = store.run(&make::key("a"), &Get).await;
    assert_eq!(gone, Err(StoreError::Refused(Refusal::NoSession)));
    // The thread begins with it; a GET does not wait for the thread.
    store.run_on_thread(|_| Ok(())).await.unwrap();
    let count: i64 = file
        .connection()
        .query_row("SELECT count(*) FROM sessions", [], |row| row.get(0))
        .unwrap();
    assert_eq!(count, 0);
}

#[tokio::test]
async fn a_person_can_read_it_and_fields_of_a_later_version_stay() {
    let file = File::new();
    let store = file.open();
    let key = make::key("s");
    store.run(&key, &make::create("s")).await.unwrap();
    let by_hand = file.connection();
    let principal: String = by_hand
        .query_row("SELECT fields ->> '$.p' FROM sessions", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(principal, "alice");
    by_hand
        .execute(
            "UPDATE sessions SET fields = json_set(fields, '$.new', 'x')",
            [],
        )
        .unwrap();
    store.run(&key, &make::bind("t", "i", "u")).await.unwrap();
    let kept: String = by_hand
        .query_row("SELECT fields ->> '$.new' FROM sessions", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(kept, "x");
    by_hand
        .execute("UPDATE sessions SET fields = 'not json'", [])
        .unwrap();
    assert!(matches!(
        store.run(&key, &make::route()).await,
        Err(StoreError::Refused(Refusal::Corrupt(_)))
    ));
}

#[tokio::test]
async fn initialize_params_lapse() {
    let file = File::new();
    let store = file.open();
    let digest = InitDigest::of("{}");
    let keep = mooring_session::time::Millis::new(1_000);
    assert_eq!(store.get_init(&digest).await.unwrap(), None);
    store.put_init(&digest, "{}", keep).await.unwrap();
    file.pass(999);
    assert_eq!(
        store.get_init(&digest).await.unwrap().as_deref(),
        Some("{}")
    );
    store.put_init(&digest, "{}", keep).await.unwrap();
    file.pass(999);
    assert_eq!(
        store.get_init(&digest).await.unwrap().as_deref(),
        Some("{}")
    );
    file.pass(1);
    assert_eq!(store.get_init(&digest).await.unwrap(), None);
}

#[test]
fn a_newer_file_is_refused_and_stays_where_it_is() {
    let file = File::new();
    drop(file.open());
    file.connection()
        .pragma_update(None, "user_version", SCHEMA_VERSION + 1)
        .unwrap();
    let opened = EmbeddedStore::open(&file.path, Clock::system(), make::PREFIX);
    assert!(matches!(opened, Err(OpenError::Newer { found: 5, .. })));

    let names = file.names();
    assert!(
        names.iter().all(|name| !name.contains("corrupt")),
        "{names:?}"
    );
}

#[cfg(unix)]
#[test]
fn only_its_owner_may_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let file = File::new();
    let _store = file.open();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&file.path) & 0o777, 0o600);
    assert_eq!(mode(file.path.parent().unwrap()) & 0o777, 0o700);
}
