//! Users with exactly the documented rights, less the commands that providers refuse.

use super::*;
use crate::test_support::{enter, leave};
use crate::{DesiredChange, Family};

/// The rights of docs/managed-redis.md.
const RIGHTS: &[&str] = &[
    "resetchannels",
    "~mcpgw:*",
    "+ping",
    "+hello",
    "+info",
    "+time",
    "+scan",
    "+evalsha",
    "+eval",
    "+get",
    "+set",
    "+del",
    "+exists",
    "+pttl",
    "+pexpire",
    "+pexpireat",
    "+hget",
    "+hset",
    "+hdel",
    "+hlen",
    "+hgetall",
    "+zadd",
    "+zrem",
    "+zcount",
    "+zscore",
    "+zrangebyscore",
    "+zrevrangebyscore",
    "+rpush",
    "+ltrim",
    "+lrange",
    "+blmpop",
    "+watch",
    "+multi",
    "+exec",
];

/// What providers say that their servers refuse, in lower case; a word with a bar is a subcommand.
const REFUSED: &[(&str, &[&str])] = &[
    (
        "Amazon ElastiCache",
        &[
            "acl|setuser",
            "acl|load",
            "acl|save",
            "acl|deluser",
            "bgrewriteaof",
            "bgsave",
            "cluster|addslot",
            "config",
            "debug",
            "migrate",
            "psync",
            "replicaof",
            "save",
            "slaveof",
            "shutdown",
            "sync",
        ],
    ),
    (
        "Google Memorystore",
        &[
            "acl",
            "bgrewriteaof",
            "bgsave",
            "config",
            "debug",
            "migrate",
            "module",
            "psync",
            "replicaof",
            "save",
            "shutdown",
            "slaveof",
            "sync",
        ],
    ),
    (
        "Azure Cache for Redis",
        &[
            "acl",
            "bgrewriteaof",
            "bgsave",
            "config",
            "debug",
            "migrate",
            "psync",
            "replicaof",
            "save",
            "shutdown",
            "slaveof",
            "sync",
            "cluster",
        ],
    ),
    (
        "Oracle Cloud Cache",
        &[
            "acl",
            "bgrewriteaof",
            "bgsave",
            "cluster",
            "config",
            "debug",
            "failover",
            "lastsave",
            "migrate",
            "module",
            "monitor",
            "psync",
            "replicaof",
            "save",
            "shutdown",
            "slaveof",
            "sync",
        ],
    ),
    (
        "Aiven",
        &[
            "acl",
            "bgrewriteaof",
            "bgsave",
            "config",
            "debug",
            "failover",
            "migrate",
            "module",
            "monitor",
            "psync",
            "replicaof",
            "save",
            "shutdown",
            "slaveof",
            "sync",
        ],
    ),
];

#[test]
fn no_right_is_one_that_a_provider_refuses() {
    for (provider, refused) in REFUSED {
        for right in RIGHTS.iter().filter_map(|right| right.strip_prefix('+')) {
            assert!(!refused.contains(&right), "{provider} refuses {right}");
        }
    }
}

#[tokio::test]
async fn a_user_with_the_documented_rights_is_served_everything() {
    let server = RedisServer::start(Module::Absent);
    let user = ["ACL", "SETUSER", "gateway", "reset", "on", ">secret"];
    server.command(&[&user[..], RIGHTS].concat());
    let url = format!("redis://gateway:secret@127.0.0.1:{}", server.port);
    let store = open_redis(&url, ModuleUse::Unused).await.unwrap();
    let worker = make::worker("w:1");
    let key = make::key("s");
    store.beat(&make::beat("w:1", 600_000)).await.unwrap();
    store.create(&key, &make::create("s")).await.unwrap();
    store.bind(&key, &make::bind("t", "i", "u")).await.unwrap();
    store.route(&key, &make::route()).await.unwrap();
    store.enter(&key, &enter("w:1", "t1")).await.unwrap();
    store.enter(&key, &enter("w:1", "t2")).await.unwrap();
    store.leave(&key, &leave("t1")).await.unwrap();
    let told = store
        .wait_for_events(&worker, Duration::from_secs(30))
        .await
        .unwrap();
    assert_eq!(told.len(), 1);
    store.leave(&key, &leave("t2")).await.unwrap();
    store.explain(&key).await.unwrap();
    store.blockers(&key).await.unwrap();
    store.workers().await.unwrap();
    store
        .rate("r", 1, mooring_session::time::Millis::new(1_000), 1)
        .await
        .unwrap();
    store.put_sealed("a", b"x").await.unwrap();
    let names = ["a".to_owned(), "b".to_owned()];
    assert_eq!(
        store.get_sealed(&names).await.unwrap(),
        [Some(b"x".to_vec()), None]
    );
    assert!(store.delete_sealed(&names).await.unwrap());
    store.refresh_desired_state().await.unwrap();
    let changes: [DesiredChange; 0] = [];
    store.change_desired_state(None, &changes).await.unwrap();
    eventually("the indexes are complete", async || {
        store.list(&SessionQuery::default()).await.unwrap().complete
    })
    .await;
    store.end(&key, &make::end()).await.unwrap();
    store.reap(&worker, Family::Mcp, 10).await.unwrap();
    store.gone(&worker).await.unwrap();
}

#[tokio::test]
async fn a_user_without_a_right_is_refused_at_the_start_with_its_name() {
    let server = RedisServer::start(Module::Absent);
    for missing in ["+zadd", "+pexpireat", "+hgetall", "+ltrim"] {
        let rights: Vec<&str> = RIGHTS
            .iter()
            .copied()
            .filter(|right| *right != missing)
            .collect();
        let user = ["ACL", "SETUSER", "gateway", "reset", "on", ">secret"];
        server.command(&[&user[..], &rights].concat());
        let url = format!("redis://gateway:secret@127.0.0.1:{}", server.port);
        let refused = open_redis(&url, ModuleUse::Unused)
            .await
            .unwrap_err()
            .to_string();
        let name = missing.trim_start_matches('+').to_uppercase();
        assert!(refused.contains(&format!("({name})")), "{refused}");
    }
}
