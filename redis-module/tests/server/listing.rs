//! LIST: filters, order, walks, patterns, and what a user may see; and the figures that come from the same index.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context as _;
use mooring_tests::redis::Redis;
use mooring_tests::wait;

use super::resp::{Connection, Value};

/// Generous: the machine is shared, and the index follows ten times a second.
const SOON: Duration = Duration::from_secs(20);

/// The keys on one page.
fn keys(page: &Value) -> Vec<String> {
    let Value::Array(sessions) = page.field("sessions") else {
        panic!("sessions are an array: {page}");
    };
    sessions
        .iter()
        .map(|session| session.field("key").to_string())
        .collect()
}

/// The keys on all pages: beside other load one call may end before the last of them.
fn listed(c: &mut Connection, options: &str) -> anyhow::Result<Vec<String>> {
    let command = format!("SESSION.LIST {options}");
    let mut page = c.run(command.trim_end())?;
    let mut listed = keys(&page);
    loop {
        assert_eq!(page.field("complete").integer(), 1, "{options}");
        let cursor = page.field("cursor").to_string();
        if cursor == "0" {
            return Ok(listed);
        }
        page = c.run(&format!("{} CURSOR {cursor}", command.trim_end()))?;
        listed.extend(keys(&page));
    }
}

fn create(c: &mut Connection, key: &str, principal: &str, ttl_ms: u32) -> anyhow::Result<()> {
    let created = c.run(&format!("SESSION.CREATE {key} id {principal} TTL {ttl_ms}"))?;
    assert_eq!(created.field("created").integer(), 1, "{key}");
    Ok(())
}

fn bind(c: &mut Connection, key: &str, principal: &str, rest: &str) -> anyhow::Result<()> {
    let bound = c.run(&format!("SESSION.BIND {key} {principal} {rest}"))?;
    assert_eq!(bound.field("won").integer(), 1, "{key}");
    Ok(())
}

/// Four sessions, created in this order, of which the last is over.
fn four(c: &mut Connection) -> anyhow::Result<()> {
    for (key, principal) in [
        ("mcpgw:a:1", "zoe"),
        ("mcpgw:a:2", "zoe"),
        ("mcpgw:b:1", "eve"),
        ("mcpgw:b:2", "eve"),
    ] {
        create(c, key, principal, 900_000)?;
    }
    let tail = "LEASE 60000 INSTANCES 1";
    bind(
        c,
        "mcpgw:a:1",
        "zoe",
        &format!("tools w:1 t1 {tail} one UPSTREAM u"),
    )?;
    bind(
        c,
        "mcpgw:a:1",
        "zoe",
        &format!("files w:1 t2 {tail} two UPSTREAM u"),
    )?;
    bind(
        c,
        "mcpgw:b:1",
        "eve",
        &format!("tools v:1 t3 {tail} two UPSTREAM u OWNED"),
    )?;
    bind(
        c,
        "mcpgw:b:2",
        "eve",
        &format!("tools v:1 t4 {tail} one UPSTREAM u"),
    )?;
    c.run("SESSION.END mcpgw:b:2 eve")?;
    Ok(())
}

#[tokio::test]
async fn filters_hold_together_and_places_of_one_binding() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    four(&mut c)?;
    for (options, expected) in [
        ("", &["a:1", "a:2", "b:1", "b:2"][..]),
        ("PRINCIPAL zoe", &["a:1", "a:2"]),
        ("PRINCIPAL nobody", &[]),
        ("SERVER tools", &["a:1", "b:1", "b:2"]),
        ("INSTANCE two", &["a:1", "b:1"]),
        ("SERVER tools INSTANCE one", &["a:1", "b:2"]),
        ("SERVER files INSTANCE one", &[]),
        ("OWNER v:1", &["b:1"]),
        ("OWNER w:1", &[]),
        ("DRIVER v:1", &["b:1", "b:2"]),
        ("DRIVER v:1 INSTANCE two", &["b:1"]),
        ("DRIVER nobody:1", &[]),
        ("STATE active", &["a:1", "a:2", "b:1"]),
        ("STATE ENDED", &["b:2"]),
        ("STATE expired", &[]),
        ("principal eve state active server tools", &["b:1"]),
        ("MATCH mcpgw:[b-z]:?", &["b:1", "b:2"]),
        ("MATCH *:[^2]", &["a:1", "b:1"]),
        ("MATCH mcpgw:\\*", &[]),
        ("TEXT ZO", &["a:1", "a:2"]),
        ("TEXT fil", &["a:1"]),
        ("TEXT v:1 STATE active", &["b:1"]),
        ("TEXT mcpgw", &[]),
    ] {
        let expected: BTreeSet<String> =
            expected.iter().map(|key| format!("mcpgw:{key}")).collect();
        let listed = listed(&mut c, options)?;
        assert_eq!(listed.len(), expected.len(), "{options}");
        assert_eq!(
            listed.into_iter().collect::<BTreeSet<_>>(),
            expected,
            "{options}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_session_is_told_of_as_get_tells() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    four(&mut c)?;
    let page = c.run("SESSION.LIST MATCH mcpgw:a:1")?;
    let Value::Array(sessions) = page.field("sessions") else {
        panic!("sessions are an array");
    };
    let Value::Map(mut pairs) = sessions[0].clone() else {
        panic!("a session is a map");
    };
    assert_eq!(pairs.remove(0).1.to_string(), "mcpgw:a:1");
    assert_eq!(Value::Map(pairs), c.run("SESSION.GET mcpgw:a:1")?);
    Ok(())
}

#[tokio::test]
async fn bad_options_are_refused() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    for (options, message) in [
        (
            "STATE dead".to_owned(),
            "ERR invalid STATE: active, expired or ended is expected",
        ),
        (
            "ORDER up".to_owned(),
            "ERR invalid ORDER: newest or oldest is expected",
        ),
        (
            "COUNT 0".to_owned(),
            "ERR invalid COUNT: must be an integer from 1 to 1000",
        ),
        (
            "COUNT 1001".to_owned(),
            "ERR invalid COUNT: must be an integer from 1 to 1000",
        ),
        (
            "CURSOR x".to_owned(),
            "ERR invalid cursor: 0, or what the page before answered, is expected",
        ),
        (
            "CURSOR 1-x".to_owned(),
            "ERR invalid cursor: must be an integer from 0 to 4294967295",
        ),
        (
            format!("MATCH {}", "x".repeat(257)),
            "ERR invalid pattern: longer than 256 bytes",
        ),
        (
            "DIGEST abc".to_owned(),
            "ERR invalid digest: 4 to 16 hexadecimal digits in lower case are expected",
        ),
        (
            format!("TEXT {}", "x".repeat(513)),
            "ERR invalid text: longer than 512 bytes",
        ),
        (
            "PRINCIPAL *".to_owned(),
            "ERR invalid principal: * is not a principal",
        ),
        ("SERVER".to_owned(), "ERR syntax error near 'SERVER'"),
        (
            "COUNT 1 COUNT 1".to_owned(),
            "ERR syntax error near 'COUNT'",
        ),
    ] {
        assert_eq!(c.show(&format!("SESSION.LIST {options}"))?, message);
    }
    Ok(())
}

#[tokio::test]
async fn a_walk_finds_each_of_two_thousand_once_and_in_order() -> anyhow::Result<()> {
    const SESSIONS: usize = 2_000;
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    let creates: Vec<String> = (0..SESSIONS)
        .map(|n| format!("SESSION.CREATE mcpgw:session_affinity:{n} id zoe TTL 900000"))
        .collect();
    c.run_all(&creates)?;
    let expected: BTreeSet<String> = (0..SESSIONS)
        .map(|n| format!("mcpgw:session_affinity:{n}"))
        .collect();
    for (order, is_in_order) in [
        ("newest", (|a, b| a >= b) as fn(i64, i64) -> bool),
        ("oldest", |a, b| a <= b),
    ] {
        let mut seen = BTreeSet::new();
        let mut cursor = "0".to_owned();
        let mut last_created_at = None;
        loop {
            let page = c.run(&format!(
                "SESSION.LIST COUNT 137 CURSOR {cursor} ORDER {order}"
            ))?;
            let Value::Array(sessions) = page.field("sessions") else {
                panic!("sessions are an array");
            };
            assert!(sessions.len() <= 137);
            for session in sessions {
                assert!(
                    seen.insert(session.field("key").to_string()),
                    "twice: {session}"
                );
                let created_at = session.field("created_at").integer();
                assert!(
                    last_created_at.is_none_or(|last| is_in_order(last, created_at)),
                    "{order}"
                );
                last_created_at = Some(created_at);
            }
            cursor = page.field("cursor").to_string();
            if cursor == "0" {
                break;
            }
            assert!(!sessions.is_empty(), "each page of this walk has something");
        }
        assert_eq!(seen, expected, "{order}");
    }
    Ok(())
}

#[tokio::test]
async fn a_user_sees_the_keys_that_it_may_read() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    four(&mut c)?;
    c.run("ACL SETUSER reader on >secret ~mcpgw:a:* +session.list +multi +exec +eval")?;
    c.run("ACL SETUSER writer on >secret %W~* +session.list")?;
    let mut reader = Connection::open(&redis)?;
    reader.run("AUTH reader secret")?;
    assert_eq!(
        listed(&mut reader, "ORDER oldest")?,
        ["mcpgw:a:1", "mcpgw:a:2"]
    );
    let in_transaction = reader.transaction(&[b"SESSION.LIST", b"ORDER", b"oldest"])?;
    let Value::Array(replies) = in_transaction else {
        panic!("EXEC answers with an array");
    };
    assert_eq!(keys(&replies[0]), ["mcpgw:a:1", "mcpgw:a:2"]);
    let script = b"return #redis.call('SESSION.LIST')[8]";
    assert_eq!(reader.send(&[b"EVAL", script, b"0"])?.integer(), 2);
    let mut writer = Connection::open(&redis)?;
    writer.run("AUTH writer secret")?;
    assert_eq!(listed(&mut writer, "")?, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn only_what_is_a_record_now_is_listed() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    four(&mut c)?;
    c.run("DEL mcpgw:a:1")?;
    c.run("SET mcpgw:a:2 text")?;
    c.run("RENAME mcpgw:b:1 mcpgw:c:1")?;
    c.run("HSET mcpgw:b:2 p zoe")?;
    assert_eq!(listed(&mut c, "ORDER oldest")?, ["mcpgw:c:1", "mcpgw:b:2"]);
    assert_eq!(listed(&mut c, "PRINCIPAL zoe")?, ["mcpgw:b:2"]);
    // Neither what stands under other prefixes nor what stands in other databases.
    c.run("COPY mcpgw:b:2 other:1")?;
    assert_eq!(listed(&mut c, "ORDER oldest")?, ["mcpgw:c:1", "mcpgw:b:2"]);
    c.run("SELECT 3")?;
    assert_eq!(listed(&mut c, "")?, [""; 0]);
    create(&mut c, "mcpgw:d:1", "zoe", 900_000)?;
    assert_eq!(listed(&mut c, "")?, ["mcpgw:d:1"]);
    Ok(())
}

#[tokio::test]
async fn figures_and_workers_follow_the_sessions() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    for worker in ["v:1", "w:1"] {
        c.run(&format!("WORKER.BEAT {worker} 127.0.0.1:1 TTL 600000"))?;
    }
    four(&mut c)?;
    create(&mut c, "mcpgw:short", "zoe", 1_000)?;
    bind(
        &mut c,
        "mcpgw:short",
        "zoe",
        "tools w:1 t LEASE 60000 INSTANCES 1 one UPSTREAM u",
    )?;
    let figures = |c: &mut Connection| -> anyhow::Result<[i64; 5]> {
        let stats = c.run("SESSION.STATS")?;
        let names = [
            "sessions_active",
            "sessions_expired",
            "sessions_ended",
            "bindings_active",
            "index_ready",
        ];
        Ok(names.map(|name| stats.field(name).integer()))
    };
    let bindings = |c: &mut Connection| -> anyhow::Result<Vec<i64>> {
        let Value::Array(workers) = c.run("WORKER.LIST")? else {
            panic!("workers are an array");
        };
        Ok(workers
            .iter()
            .map(|worker| worker.field("bindings").integer())
            .collect())
    };
    assert_eq!(figures(&mut c)?, [4, 0, 1, 4, 1]);
    assert_eq!(bindings(&mut c)?, [1, 3]);
    wait::until_true("a session to count as expired", SOON, async || {
        Ok(figures(&mut c)? == [3, 1, 1, 3, 1])
    })
    .await?;
    assert_eq!(bindings(&mut c)?, [1, 2]);
    assert_eq!(listed(&mut c, "STATE expired")?, ["mcpgw:short"]);
    c.run("FLUSHALL")?;
    assert_eq!(figures(&mut c)?, [0, 0, 0, 0, 1]);
    assert_eq!(bindings(&mut c)?, [0, 0]);
    Ok(())
}

/// The digest of the session, as EXPLAIN shows it.
fn explained_digest(c: &mut Connection, key: &str) -> anyhow::Result<String> {
    let lines = c.run(&format!("SESSION.EXPLAIN {key}"))?.to_string();
    let is_digest = |word: &&str| word.len() == 16 && word.bytes().all(|b| b.is_ascii_hexdigit());
    let mut words = lines.split(|c: char| !c.is_ascii_alphanumeric());
    Ok(words.find(is_digest).context("a digest")?.to_owned())
}

#[tokio::test]
async fn a_session_is_found_by_its_digest_whatever_its_kind() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    let keys = [
        "mcpgw:session_affinity:abc",
        "mcpgw:session_affinity:def",
        "mcpgw:code_exec_session:box:zoe:python",
        "mcpgw:agent_session:claude:zoe:p1",
    ];
    for key in keys {
        create(&mut c, key, "zoe", 900_000)?;
    }
    for key in keys {
        let digest = explained_digest(&mut c, key)?;
        for digits in [4, 7, 16] {
            let found = listed(&mut c, &format!("DIGEST {}", &digest[..digits]))?;
            assert_eq!(found, [key], "{digest}");
        }
        assert_eq!(listed(&mut c, &format!("TEXT {}", &digest[..6]))?, [key]);
        // The filters hold together.
        assert_eq!(
            listed(&mut c, &format!("DIGEST {digest} PRINCIPAL eve"))?,
            [""; 0]
        );
    }
    assert_eq!(listed(&mut c, "TEXT abc")?, [""; 0], "an id is a secret");
    assert_eq!(listed(&mut c, "TEXT box:z")?, [keys[2]]);
    let digest = explained_digest(&mut c, keys[0])?;
    c.run(&format!("RENAME {} mcpgw:session_affinity:other", keys[0]))?;
    assert_eq!(listed(&mut c, &format!("DIGEST {digest}"))?, [""; 0]);
    Ok(())
}

/// The sessions and bindings that COUNT shows: `prefix active expired ended`, `server instance bindings`, and `worker alive
/// bindings`.
fn counted(reply: &Value) -> BTreeSet<String> {
    let mut counted = BTreeSet::new();
    for (list, fields) in [
        ("groups", &["prefix", "active", "expired", "ended"][..]),
        ("instances", &["server", "instance", "bindings"]),
        ("owners", &["worker", "alive", "bindings"]),
    ] {
        let Value::Array(lines) = reply.field(list) else {
            panic!("{list} is an array: {reply}");
        };
        counted.extend(lines.iter().map(|line| {
            let fields = fields.iter().map(|field| line.field(field).to_string());
            fields.collect::<Vec<_>>().join(" ")
        }));
    }
    counted
}

#[tokio::test]
async fn sessions_are_counted_by_kind_instance_and_owner() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    c.run("WORKER.BEAT w:1 127.0.0.1:1 TTL 600000")?;
    for (key, ttl_ms) in [
        ("mcpgw:session_affinity:1", 900_000),
        ("mcpgw:session_affinity:2", 900_000),
        ("mcpgw:session_affinity:3", 1_000),
        ("mcpgw:code_exec_session:box:zoe:python", 900_000),
        ("mcpgw:code_exec_session:crate:zoe:python", 900_000),
        ("mcpgw:else:1", 900_000),
    ] {
        create(&mut c, key, "zoe", ttl_ms)?;
    }
    for (n, rest) in [
        (1, "INSTANCES 1 one UPSTREAM u"),
        (2, "INSTANCES 1 one UPSTREAM u OWNED"),
        (3, "INSTANCES 1 two UPSTREAM u OWNED"),
    ] {
        let key = format!("mcpgw:session_affinity:{n}");
        bind(
            &mut c,
            &key,
            "zoe",
            &format!("tools w:1 t{n} LEASE 60000 {rest}"),
        )?;
    }
    let expected = |lines: &[&str]| -> BTreeSet<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    };
    let of_clients = ["mcpgw:session_affinity: 2 1 0", "tools one 2", "w:1 1 1"];
    wait::until_true("the expiry of a session", SOON, async || {
        let counted = counted(&c.run("SESSION.COUNT PREFIX mcpgw:session_affinity:")?);
        Ok(counted == expected(&of_clients))
    })
    .await?;
    let all = c.run("SESSION.COUNT")?;
    assert_eq!(all.field("complete").integer(), 1);
    let others = [
        "mcpgw: 1 0 0",
        "mcpgw:code_exec_session:box: 1 0 0",
        "mcpgw:code_exec_session:crate: 1 0 0",
    ];
    assert_eq!(
        counted(&all),
        expected(&[&of_clients[..], &others].concat())
    );
    c.run("SESSION.END mcpgw:session_affinity:2 zoe")?;
    c.run("DEL mcpgw:session_affinity:3")?;
    assert_eq!(
        counted(&c.run("SESSION.COUNT PREFIX mcpgw:s")?),
        expected(&["mcpgw:session_affinity: 1 0 1", "tools one 1"])
    );
    assert_eq!(
        counted(&c.run("SESSION.COUNT PREFIX other:")?),
        expected(&[])
    );
    // What a caller may not read is not counted.
    c.run("ACL SETUSER reader on >secret ~mcpgw:code_exec_session:box:* +session.count")?;
    let mut reader = Connection::open_resp3(&redis)?;
    reader.run("AUTH reader secret")?;
    assert_eq!(
        counted(&reader.run("SESSION.COUNT")?),
        expected(&["mcpgw:code_exec_session:box: 1 0 0"])
    );
    Ok(())
}
