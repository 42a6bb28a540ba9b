//! A cluster: each key at its primary, pages over all of them, slots that move, a node that is added, a primary that is
//! killed.

#![allow(clippy::indexing_slicing, reason = "tests fail by panicking")]

use std::collections::{BTreeSet, HashSet};

use mooring_session::rules::TouchRequest;
use mooring_session::time::Millis;
use mooring_tests::port::free_port;
use mooring_tests::redis::{Module as TestModule, Redis};
use mooring_tests::redis_cluster::{RANGES, RedisCluster};

use super::events::settled;
use super::*;
use crate::error::NotReady;
use crate::key::{Family, SessionKey};
use crate::query::{Cursor, Order, SessionQuery};

const SESSIONS: usize = 40;

async fn open_cluster(cluster: &RedisCluster) -> RedisStore {
    RedisStore::open(&redis_url(&cluster.url()), make::PREFIX, TIMEOUT)
        .await
        .unwrap()
}

fn name(number: usize) -> String {
    format!("s{number}")
}

fn names(count: usize) -> BTreeSet<String> {
    (0..count).map(name).collect()
}

async fn create_all(store: &RedisStore) {
    for session in names(SESSIONS) {
        let created = store
            .run(&make::key(&session), &make::create(&session))
            .await;
        assert!(created.unwrap().created, "{session}");
    }
}

/// A session whose key the first primary of this place serves.
fn session_at(cluster: &RedisCluster, place: usize) -> SessionKey {
    let is_there = |key: &SessionKey| {
        let slot = cluster.slot_of(key.secret()).unwrap();
        cluster.place_of(slot).unwrap() == place
    };
    let mut keys = names(SESSIONS)
        .into_iter()
        .map(|session| make::key(&session));
    keys.find(is_there).unwrap()
}

fn touch() -> TouchRequest {
    TouchRequest {
        principal: make::principal("alice"),
        ttl: None,
        content_hash: None,
        labels: std::collections::BTreeMap::new(),
        reported: None,
    }
}

/// The ids of all pages, each of which is in order and follows the one before; none if one is incomplete.
async fn listed(store: &RedisStore, order: Order, count: usize) -> Option<Vec<String>> {
    let mut query = SessionQuery {
        order,
        count,
        ..SessionQuery::default()
    };
    let (mut ids, mut moments) = (Vec::new(), Vec::new());
    loop {
        let page = store.list(&query).await.unwrap();
        assert!(page.sessions.len() <= count);
        if !page.complete {
            return None;
        }
        for (key, record) in page.sessions {
            ids.push(key.id().unwrap().as_str().to_owned());
            moments.push(record.created_at);
        }
        query.cursor = page.cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    if order == Order::Newest {
        moments.reverse();
    }
    assert!(moments.is_sorted(), "{order:?}");
    Some(ids)
}

async fn lists_all(store: &RedisStore) -> bool {
    // The index of a primary that was just promoted is verified first.
    let Some(ids) = listed(store, Order::Newest, 7).await else {
        return false;
    };
    let all: BTreeSet<String> = ids.iter().cloned().collect();
    assert_eq!(ids.len(), all.len(), "each once");
    all == names(SESSIONS)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_one_store() {
    let mut cluster = RedisCluster::start().await.unwrap();
    let store = open_cluster(&cluster).await;
    let view = store.server();
    assert_eq!((view.discovery, view.primaries.len()), ("cluster", 3));
    assert_eq!(view.problem, None);
    create_all(&store).await;
    for primary in cluster.primaries() {
        assert_ne!(primary.cli(&["DBSIZE"]).unwrap(), "0", "each has sessions");
    }
    pages_have_every_session(&store).await;
    keyless_commands_reach_every_primary(&cluster, &store).await;
    events_arrive_from_every_primary(&cluster, &store).await;
    values_of_several_keys_are_read(&store).await;
    a_slot_moves(&mut cluster, &store).await;
}

async fn pages_have_every_session(store: &RedisStore) {
    for order in [Order::Newest, Order::Oldest] {
        for count in [1, 7, 100] {
            let ids = listed(store, order, count).await.unwrap();
            let ids: BTreeSet<_> = ids.into_iter().collect();
            assert_eq!(ids, names(SESSIONS), "{order:?} {count}");
        }
    }
    let foreign = SessionQuery {
        cursor: Cursor::parse("1700-3"),
        ..SessionQuery::default()
    };
    let refused = store.list(&foreign).await;
    assert!(
        matches!(refused, Err(StoreError::Refused(Refusal::Argument(_)))),
        "{refused:?}"
    );
}

async fn keyless_commands_reach_every_primary(cluster: &RedisCluster, store: &RedisStore) {
    store.beat(&make::beat("w:1", 60_000)).await.unwrap();
    let workers = store.workers().await.unwrap();
    assert_eq!(workers.len(), 1, "{workers:?}");
    for primary in cluster.primaries() {
        assert!(primary.cli(&["WORKER.LIST"]).unwrap().contains("w:1"));
    }
    let mut expected = HashSet::new();
    for number in 0..12 {
        let session = format!("short{number}");
        let mut create = make::create(&session);
        create.ttl = Millis::new(1_000);
        let key = make::key(&session);
        store.run(&key, &create).await.unwrap();
        store.run(&key, &make::bind("t", "i", "u")).await.unwrap();
        expected.insert(key);
    }
    assert_eq!(store.workers().await.unwrap()[0].bindings, Some(12));
    let worker = make::worker("w:1");
    eventually("all that has expired is named", async || {
        let keys = store.reap(&worker, Family::Mcp, 100).await.unwrap();
        keys.into_iter().collect::<HashSet<_>>() == expected
    })
    .await;
    let keys = store.reap(&worker, Family::Mcp, 5).await.unwrap();
    assert_eq!(keys.len(), 5);
    for key in expected {
        let generation = store
            .run(&key, &crate::transition::Get)
            .await
            .unwrap()
            .generation;
        let claim = mooring_session::rules::ClaimRequest {
            worker: worker.clone(),
            lease: Millis::new(60_000),
        };
        store.run(&key, &claim).await.unwrap();
        let forget = mooring_session::rules::ForgetRequest {
            generation,
            worker: worker.clone(),
        };
        store.run(&key, &forget).await.unwrap();
    }
    assert!(store.gone(&worker).await.unwrap());
}

async fn events_arrive_from_every_primary(cluster: &RedisCluster, store: &RedisStore) {
    let worker = make::worker("v:1");
    assert_eq!(store.event_path(&worker), None, "nobody waits");
    let keys: Vec<SessionKey> = (0..RANGES.len())
        .map(|place| session_at(cluster, place))
        .collect();
    let confirming = async {
        eventually("events can arrive", async || {
            store.event_path(&worker).is_some()
        })
        .await;
        let path = store.event_path(&worker);
        for key in &keys {
            let bind = mooring_session::rules::BindRequest {
                upstream_session: None,
                ..make::bind("t1", "i1", "-")
            };
            let bound = store.run(key, &bind).await.unwrap();
            let mut route = make::route();
            route.worker = worker.clone();
            store.run(key, &route).await.unwrap();
            let confirm = make::confirm(bound.binding.epoch, "t1", "u1");
            store.run(key, &confirm).await.unwrap();
        }
        assert_eq!(store.event_path(&worker), path, "no connection was lost");
    };
    let waiting = async {
        let mut told = Vec::new();
        while told.len() < keys.len() {
            told.extend(store.wait_for_events(&worker, PATIENCE).await.unwrap());
        }
        told
    };
    let (told, ()) = tokio::join!(waiting, confirming);
    for key in &keys {
        assert!(told.contains(&settled(key)), "{told:?}");
    }
}

async fn values_of_several_keys_are_read(store: &RedisStore) {
    let names: Vec<String> = (0..6).map(name).collect();
    store.put_sealed("s1", b"one").await.unwrap();
    store.put_sealed("s4", b"four").await.unwrap();
    let values = store.get_sealed(&names).await.unwrap();
    let at = |place: usize| values[place].as_deref();
    assert_eq!(
        (values.len(), at(1), at(4)),
        (6, Some(&b"one"[..]), Some(&b"four"[..]))
    );
    assert!(store.delete_sealed(&names).await.unwrap());
    assert!(!store.delete_sealed(&names).await.unwrap());
}

/// To another primary, and to one that is added, while the session in it is used. No command fails.
async fn a_slot_moves(cluster: &mut RedisCluster, store: &RedisStore) {
    let key = session_at(cluster, 0);
    let slot = cluster.slot_of(key.secret()).unwrap();
    let added = cluster.add_primary().await.unwrap();
    for (from, to) in [(0, 1), (1, added)] {
        let mut used = 0;
        std::thread::scope(|scope| {
            let moving = scope.spawn(|| cluster.move_slot(slot, from, to).unwrap());
            let using = async {
                while !moving.is_finished() {
                    store.run(&key, &touch()).await.unwrap();
                    used += 1;
                }
                store.run(&key, &touch()).await.unwrap();
            };
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(using));
        });
        assert!(used > 0);
        eventually("all are listed again", async || lists_all(store).await).await;
    }
    eventually("the new node is a primary in use", async || {
        let view = store.server();
        view.primaries.len() == 4 && view.problem.is_none()
    })
    .await;
    let worker = make::worker("v:1");
    tokio::select! {
        () = async { loop { drop(store.wait_for_events(&worker, PATIENCE).await) } } => {}
        () = eventually("events arrive from it too", async || store.event_path(&worker).is_some()) => {}
    }
}

#[tokio::test]
async fn while_a_primary_is_replaced_only_its_sessions_wait() {
    let mut cluster = RedisCluster::start().await.unwrap();
    let store = open_cluster(&cluster).await;
    create_all(&store).await;
    // The primary whose slots have the key of the fleet's way, which is of no use in a cluster.
    let fleet_slot = cluster.slot_of(&format!("{}fleet", make::PREFIX)).unwrap();
    let killed = cluster.place_of(fleet_slot).unwrap();
    let others = [1, 2].map(|further| (killed + further) % RANGES.len());
    let [lost, other] = [killed, others[0]].map(|place| session_at(&cluster, place));
    cluster.until_replicated(killed).await.unwrap();
    let (mut refused, use_it) = (0, touch());
    cluster.kill_primary(killed).unwrap();
    let beating = async {
        // It fails, because one primary is away, and is alive at the others.
        drop(store.beat(&make::beat("w:1", 600_000)).await);
        for place in others {
            let workers = cluster.node(place).unwrap().cli(&["WORKER.LIST"]).unwrap();
            assert!(workers.contains("w:1"), "{workers}");
        }
    };
    let replacing = async {
        let replaced = cluster.until_replaced(killed);
        tokio::pin!(replaced);
        loop {
            tokio::select! {
                replaced = &mut replaced => {
                    replaced.unwrap();
                    break;
                }
                touched = store.run(&lost, &use_it) => match touched {
                    Ok(_) => {}
                    Err(StoreError::NotReady(why)) => {
                        assert!(why.is_of_failover(), "{why}");
                        refused += 1;
                    }
                    Err(error) => unreachable!("{error}"),
                },
            }
            store.run(&other, &touch()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::join!(beating, replacing);
    assert!(refused > 0, "the primary was away");
    eventually("its replica serves", async || {
        store.run(&lost, &touch()).await.is_ok()
    })
    .await;
    eventually("no session is lost", async || {
        let view = store.server();
        view.primaries.len() == 3 && view.problem.is_none() && lists_all(&store).await
    })
    .await;
    let created = store
        .run(&lost, &make::create(lost.id().unwrap().as_str()))
        .await;
    assert!(!created.unwrap().created, "it was replicated");
}

/// A node of a cluster of its own that serves every slot.
async fn lone_node(module: TestModule) -> Redis {
    let bus = free_port().unwrap().to_string();
    let arguments = ["--cluster-enabled", "yes", "--cluster-port", &bus];
    let node = Redis::start_with(module, &arguments).await.unwrap();
    node.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"])
        .unwrap();
    node
}

#[tokio::test]
async fn what_is_no_cluster_or_has_no_module_is_refused_by_name() {
    let open_at = async |port: u16| {
        let url = format!("redis+cluster://127.0.0.1:{port}");
        RedisStore::open(&redis_url(&url), make::PREFIX, TIMEOUT).await
    };
    let single = RedisServer::start(Module::Loaded);
    let refused = open_at(single.port).await.unwrap_err().to_string();
    assert!(refused.contains("no node of a cluster"), "{refused}");
    let bare = lone_node(TestModule::Absent).await;
    let refused = open_at(bare.port()).await.unwrap_err().to_string();
    assert!(refused.contains("without the mooring module"), "{refused}");
    let away = open_at(crate::test_support::server::free_port())
        .await
        .unwrap();
    let state = away.watch().borrow().clone();
    assert!(matches!(state, LinkState::Down(_)), "{state:?}");
    let error = away.run(&make::key("s"), &touch()).await.unwrap_err();
    assert_eq!(error, StoreError::Away(UnavailableReason::Disconnected));
}

/// The rights that docs/operating-redis.md gives, and what is said without one of them.
#[tokio::test]
async fn a_user_needs_few_rights_more_in_a_cluster() {
    let page = mooring_tests::paths::workspace().join("docs/operating-redis.md");
    let page = std::fs::read_to_string(page).unwrap();
    let printed = |start: &str| {
        let line = page.lines().find(|line| line.starts_with(start));
        line.unwrap()
            .split(' ')
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let user = printed("ACL SETUSER gateway on ");
    let more = printed("ACL SETUSER gateway +asking");
    let node = lone_node(TestModule::Loaded).await;
    let open_as = async |rights: &[&str]| {
        let words: Vec<&str> = user.iter().map(String::as_str).collect();
        node.cli(&["ACL", "DELUSER", "gateway"]).unwrap();
        node.cli(&words).unwrap();
        for right in rights {
            node.cli(&["ACL", "SETUSER", "gateway", right]).unwrap();
        }
        let url = format!(
            "redis+cluster://gateway:a-long-secret@127.0.0.1:{}",
            node.port()
        );
        RedisStore::open(&redis_url(&url), make::PREFIX, TIMEOUT).await
    };
    let rights: Vec<&str> = more.iter().skip(3).map(String::as_str).collect();
    let store = open_as(&rights).await.unwrap();
    eventually("the slots are served", async || {
        let created = store.run(&make::key("s"), &make::create("s")).await;
        !matches!(created, Err(StoreError::NotReady(NotReady::Answered(_))))
    })
    .await;
    let refused = open_as(&["+cluster|info", "+cluster|slots"]).await;
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("NOPERM") && refused.contains("asking"),
        "{refused}"
    );
    let refused = open_as(&["+cluster|info"]).await.unwrap_err().to_string();
    assert!(
        refused.contains("NOPERM") && refused.contains("cluster|slots"),
        "{refused}"
    );
}
