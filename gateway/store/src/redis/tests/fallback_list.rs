//! A list of URLs, of which the first that is a primary serves.

use super::*;
use crate::test_support::server::free_port;

/// The server in use, without its host.
pub(super) fn port_in_use(store: &RedisStore) -> Option<u16> {
    let address = store.server().address?;
    Some(address.rsplit_once(':').unwrap().1.parse().unwrap())
}

async fn open_list(urls: &[String]) -> RedisStore {
    let url = redis_url(&urls.join(","));
    RedisStore::open(&url, make::PREFIX, TIMEOUT).await.unwrap()
}

#[tokio::test]
async fn the_first_primary_of_a_list_serves() {
    let dead = format!("redis://127.0.0.1:{}", free_port());
    let primary = RedisServer::start(Module::Loaded);
    let replica = RedisServer::start(Module::Loaded);
    replica.command(&["REPLICAOF", "127.0.0.1", &primary.port.to_string()]);
    let store = open_list(&[dead, replica.url(), primary.url()]).await;
    assert_eq!(port_in_use(&store), Some(primary.port));
    assert_eq!(store.server().discovery, "list");
    let key = make::key("s");
    store.run(&key, &make::create("s")).await.unwrap();
}

#[tokio::test]
async fn a_server_that_never_answers_costs_its_timeout_only_once() {
    // Its backlog accepts connections, and nothing reads them.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let primary = RedisServer::start(Module::Loaded);
    let store = open_list(&[url, primary.url()]).await;
    assert_eq!(port_in_use(&store), Some(primary.port));
    primary.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    let key = make::key("s");
    eventually("the primary serves again", async || {
        store.run(&key, &make::create("s")).await.is_ok()
    })
    .await;
    silent.set_nonblocking(true).unwrap();
    let attempts = std::iter::from_fn(|| silent.accept().ok());
    assert_eq!(attempts.count(), 1);
}

/// The client of a single server waits for the address to lead elsewhere. Here it is known where the primary may be.
#[tokio::test]
async fn a_demoted_primary_is_left_at_its_first_refusal() {
    let former = RedisServer::start(Module::Loaded);
    let next = RedisServer::start(Module::Loaded);
    next.command(&["REPLICAOF", "127.0.0.1", &former.port.to_string()]);
    let store = open_list(&[former.url(), next.url()]).await;
    let (key, worker) = (make::key("s"), make::worker("v:1"));
    assert_eq!(port_in_use(&store), Some(former.port));
    let waited = store.wait_for_events(&worker, Duration::from_millis(1));
    waited.await.unwrap();

    next.command(&["REPLICAOF", "NO", "ONE"]);
    former.command(&["REPLICAOF", "127.0.0.1", &next.port.to_string()]);
    // The refusal may be that of a connection which the store had lost with the role: then it has moved already.
    let refused = store.run(&key, &make::create("s")).await;
    if let Err(error) = refused {
        assert!(error.to_string().contains("READONLY"), "{error}");
    }
    eventually("the next primary serves", async || {
        store.run(&key, &make::create("s")).await.is_ok()
    })
    .await;
    assert_eq!(port_in_use(&store), Some(next.port));
    let waited = store.wait_for_events(&worker, Duration::from_millis(1));
    waited.await.unwrap();
    eventually("the former primary has no clients", async || {
        let clients = former.command(&["CLIENT", "LIST", "TYPE", "normal"]);
        let text = redis::from_redis_value::<String>(clients).unwrap();
        text.lines().count() == 1
    })
    .await;
}

#[tokio::test]
async fn without_a_primary_each_server_says_why() {
    let dead = format!("redis://127.0.0.1:{}", free_port());
    let replica = RedisServer::start(Module::Loaded);
    replica.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let store = open_list(&[dead.clone(), replica.url()]).await;
    let LinkState::Down(down) = store.watch().borrow().clone() else {
        panic!("there is no primary");
    };
    let said = down.at(store.address()).to_string();
    let dead = dead.trim_start_matches("redis://");
    assert!(
        said.contains(&format!("{dead}: connection refused"))
            && said.contains(&format!("{}: it is a replica", replica.port)),
        "{said}"
    );
    // The server is asked again, and serves when it has been promoted.
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    let key = make::key("s");
    eventually("the promoted server serves", async || {
        store.run(&key, &make::create("s")).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn servers_without_the_module_are_refused_if_no_other_may_come() {
    let (one, other) = (
        RedisServer::start(Module::Absent),
        RedisServer::start(Module::Absent),
    );
    let url = redis_url(&format!("{} {}", one.url(), other.url()));
    let refused = RedisStore::open(&url, make::PREFIX, TIMEOUT).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("without the mooring module"), "{refused}");
}
