//! One libmooring.so in every server that the package registries offer: Debian's Redis, and those that
//! tests/tools/servers.sh pins. Each gets the whole command set, replication, restarts, a reload and the events.
//!
//! A server that is pinned and cannot be started fails its test. docs/compatibility.md lists exactly these servers,
//! and what it says of each is what the server answers here.

mod every_command;

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use mooring_tests::redis::{Module, Redis};
use mooring_tests::{paths, wait};

use super::delegations;
use super::resp::{Connection, Value};

const CAUGHT_UP_WITHIN: Duration = Duration::from_secs(20);

/// Debian 12's own, which all other tests use.
const OF_DEBIAN: &str = "redis-7.0.15";

/// A defect of the server, valkey-io/valkey#4024: where any module listens to keyspace events, a client whose command
/// changes a key of another database finds itself there.
const LEAVES_CLIENTS_ELSEWHERE: [&str; 1] = ["valkey-8.1.8"];

macro_rules! servers {
    ($($test:ident: $name:expr),* $(,)?) => {
        const SERVERS: &[&str] = &[$($name),*];
        $(
            #[tokio::test]
            async fn $test() -> anyhow::Result<()> {
                pass($name).await.context($name)
            }
        )*
    };
}

servers! {
    redis_7_0: OF_DEBIAN,
    redis_7_2: "redis-7.2.4",
    redis_7_4: "redis-7.4.1",
    redis_8_0: "redis-8.0.2",
    redis_8_2: "redis-8.2.3",
    redis_8_6: "redis-8.6.2",
    valkey_8_0: "valkey-8.0.1",
    valkey_8_1: "valkey-8.1.8",
    valkey_9_1: "valkey-9.1.2",
}

#[test]
fn the_page_and_these_tests_have_every_pinned_server() -> anyhow::Result<()> {
    let script = paths::workspace().join("tests/tools/servers.sh");
    let output = Command::new(script).arg("list").output()?;
    let pinned = String::from_utf8(output.stdout)?;
    let pinned: BTreeSet<&str> = pinned.lines().chain([OF_DEBIAN]).collect();
    assert_eq!(pinned, SERVERS.iter().copied().collect());
    let page = page()?;
    let listed: BTreeSet<&str> = rows(&page).map(|row| row[0]).collect();
    assert_eq!(pinned, listed);
    Ok(())
}

fn page() -> anyhow::Result<String> {
    let path = paths::workspace().join("docs/compatibility.md");
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// The cells of the page's first table that name a server.
fn rows(page: &str) -> impl Iterator<Item = Vec<&str>> {
    page.lines()
        .filter(|line| line.starts_with("| redis-") || line.starts_with("| valkey-"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
}

/// The program of a server.
pub(super) fn program(name: &str) -> anyhow::Result<String> {
    if name == OF_DEBIAN {
        return Ok("redis-server".to_owned());
    }
    let path = paths::workspace().join(format!(".tools/servers/{name}/server"));
    ensure!(
        path.exists(),
        "{} is missing: run tests/tools/servers.sh",
        path.display()
    );
    Ok(path.display().to_string())
}

async fn pass(name: &str) -> anyhow::Result<()> {
    let program = program(name)?;
    let program = [program.as_str()];
    let arguments = [
        "--hash-max-listpack-value",
        "512",
        "--notify-keyspace-events",
        "Ed",
        "--appendfsync",
        "always",
        "--repl-diskless-sync-delay",
        "0",
    ];
    let mut redis = Redis::start_by(&program, Module::Loaded, &arguments).await?;
    loads_in_silence(&mut redis)?;
    let mut c = Connection::open_resp3(&redis)?;
    is_what_it_is_called(&mut c, name)?;
    tells_of_its_commands(&mut c)?;
    has_categories(&redis, &mut c, name)?;
    every_command::run(&redis, &mut c).await?;
    delegations::ends::ends_with_the_connection(&redis, &mut c).await?;
    follows_plain_commands(&mut c, name).await?;
    comes_back_after_a_kill(&mut redis).await?;
    unloads_and_loads(&redis).await?;
    replicates(&program, &redis).await
}

/// Whatever the server says about a module at its start would be a warning here.
fn loads_in_silence(redis: &mut Redis) -> anyhow::Result<()> {
    let log = redis.process().log_text();
    ensure!(
        log.contains("Module 'mooring' loaded from"),
        "not loaded: {log}"
    );
    let ordinary = [
        "just started",
        "Configuration loaded",
        "Server initialized",
        "overcommit_memory",
        "require authentication",
        "Legacy Redis Module",
        "Module 'mooring' loaded from",
        "Redis is starting",
        "Static Module 'lua'",
        // A server that is built without TLS says so once when it tells a module of a client.
        "Missing implement of connection type tls",
    ];
    let is_warning = |line: &&str| line.contains(" # ") || line.contains("odule");
    for line in log.lines().filter(is_warning) {
        ensure!(ordinary.iter().any(|known| line.contains(known)), "{line}");
    }
    Ok(())
}

fn is_what_it_is_called(c: &mut Connection, name: &str) -> anyhow::Result<()> {
    let (kind, version) = name.split_once('-').context("a name and a version")?;
    let info = c.show("INFO server")?;
    let line = format!("{kind}_version:{version}\\r\\n");
    ensure!(info.contains(&line), "{line} in {info}");
    Ok(())
}

/// The names of the module's commands, as this server has them.
fn commands(c: &mut Connection) -> anyhow::Result<BTreeSet<String>> {
    let Value::Array(all) = c.run("COMMAND LIST FILTERBY MODULE mooring")? else {
        panic!("COMMAND LIST is an array");
    };
    Ok(all.iter().map(Value::to_string).collect())
}

fn tells_of_its_commands(c: &mut Connection) -> anyhow::Result<()> {
    for name in commands(c)? {
        let docs = c.run(&format!("COMMAND DOCS {name}"))?;
        let docs = docs.field(&name);
        for field in ["summary", "since", "complexity", "module"] {
            ensure!(!docs.field(field).to_string().is_empty(), "{name}: {field}");
        }
        let info = c.show(&format!("COMMAND INFO {name}"))?;
        ensure!(info.starts_with(&format!("[[{name}, ")), "{info}");
    }
    assert_eq!(
        c.show("COMMAND GETKEYS SESSION.ROUTE k p s w")?,
        "[k]".to_owned()
    );
    Ok(())
}

/// Which ACL categories a command is in differs most between servers; the page says it.
fn has_categories(redis: &Redis, c: &mut Connection, name: &str) -> anyhow::Result<()> {
    let Value::Array(infos) = c.run("COMMAND INFO session.route")? else {
        panic!("COMMAND INFO is an array");
    };
    let Value::Array(info) = &infos[0] else {
        panic!("session.route is unknown");
    };
    let (shown, rule) = match c.show("ACL CAT")? {
        known if known.contains("session") => ("core and own", "+@session"),
        _ if info[6].to_string() != "[]" => ("core", "+@fast +@write -@dangerous"),
        _ => ("none", "+session.route"),
    };
    let page = page()?;
    let row = rows(&page).find(|row| row[0] == name);
    let row = row.context("the page has no such row")?;
    ensure!(
        row[2] == shown,
        "the page says {}, the server {shown}",
        row[2]
    );
    c.run(&format!("ACL SETUSER limited on nopass ~mcpgw:* {rule}"))?;
    let mut limited = Connection::open(redis)?;
    limited.run("AUTH limited any")?;
    let refused = |shown: String| shown.starts_with("NOPERM");
    let route = "SESSION.ROUTE mcpgw:none zoe tools w1:b";
    assert!(limited.show(route)?.starts_with("NOSESSION"));
    assert!(refused(
        limited.show("SESSION.ROUTE other:none zoe tools w1:b")?
    ));
    assert!(refused(limited.show("WORKER.LIST")?), "{rule}");
    Ok(())
}

/// Waits until LIST is whole and names exactly `keys`.
async fn lists(c: &mut Connection, what: &str, keys: &[&str]) -> anyhow::Result<()> {
    let mut last = String::new();
    // See LEAVES_CLIENTS_ELSEWHERE: a reload does it too.
    c.run("SELECT 0")?;
    wait::until_true(what, CAUGHT_UP_WITHIN, async || {
        let listed = c.run("SESSION.LIST COUNT 1000")?;
        let Value::Array(sessions) = listed.field("sessions") else {
            panic!("sessions is an array: {listed}");
        };
        let mut found: Vec<String> = sessions
            .iter()
            .map(|session| session.field("key").to_string())
            .collect();
        found.sort();
        last = format!("{found:?} where the server has {}", c.show("KEYS *")?);
        Ok(listed.field("complete").integer() == 1 && found == keys)
    })
    .await
    .with_context(|| last)
}

/// The index hears what is done to records by commands that know nothing of them.
async fn follows_plain_commands(c: &mut Connection, name: &str) -> anyhow::Result<()> {
    // The rate limit's key lives for a moment only, which what is compared below must not depend on.
    c.run("UNLINK mcpgw:rate")?;
    for n in 0..4 {
        c.run(&format!("SESSION.CREATE mcpgw:{n} s{n} zoe TTL 900000"))?;
        c.run(&format!(
            "SESSION.BIND mcpgw:{n} zoe tools w1:b t LEASE 60000 INSTANCES 1 a UPSTREAM u"
        ))?;
    }
    assert_eq!(c.show("RENAME mcpgw:0 mcpgw:9")?, "OK");
    for command in ["DEL mcpgw:1", "COPY mcpgw:2 mcpgw:8", "MOVE mcpgw:3 1"] {
        assert_eq!(c.show(command)?, "1", "{command}");
    }
    let is_elsewhere = c.show("CLIENT INFO")?.contains(" db=1 ");
    assert_eq!(is_elsewhere, LEAVES_CLIENTS_ELSEWHERE.contains(&name));
    lists(
        c,
        "what RENAME, DEL, COPY and MOVE left",
        &["mcpgw:2", "mcpgw:8", "mcpgw:9"],
    )
    .await
}

const LEFT: [&str; 3] = ["mcpgw:2", "mcpgw:8", "mcpgw:9"];

async fn comes_back_after_a_kill(redis: &mut Redis) -> anyhow::Result<()> {
    let mut c = Connection::open_resp3(redis)?;
    let digest = c.show("DEBUG DIGEST")?;
    assert_eq!(c.show("DEBUG RELOAD")?, "OK");
    assert_eq!(c.show("DEBUG DIGEST")?, digest, "after a snapshot");
    lists(&mut c, "the index after a snapshot", &LEFT).await?;
    c.run("BGREWRITEAOF")?;
    wait::until_true("the rewrite", CAUGHT_UP_WITHIN, async || {
        let info = c.show("INFO persistence")?;
        Ok(info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0"))
    })
    .await?;
    c.run("SESSION.TOUCH mcpgw:2 zoe TTL 800000")?;
    let digest = c.show("DEBUG DIGEST")?;
    redis.process().kill_now()?;
    redis.restart().await?;
    let mut c = Connection::open_resp3(redis)?;
    assert_eq!(c.show("DEBUG DIGEST")?, digest, "after a kill");
    lists(&mut c, "the index after a kill", &LEFT).await
}

async fn unloads_and_loads(redis: &Redis) -> anyhow::Result<()> {
    let mut c = Connection::open_resp3(redis)?;
    let path = paths::redis_module()?.display().to_string();
    for _ in 0..2 {
        // The server refuses while the module has a timer set, which it then has not.
        assert_eq!(c.show("CONFIG SET mooring.quiesce yes")?, "OK");
        wait::until_true("the module to be let go", CAUGHT_UP_WITHIN, async || {
            Ok(c.show("MODULE UNLOAD mooring")? == "OK")
        })
        .await?;
        assert_eq!(c.show(&format!("MODULE LOAD {path}"))?, "OK");
        lists(&mut c, "the index after a reload", &LEFT).await?;
    }
    Ok(())
}

/// From Debian's Redis to this server, and from this server to one of its kind without the module.
async fn replicates(program: &[&str], redis: &Redis) -> anyhow::Result<()> {
    let older = Redis::start().await?;
    let mut first = Connection::open(&older)?;
    first.run("SESSION.CREATE mcpgw:2 s2 zoe TTL 900000")?;
    for (primary, module) in [(&older, Module::Loaded), (redis, Module::Absent)] {
        let of = format!("127.0.0.1 {}", primary.port());
        let replica = Redis::start_by(program, module, &["--replicaof", &of]).await?;
        let mut here = Connection::open_resp3(primary)?;
        let mut there = Connection::open_resp3(&replica)?;
        wait::until_true("the link to the primary", CAUGHT_UP_WITHIN, async || {
            Ok(there
                .show("INFO replication")?
                .contains("master_link_status:up"))
        })
        .await?;
        here.run("SESSION.CREATE mcpgw:new new zoe TTL 900000 HASH h")?;
        here.run("SESSION.TOUCH mcpgw:2 zoe LABEL a b")?;
        here.run("SESSION.BIND mcpgw:2 zoe more w1:b t LEASE 60000 INSTANCES 1 a UPSTREAM u")?;
        assert_eq!(here.show("WAIT 1 10000")?, "1");
        assert_eq!(there.show("DEBUG DIGEST")?, here.show("DEBUG DIGEST")?);
        if module == Module::Loaded {
            there.run("REPLICAOF NO ONE")?;
            let keys = ["mcpgw:2", "mcpgw:new"];
            lists(&mut there, "the index after a promotion", &keys).await?;
        }
    }
    Ok(())
}
