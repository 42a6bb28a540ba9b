//! Sentinels that are right, stale, silent, or refuse this client. Each knows what its configuration says: none has met the
//! others.

use super::events::{claimed, settled, somebody_waits};
use super::fallback_list::port_in_use;
use super::*;
use crate::test_support::server::{SentinelServer, free_port};

const SERVICE: &str = "mooring";

fn url(sentinels: &[u16], rest: &str) -> String {
    let hosts: Vec<_> = sentinels
        .iter()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    format!("redis+sentinel://{}/{rest}", hosts.join(","))
}

async fn open_by(sentinels: &[u16], rest: &str) -> Result<RedisStore, OpenError> {
    let url = redis_url(&url(sentinels, rest));
    RedisStore::open(&url, make::PREFIX, TIMEOUT).await
}

fn sentinel(primary: u16, epoch: u64) -> SentinelServer {
    SentinelServer::start(SERVICE, primary, epoch, "")
}

/// Of a server that is alive and takes itself for a primary too, only the age of the configuration tells.
#[tokio::test]
async fn of_two_primaries_that_of_the_newest_configuration_serves() {
    let (former, next) = (
        RedisServer::start(Module::Loaded),
        RedisServer::start(Module::Loaded),
    );
    let (stale, right) = (sentinel(former.port, 1), sentinel(next.port, 2));
    for sentinels in [[stale.port, right.port], [right.port, stale.port]] {
        let store = open_by(&sentinels, SERVICE).await.unwrap();
        assert_eq!(port_in_use(&store), Some(next.port));
        assert_eq!(store.server().discovery, "sentinel");
    }
}

#[tokio::test]
async fn a_server_that_is_named_is_not_believed_to_be_a_primary() {
    let primary = RedisServer::start(Module::Loaded);
    let replica = RedisServer::start(Module::Loaded);
    replica.command(&["REPLICAOF", "127.0.0.1", &primary.port.to_string()]);
    // The newest configurations name a dead server and a replica.
    let sentinels = [
        sentinel(free_port(), 9),
        sentinel(replica.port, 8),
        sentinel(primary.port, 1),
    ];
    let ports = [sentinels[0].port, sentinels[1].port, sentinels[2].port];
    let store = open_by(&ports, SERVICE).await.unwrap();
    assert_eq!(port_in_use(&store), Some(primary.port));
}

/// A primary that the sentinels cannot reach is never told that it is none any more.
#[tokio::test]
async fn a_primary_that_still_serves_is_left_when_sentinels_name_another() {
    let (former, next) = (
        RedisServer::start(Module::Loaded),
        RedisServer::start(Module::Loaded),
    );
    // MONITOR begins with epoch 0.
    let (first, second) = (sentinel(former.port, 0), sentinel(former.port, 0));
    let store = open_by(&[first.port, second.port], SERVICE).await.unwrap();
    assert_eq!(port_in_use(&store), Some(former.port));
    let (worker, key) = (make::worker("v:1"), make::key("s"));
    // The wait has begun at the former primary, where nothing will happen, and goes on at the next one.
    let waiting = store.wait_for_events(&worker, PATIENCE);
    let moving = async {
        let is_blocked = async || {
            let clients = former.command(&["CLIENT", "LIST"]);
            let text = redis::from_redis_value::<String>(clients).unwrap();
            text.contains("cmd=worker.wait")
        };
        eventually("a wait is blocked", is_blocked).await;
        let port = next.port.to_string();
        for sentinel in [&first, &second] {
            sentinel.command(&["REMOVE", SERVICE]);
            sentinel.command(&["MONITOR", SERVICE, "127.0.0.1", &port, "2"]);
        }
        eventually("the named primary serves", async || {
            port_in_use(&store) == Some(next.port)
        })
        .await;
        let confirm = claimed(&store, &key).await;
        somebody_waits(&next).await;
        store.run(&key, &confirm).await.unwrap();
    };
    let (waited, ()) = tokio::join!(waiting, moving);
    assert_eq!(waited, Ok(vec![settled(&key)]));
    eventually("the former primary has no clients", async || {
        let clients = former.command(&["CLIENT", "LIST", "TYPE", "normal"]);
        let text = redis::from_redis_value::<String>(clients).unwrap();
        text.lines().count() == 1
    })
    .await;
}

/// The sentinels that know of the last failover may be those that cannot be reached.
#[tokio::test]
async fn a_good_primary_is_not_left_for_that_of_an_older_configuration() {
    let (former, next) = (
        RedisServer::start(Module::Loaded),
        RedisServer::start(Module::Loaded),
    );
    let (stale, right) = (sentinel(former.port, 1), sentinel(next.port, 2));
    let store = open_by(&[stale.port, right.port], SERVICE).await.unwrap();
    assert_eq!(port_in_use(&store), Some(next.port));
    drop(right);
    eventually("the stale one alone has answered", async || {
        let problem = store.server().problem;
        problem.is_some_and(|problem| problem.contains("an older configuration"))
    })
    .await;
    assert_eq!(port_in_use(&store), Some(next.port));
    // Also after a loss.
    next.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    let key = make::key("s");
    eventually("the same primary serves", async || {
        store.run(&key, &make::create("s")).await.is_ok()
    })
    .await;
    assert_eq!(port_in_use(&store), Some(next.port));
}

#[tokio::test]
async fn a_dead_and_a_silent_sentinel_are_passed_over() {
    let primary = RedisServer::start(Module::Loaded);
    let right = sentinel(primary.port, 1);
    // Its backlog accepts connections, and nothing reads them.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap().port();
    let store = open_by(&[free_port(), silent, right.port], SERVICE).await;
    assert_eq!(port_in_use(&store.unwrap()), Some(primary.port));
}

#[tokio::test]
async fn a_server_in_use_is_shown_with_the_problem_of_its_sentinels() {
    let primary = RedisServer::start(Module::Loaded);
    let only = sentinel(primary.port, 1);
    let store = open_by(&[only.port], SERVICE).await.unwrap();
    assert_eq!(store.server().problem, None);
    drop(only);
    eventually("the problem is shown", async || {
        let problem = store.server().problem;
        problem.is_some_and(|problem| problem.contains("connection refused"))
    })
    .await;
    assert_eq!(port_in_use(&store), Some(primary.port));
}

#[tokio::test]
async fn a_service_that_no_sentinel_knows_is_refused_by_name() {
    let primary = RedisServer::start(Module::Loaded);
    let (one, other) = (sentinel(primary.port, 1), sentinel(primary.port, 1));
    let refused = open_by(&[one.port, other.port], "misspelt").await;
    let refused = refused.unwrap_err().to_string();
    for part in [
        "monitor no service \"misspelt\"",
        "SENTINEL MASTERS",
        &one.port.to_string(),
    ] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    // A sentinel that is down may know it.
    let store = open_by(&[one.port, free_port()], "misspelt").await.unwrap();
    let state = store.watch().borrow().clone();
    let said = format!("{state:?}");
    assert!(
        said.contains("it monitors no service") && said.contains("connection refused"),
        "{said}"
    );
}

#[tokio::test]
async fn sentinels_and_servers_have_logins_of_their_own() {
    let primary = RedisServer::start(Module::Loaded);
    primary.command(&["CONFIG", "SET", "requirepass", "of-the-servers"]);
    let lines = format!(
        "user default off\nuser gateway on >of-the-sentinels nocommands +sentinel|get-master-addr-by-name \
         +sentinel|master\nsentinel auth-pass {SERVICE} of-the-servers"
    );
    let guarded = SentinelServer::start(SERVICE, primary.port, 1, &lines);
    let open = async |login: &str, rest: &str| {
        let url = format!(
            "redis+sentinel://{login}127.0.0.1:{}/{SERVICE}{rest}",
            guarded.port
        );
        RedisStore::open(&redis_url(&url), make::PREFIX, TIMEOUT).await
    };
    let of_sentinels = "?sentinel_username=gateway&sentinel_password=of-the-sentinels";
    let store = open(":of-the-servers@", of_sentinels).await.unwrap();
    assert_eq!(port_in_use(&store), Some(primary.port));
    let wrong = "?sentinel_username=gateway&sentinel_password=of-the-servers";
    for (login, rest, parts) in [
        (
            ":of-the-servers@",
            wrong,
            ["the sentinel 127.0.0.1", "wrong user or password"],
        ),
        (":of-the-servers@", "", ["the sentinel 127.0.0.1", "NOAUTH"]),
        ("", of_sentinels, ["refuses this client", "NOAUTH"]),
    ] {
        let refused = open(login, rest).await.unwrap_err().to_string();
        for part in parts {
            assert!(refused.contains(part), "{rest}: {part}: {refused}");
        }
        assert!(!refused.contains("of-the-"), "{refused}");
    }
}
