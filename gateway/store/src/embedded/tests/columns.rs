//! What the columns answer about many records, against an index of the rules over the same records.

use std::collections::BTreeSet;

use mooring_session::context::Node;
use mooring_session::index::{Departures, Glob, Index, Prefixes, Reaper, Seed};
use mooring_session::names::WorkerId;
use mooring_session::record::{Record, SessionState};
use mooring_session::time::Timestamp;

use super::super::EmbeddedStore;
use super::super::database::Database;
use super::super::node::FileNode;
use super::super::row;
use crate::key::{Family, SessionKey};
use crate::query::{PAGE_MAX, SessionQuery, key_pattern};
use crate::test_support::requests as make;

/// What an index of all records tells.
struct Expected {
    now: Timestamp,
    records: Vec<(SessionKey, Record)>,
    index: Index,
    /// What is due for each of these workers.
    due: Vec<(WorkerId, BTreeSet<String>)>,
}

impl EmbeddedStore {
    /// Compares every answer that goes by columns with that of an index. `workers` reap.
    pub(crate) async fn check_columns(&self, workers: Vec<WorkerId>) {
        let reaping = workers.clone();
        let expected = self.run_on_thread(move |database| Ok(expect(database, &reaping)));
        let expected = expected.await.unwrap();
        for (worker, due) in &expected.due {
            let reaped = self.reap(worker, Family::Mcp, PAGE_MAX).await.unwrap();
            assert_eq!(names(reaped.iter()), *due, "due for {worker}");
        }
        for view in self.workers().await.unwrap() {
            let driven = expected.index.driven_by(&view.worker);
            assert_eq!(view.bindings, Some(driven), "driven by {}", view.worker);
        }
        let states = [
            SessionState::Active,
            SessionState::Expired,
            SessionState::Ended,
        ];
        for state in states.map(Some).into_iter().chain([None]) {
            for worker in workers.iter().cloned().map(Some).chain([None]) {
                let query = SessionQuery {
                    state,
                    owner: worker,
                    instance: (state == Some(SessionState::Active)).then(|| make::instance("i0")),
                    count: PAGE_MAX,
                    ..SessionQuery::default()
                };
                let listed = self.list(&query).await.unwrap();
                let filter = query.filter(make::PREFIX).unwrap();
                let admitted = (expected.records.iter()).filter(|(key, record)| {
                    filter.admits(key.secret().as_bytes(), record, expected.now)
                });
                let listed = names(listed.sessions.iter().map(|(key, _)| key));
                assert_eq!(listed, names(admitted.map(|(key, _)| key)), "{query:?}");
            }
        }
    }
}

fn expect(database: &mut Database, workers: &[WorkerId]) -> Expected {
    database
        .known_workers
        .refresh(&database.connection, &database.clock)
        .unwrap();
    let (now, mono) = (database.clock.now(), database.clock.mono());
    let records = records(database, now);
    let heads = Family::heads(make::PREFIX);
    let prefixes = Prefixes::new(heads.iter().map(String::as_bytes)).unwrap();
    let mut index = Index::new(Seed([7, 7]));
    for (key, record) in &records {
        let key = key.secret().as_bytes();
        index.put(prefixes.of(key).unwrap(), key, record, now);
    }
    index.advance(now, PAGE_MAX);
    for (key, record) in &records {
        let (queues, moved) = (&database.queues, Departures::default());
        let node = FileNode::new(&database.connection, key, (now, mono), &moved, queues);
        let family = prefixes.of(key.secret().as_bytes()).unwrap();
        let held = index.held(&record.principal, family, key.secret().as_bytes(), now);
        let found = node.held_by(&record.principal).unwrap();
        assert_eq!(found.active, held.active, "held beside {key:?}");
        for (server, binding) in &record.bindings {
            let bound = index.bound_to(server, &binding.instance);
            assert_eq!(
                node.fullness(server, &binding.instance),
                bound,
                "{binding:?}"
            );
        }
    }
    let due = workers.iter().map(|worker| {
        let reaper = Reaper {
            worker,
            workers: &database.known_workers.workers.at(mono),
            now,
            pattern: Glob::parse(key_pattern(Family::Mcp, make::PREFIX, None).as_bytes()).ok(),
            count: PAGE_MAX,
        };
        let due = index.due(&reaper, |_| true).into_iter();
        let due = due.map(|key| String::from_utf8(key.to_vec()).unwrap());
        (worker.clone(), due.collect())
    });
    let due = due.collect();
    Expected {
        now,
        records,
        index,
        due,
    }
}

fn records(database: &Database, now: Timestamp) -> Vec<(SessionKey, Record)> {
    let connection = &database.connection;
    let mut keys = connection.prepare("SELECT key FROM sessions").unwrap();
    let keys = keys.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let records = keys.filter_map(|key| {
        let key = key.unwrap();
        let stored = row::load(connection, &key).unwrap().unwrap();
        let record = row::decode(&stored.fields).unwrap();
        let key = SessionKey::named(make::PREFIX, key.as_bytes()).unwrap();
        (stored.tombstone_ends_at > now).then_some((key, record))
    });
    records.collect()
}

fn names<'a>(keys: impl Iterator<Item = &'a SessionKey>) -> BTreeSet<String> {
    keys.map(|key| key.secret().to_owned()).collect()
}
