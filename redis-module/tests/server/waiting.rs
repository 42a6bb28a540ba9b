//! WORKER.WAIT: what it brings, and every way in which a wait can end.

use std::time::Duration;

use mooring_tests::redis::{Module, Redis};
use mooring_tests::wait;

use super::resp::{Connection, Value};

const KEY: &str = "mcpgw:session_affinity:s1";
const SOON: Duration = Duration::from_secs(20);

async fn server() -> anyhow::Result<(Redis, Connection)> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    Ok((redis, c))
}

fn bind(worker: &str, token: &str, lease: u64) -> String {
    format!("SESSION.BIND {KEY} zoe tools {worker} {token} LEASE {lease} INSTANCES 2 one two")
}

fn route(worker: &str) -> String {
    format!("SESSION.ROUTE {KEY} zoe tools {worker}")
}

const SETTLED: &str =
    "[{event: settled, key: mcpgw:session_affinity:s1, server: tools, ticket: null, turn: null}]";

/// Sends a WAIT and returns once the server has it on its books.
async fn begin(waiting: &mut Connection, c: &mut Connection, worker: &str) -> anyhow::Result<()> {
    let before = blocked(c)?;
    waiting.say(&[b"WORKER.WAIT", worker.as_bytes(), b"TIMEOUT", b"600000"])?;
    until_blocked(c, before + 1).await
}

fn blocked(c: &mut Connection) -> anyhow::Result<i64> {
    Ok(c.run("SESSION.STATS")?.field("workers_waiting").integer())
}

async fn until_blocked(c: &mut Connection, clients: i64) -> anyhow::Result<()> {
    wait::until_true("waiting clients", SOON, async || Ok(blocked(c)? == clients)).await
}

/// The id of the client that is in WORKER.WAIT.
fn waiting_client(c: &mut Connection) -> anyhow::Result<String> {
    let clients = c.show("CLIENT LIST")?;
    let line = clients
        .split("\\n")
        .find(|line| line.contains("cmd=worker.wait") && line.contains("flags=b"))
        .expect("a client that waits");
    let id = line.split(' ').find_map(|field| field.strip_prefix("id="));
    Ok(id.expect("an id").to_owned())
}

#[tokio::test]
async fn a_time_out_is_an_empty_answer() -> anyhow::Result<()> {
    let (redis, mut c) = server().await?;
    assert_eq!(c.show("WORKER.WAIT w:1 TIMEOUT 1")?, "[]");
    assert_eq!(c.show("WORKER.WAIT w:1 TIMEOUT 100")?, "[]");
    let mut resp2 = Connection::open(&redis)?;
    assert_eq!(resp2.show("WORKER.WAIT w:1 TIMEOUT 20")?, "[]");
    assert_eq!(blocked(&mut c)?, 0);
    for (command, expected) in [
        (
            "WORKER.WAIT w:1 TIMEOUT 0",
            "ERR invalid TIMEOUT: must be an integer from 1 to 600000",
        ),
        (
            "WORKER.WAIT w:1 TIMEOUT 600001",
            "ERR invalid TIMEOUT: must be an integer from 1 to 600000",
        ),
        (
            "WORKER.WAIT - TIMEOUT 10",
            "ERR invalid worker: - is not a worker",
        ),
        ("WORKER.WAIT w:1 LEASE 10", "ERR syntax error near 'LEASE'"),
        (
            "WORKER.WAIT w:1",
            "ERR wrong number of arguments for 'worker.wait' command",
        ),
    ] {
        assert_eq!(c.show(command)?, expected, "{command}");
    }
    Ok(())
}

/// However a claim is settled, the workers that it was returned to are notified to ask again.
#[tokio::test]
async fn a_claim_that_settles_is_told_however_it_does() -> anyhow::Result<()> {
    let (redis, mut c) = server().await?;
    let mut waiting = Connection::open_resp3(&redis)?;
    for way in [
        "confirm", "unbind", "rebind", "end", "kill", "lapse", "bind", "delete",
    ] {
        c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
        let lease = if way == "lapse" { 300 } else { 60_000 };
        let claim = c.run(&bind("a:1", "t1", lease))?;
        assert_eq!(claim.field("won").integer(), 1, "{way}");
        let epoch = claim.field("epoch").integer();
        assert_eq!(c.run(&route("b:1"))?.field("state").to_string(), "claimed");
        begin(&mut waiting, &mut c, "b:1").await?;
        match way {
            "confirm" => c.run(&format!(
                "SESSION.CONFIRM {KEY} zoe tools {epoch} t1 UPSTREAM u"
            )),
            "unbind" => c.run(&format!("SESSION.UNBIND {KEY} zoe tools {epoch} t1")),
            "rebind" => c.run(&format!(
                "SESSION.REBIND {KEY} zoe tools {epoch} a:1 t1 LEASE 60000 INSTANCES 1 two"
            )),
            "end" => c.run(&format!("SESSION.END {KEY} zoe")),
            "kill" => c.run(&format!("SESSION.KILL {KEY}")),
            "bind" => c.run(&format!("{} UPSTREAM u", bind("a:1", "t1", 1_000))),
            "delete" => c.run(&format!("DEL {KEY}")),
            _ => Ok(Value::Null),
        }?;
        assert_eq!(waiting.read()?.to_string(), SETTLED, "{way}");
        c.run(&format!("DEL {KEY}"))?;
    }
    Ok(())
}

#[tokio::test]
async fn every_command_that_answers_claimed_is_followed_up() -> anyhow::Result<()> {
    let (_redis, mut c) = server().await?;
    for how in ["route", "enter", "bind", "rebind"] {
        c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
        let claim = c.run(&bind("a:1", "t1", 60_000))?;
        let epoch = claim.field("epoch").integer();
        let answer = match how {
            "route" => c.run(&route("b:1")),
            "enter" => c.run(&format!("SESSION.ENTER {KEY} zoe tools b:1 e1 LEASE 1000")),
            "bind" => c.run(&bind("b:1", "t2", 60_000)),
            _ => c.run(&format!(
                "SESSION.REBIND {KEY} zoe tools {epoch} b:1 t2 LEASE 60000 INSTANCES 1 one"
            )),
        }?;
        assert_eq!(answer.field("state").to_string(), "claimed", "{how}");
        c.run(&format!(
            "SESSION.CONFIRM {KEY} zoe tools {epoch} t1 UPSTREAM u"
        ))?;
        assert_eq!(c.show("WORKER.WAIT b:1 TIMEOUT 5000")?, SETTLED, "{how}");
        assert_eq!(
            c.show("WORKER.WAIT a:1 TIMEOUT 1")?,
            "[]",
            "{how}: not its holder"
        );
        c.run(&format!("DEL {KEY}"))?;
        c.run("WORKER.WAIT b:1 TIMEOUT 1")?;
    }
    Ok(())
}

#[tokio::test]
async fn news_comes_in_batches_with_the_names_it_is_about() -> anyhow::Result<()> {
    const SESSIONS: usize = 1_010;
    let (redis, mut c) = server().await?;
    let commands: Vec<String> = (0..SESSIONS)
        .flat_map(|n| {
            let key = format!("mcpgw:s{n:04}");
            [
                format!("SESSION.CREATE {key} s{n} zoe TTL 900000"),
                format!("SESSION.BIND {key} zoe tools a:1 t1 LEASE 60000 INSTANCES 1 one"),
                format!("SESSION.ROUTE {key} zoe tools b:1"),
                format!("SESSION.END {key} zoe"),
            ]
        })
        .collect();
    for chunk in commands.chunks(400) {
        c.run_all(chunk)?;
    }
    let mut resp2 = Connection::open(&redis)?;
    let Value::Array(first) = resp2.run("WORKER.WAIT b:1 TIMEOUT 5000")? else {
        panic!("WAIT answers with an array");
    };
    assert_eq!(first.len(), 1_000);
    assert_eq!(
        first[7].to_string(),
        "[event, settled, key, mcpgw:s0007, server, tools, ticket, null, turn, null]"
    );
    let Value::Array(rest) = c.run("WORKER.WAIT b:1 TIMEOUT 5000")? else {
        panic!("WAIT answers with an array");
    };
    assert_eq!(rest.len(), SESSIONS - 1_000);
    assert_eq!(c.show("WORKER.WAIT b:1 TIMEOUT 1")?, "[]");
    Ok(())
}

/// Nothing is blocked where blocking would block others, or never end.
#[tokio::test]
async fn transactions_and_scripts_get_what_there_is() -> anyhow::Result<()> {
    let (_redis, mut c) = server().await?;
    let wait = "WORKER.WAIT b:1 TIMEOUT 600000";
    let script = "return #redis.call('WORKER.WAIT', 'b:1', 'TIMEOUT', '600000')";
    let words: Vec<&[u8]> = wait.split(' ').map(str::as_bytes).collect();
    assert_eq!(c.transaction(&words)?.to_string(), "[[]]");
    let in_script = |c: &mut Connection| c.send(&[b"EVAL", script.as_bytes(), b"0"]);
    assert_eq!(in_script(&mut c)?.to_string(), "0");
    for way in ["transaction", "script"] {
        let epoch = c.run(&bind("a:1", "t1", 60_000))?.field("epoch").integer();
        c.run(&route("b:1"))?;
        c.run(&format!("SESSION.UNBIND {KEY} zoe tools {epoch} t1"))?;
        match way {
            "script" => assert_eq!(in_script(&mut c)?.to_string(), "1"),
            _ => assert_eq!(c.transaction(&words)?.to_string(), format!("[{SETTLED}]")),
        }
    }
    assert_eq!(blocked(&mut c)?, 0);
    Ok(())
}

#[tokio::test]
async fn a_second_wait_of_a_worker_ends_its_first() -> anyhow::Result<()> {
    let (redis, mut c) = server().await?;
    let mut first = Connection::open_resp3(&redis)?;
    let mut second = Connection::open_resp3(&redis)?;
    begin(&mut first, &mut c, "b:1").await?;
    second.say(&[b"WORKER.WAIT", b"b:1", b"TIMEOUT", b"600000"])?;
    assert_eq!(first.read()?.to_string(), "[]");
    assert_eq!(blocked(&mut c)?, 1);
    let epoch = c.run(&bind("a:1", "t1", 60_000))?.field("epoch").integer();
    c.run(&route("b:1"))?;
    c.run(&format!("SESSION.UNBIND {KEY} zoe tools {epoch} t1"))?;
    assert_eq!(second.read()?.to_string(), SETTLED);
    // Both connections work on.
    assert_eq!(first.show("WORKER.WAIT b:1 TIMEOUT 1")?, "[]");
    assert_eq!(second.show("PING")?, "PONG");
    Ok(())
}

#[tokio::test]
async fn a_client_that_goes_away_is_forgotten_and_its_news_is_not() -> anyhow::Result<()> {
    let (redis, mut c) = server().await?;
    for way in ["disconnect", "kill", "unblock", "error"] {
        let mut waiting = Connection::open_resp3(&redis)?;
        begin(&mut waiting, &mut c, "b:1").await?;
        let id = waiting_client(&mut c)?;
        match way {
            "disconnect" => drop(waiting),
            "kill" => {
                assert_eq!(c.show(&format!("CLIENT KILL ID {id}"))?, "1");
                assert!(waiting.read().is_err(), "the connection is closed");
            }
            "unblock" => {
                assert_eq!(c.show(&format!("CLIENT UNBLOCK {id}"))?, "1");
                assert_eq!(waiting.read()?.to_string(), "[]");
                assert_eq!(waiting.show("PING")?, "PONG");
            }
            _ => {
                assert_eq!(c.show(&format!("CLIENT UNBLOCK {id} ERROR"))?, "1");
                let shown = waiting.read()?.to_string();
                assert!(shown.starts_with("UNBLOCKED"), "{shown}");
                assert_eq!(waiting.show("PING")?, "PONG");
            }
        }
        until_blocked(&mut c, 0).await?;
        let epoch = c.run(&bind("a:1", "t1", 60_000))?.field("epoch").integer();
        c.run(&route("b:1"))?;
        c.run(&format!("SESSION.UNBIND {KEY} zoe tools {epoch} t1"))?;
        assert_eq!(c.show("WORKER.WAIT b:1 TIMEOUT 5000")?, SETTLED, "{way}");
    }
    Ok(())
}

/// The server itself refuses to take a module away from under clients that wait; when they are gone, it goes.
#[tokio::test]
async fn the_module_is_unloaded_once_nobody_waits() -> anyhow::Result<()> {
    let (redis, mut c) = server().await?;
    let mut waiting = Connection::open_resp3(&redis)?;
    begin(&mut waiting, &mut c, "b:1").await?;
    let shown = c.show("MODULE UNLOAD mooring")?;
    assert!(shown.contains("blocked clients"), "{shown}");
    let epoch = c.run(&bind("a:1", "t1", 60_000))?.field("epoch").integer();
    c.run(&route("b:1"))?;
    c.run(&format!("SESSION.UNBIND {KEY} zoe tools {epoch} t1"))?;
    assert_eq!(waiting.read()?.to_string(), SETTLED, "it works on");
    begin(&mut waiting, &mut c, "b:1").await?;
    let id = waiting_client(&mut c)?;
    c.run(&format!("CLIENT KILL ID {id}"))?;
    // A client is off the server's books a moment after it is off the module's.
    wait::until_true("the module is gone", SOON, async || {
        Ok(c.show("MODULE UNLOAD mooring")? == "OK")
    })
    .await?;
    let path = mooring_tests::paths::redis_module()?;
    c.run(&format!("MODULE LOAD {}", path.display()))?;
    assert_eq!(c.show("WORKER.WAIT b:1 TIMEOUT 20")?, "[]");
    Ok(())
}

#[tokio::test]
async fn a_primary_that_becomes_a_replica_lets_its_waiting_clients_go() -> anyhow::Result<()> {
    let (redis, mut c) = server().await?;
    let other = Redis::start_with(Module::Loaded, &[]).await?;
    let mut waiting = Connection::open_resp3(&redis)?;
    begin(&mut waiting, &mut c, "b:1").await?;
    c.run(&format!("REPLICAOF 127.0.0.1 {}", other.port()))?;
    let shown = waiting.read()?.to_string();
    assert!(shown.starts_with("UNBLOCKED"), "{shown}");
    until_blocked(&mut c, 0).await
}

/// A hundred workers wait, and each is woken by its own news.
#[tokio::test]
async fn everybody_hears_what_is_theirs() -> anyhow::Result<()> {
    const WORKERS: usize = 100;
    let (redis, mut c) = server().await?;
    let mut waiting = Vec::new();
    for n in 0..WORKERS {
        let mut connection = Connection::open_resp3(&redis)?;
        let worker = format!("w{n}:1");
        connection.say(&[b"WORKER.WAIT", worker.as_bytes(), b"TIMEOUT", b"600000"])?;
        waiting.push(connection);
    }
    until_blocked(&mut c, i64::try_from(WORKERS)?).await?;
    let epoch = c.run(&bind("a:1", "t1", 60_000))?.field("epoch").integer();
    for n in (0..WORKERS).step_by(2) {
        c.run(&route(&format!("w{n}:1")))?;
    }
    c.run(&format!("SESSION.UNBIND {KEY} zoe tools {epoch} t1"))?;
    for connection in waiting.iter_mut().step_by(2) {
        assert_eq!(connection.read()?.to_string(), SETTLED);
    }
    until_blocked(&mut c, i64::try_from(WORKERS / 2)?).await
}

/// A server that ticks once a second: what its workers are measured by keeps pace with its clock.
#[tokio::test]
async fn a_server_that_seldom_ticks_counts_all_of_its_time() -> anyhow::Result<()> {
    let redis = Redis::start_with(Module::Loaded, &["--hz", "1"]).await?;
    let mut c = Connection::open_resp3(&redis)?;
    c.run("WORKER.BEAT w:1 127.0.0.1:1 TTL 2500")?;
    c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 3000"))?;
    // Looked at by the wall clock alone, so that nothing but ticks reads the other one.
    let end = c.run(&format!("HGET {KEY} s"))?.to_string();
    let end: u64 = end.split(' ').nth(5).expect("its end").parse()?;
    wait::until_true("the session's end", SOON, async || {
        let time = c.run("TIME")?;
        let Value::Array(parts) = time else {
            anyhow::bail!("TIME is an array: {time}");
        };
        Ok(parts[0].to_string().parse::<u64>()? * 1_000 >= end)
    })
    .await?;
    assert_eq!(c.run("SESSION.STATS")?.field("workers_alive").integer(), 0);
    Ok(())
}
