//! A file of version 1, as the first release wrote it, becomes one of this version and loses nothing.

use mooring_session::refusal::Refusal;
use mooring_session::rules::ClaimRequest;
use mooring_session::time::Millis;

use super::super::tables::SCHEMA_VERSION;
use super::File;
use crate::error::StoreError;
use crate::key::{Family, InitDigest};
use crate::query::SessionQuery;
use crate::test_support::requests as make;
use crate::transition::Get;

/// The tables and rows of version 1: a bound session, an ended one that holds something, and one that a hand has broken.
const VERSION_1: &str = r#"
CREATE TABLE sessions (
    key TEXT PRIMARY KEY,
    fields TEXT NOT NULL,
    tombstone_ends_at INTEGER NOT NULL,
    highest_number INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_by_end ON sessions (tombstone_ends_at);
CREATE TABLE workers (
    ordinal INTEGER PRIMARY KEY,
    worker TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    address TEXT NOT NULL,
    ttl_ms INTEGER NOT NULL,
    last_beat_at INTEGER NOT NULL,
    state TEXT NOT NULL
) STRICT;
CREATE INDEX workers_by_name ON workers (name);
CREATE TABLE inits (
    digest TEXT PRIMARY KEY,
    params TEXT NOT NULL,
    lapses_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE numbers (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO numbers VALUES ('floor', 1800000000000);
INSERT INTO sessions VALUES ('mcpgw:session_affinity:bound',
    '{"s":"1 1 active 1700000000000 1700000000000 1700003825000 3600000","p":"alice",
      "id":"1700000000000 1700000000001 bound","l:init":"abc",
      "b:tools":"bound 1700000000001 1700000000000 0 0 i1 w:1 - u1","k:tools":"t1","x:later":"kept"}',
    1700007200000, 1700000000001);
INSERT INTO sessions VALUES ('mcpgw:session_affinity:ended',
    '{"s":"1 1 ended 1700000000000 1700000000000 1700000000000 3600000","p":"alice",
      "id":"1700000000000 1700000000001 ended",
      "b:tools":"bound 1700000000001 1700000000000 0 0 i1 w:1 - u2","k:tools":"t1"}',
    1700007200000, 1700000000001);
INSERT INTO sessions VALUES ('mcpgw:session_affinity:broken', 'not json', 1700007200000, 1);
INSERT INTO workers VALUES (1, 'w:1', 'w', '127.0.0.1:9', 600000, 1700000000000, 'serving');
PRAGMA user_version = 1;
"#;

fn version_1() -> File {
    let file = File::new();
    std::fs::create_dir_all(file.path.parent().unwrap()).unwrap();
    file.connection().execute_batch(VERSION_1).unwrap();
    file
}

fn version(file: &File) -> i64 {
    file.connection()
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap()
}

#[tokio::test]
async fn a_file_of_version_1_keeps_its_sessions_and_can_be_asked_about_them() {
    let file = version_1();
    let params = InitDigest::of("{}");
    file.connection()
        .execute(
            "INSERT INTO inits VALUES (?1, '{}', 1700007200000)",
            [params.as_str()],
        )
        .unwrap();
    let store = file.open();
    assert_eq!(version(&file), SCHEMA_VERSION);
    let bound = store.run(&make::key("bound"), &Get).await.unwrap();
    assert_eq!(
        bound.bindings[0].upstream_session,
        Some(make::upstream("u1"))
    );
    assert_eq!(bound.labels.len(), 1);
    let kept: String = file
        .connection()
        .query_row(
            "SELECT fields ->> '$.x:later' FROM sessions WHERE key LIKE '%bound'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(kept, "kept");
    let at_i1 = SessionQuery {
        instance: Some(make::instance("i1")),
        ..SessionQuery::default()
    };
    assert_eq!(store.list(&at_i1).await.unwrap().sessions.len(), 2);
    assert_eq!(
        store.reap(&make::worker("w:1"), Family::Mcp, 10).await,
        Ok(vec![make::key("ended")])
    );
    let clean = ClaimRequest {
        worker: make::worker("w:1"),
        lease: Millis::new(1_000),
    };
    let held = store.run(&make::key("ended"), &clean).await.unwrap();
    assert_eq!(
        held.bindings[0].upstream_session,
        Some(make::upstream("u2"))
    );
    assert!(matches!(
        store.run(&make::key("broken"), &Get).await,
        Err(StoreError::Refused(Refusal::Corrupt(_)))
    ));
    assert_eq!(
        store.get_init(&params).await.unwrap().as_deref(),
        Some("{}")
    );
    let workers = store.workers().await.unwrap();
    assert_eq!(workers[0].bindings, Some(1));
    // Numbers go on behind those of before.
    let created = store.run(&make::key("new"), &make::create("new")).await;
    assert!(created.unwrap().record.generation > 1_800_000_000_000);
}

#[tokio::test]
async fn a_file_of_a_later_version_gets_the_tables_that_it_lacks() {
    for (earlier, lacks) in [
        (2, &["sealed", "desired_state", "histories"][..]),
        (3, &["desired_state", "histories"]),
    ] {
        let file = File::new();
        let session = make::key("s");
        let store = file.open();
        store.run(&session, &make::create("s")).await.unwrap();
        drop(store);
        let connection = file.connection();
        for table in lacks {
            let drop = format!("DROP TABLE {table}");
            connection.execute_batch(&drop).unwrap();
        }
        let set = connection.pragma_update(None, "user_version", earlier);
        set.unwrap();
        let store = file.open();
        assert_eq!(version(&file), SCHEMA_VERSION);
        store.run(&session, &Get).await.unwrap();
        store.put_sealed("tools:a", b"value").await.unwrap();
        assert_eq!(store.desired_state_version().await, Ok(0));
        assert_eq!(store.read_history("digest").await, Ok(Vec::new()));
    }
}

#[tokio::test]
async fn a_process_that_dies_in_between_leaves_the_file_as_it_was() {
    let file = version_1();
    {
        let mut dying = file.connection();
        let transaction = dying.transaction().unwrap();
        super::super::tables::bring_up_to_date(&transaction).unwrap();
    }
    assert_eq!(version(&file), 1);
    // And two processes that start at once do it once.
    let stores = [file.open(), file.open()];
    for store in &stores {
        store.run(&make::key("bound"), &Get).await.unwrap();
    }
    assert_eq!(version(&file), SCHEMA_VERSION);
}
