//! A cluster as it really is: every command at the node that serves its key, a slot that moves under load, a primary
//! that is killed. No session that was acknowledged and replicated is lost, and every number grows across all of it.

pub(super) mod client;
pub(super) mod load;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use mooring_tests::redis_cluster::RedisCluster;
use mooring_tests::wait;

use super::grammar::grammars;
use super::pages;
use super::resp::{Connection, Value};
use super::{servers, truth};
use client::Client;
use load::{Burst, Walker};

const SETTLED_WITHIN: Duration = Duration::from_secs(20);

/// The shortest time in which a new primary grants only turns that are claimed again.
const QUICK: [&str; 4] = ["--appendonly", "no", "--mooring.turn-lease-max-ms", "100"];

#[tokio::test]
async fn a_cluster_serves_moves_and_fails_over() -> anyhow::Result<()> {
    let mut cluster = RedisCluster::start_by("redis-server", &QUICK).await?;
    commands_are_served_at_their_node(&cluster)?;
    let walked =
        a_slot_moves_under_load(&cluster, RedisCluster::move_slot).context("a slot moves")?;
    assert!(walked.asked > 0, "the client met the slot moving");
    a_turn_stays_with_who_has_it(&cluster, RedisCluster::move_slot).context("a turn stays")?;
    a_primary_dies_under_load(&mut cluster)
        .await
        .context("a primary dies")
}

/// Valkey 9 copies a slot aside and hands it over at once; the module says that it copes with that.
#[tokio::test]
async fn a_slot_of_valkey_9_moves_at_once() -> anyhow::Result<()> {
    let cluster = RedisCluster::start_by(&servers::program("valkey-9.1.2")?, &QUICK).await?;
    a_slot_moves_under_load(&cluster, move_slot_at_once)?;
    a_turn_stays_with_who_has_it(&cluster, move_slot_at_once)?;
    for node in &cluster.nodes {
        let mut c = Connection::open(node)?;
        truth::whole(&mut c).await?;
        let Value::Array(keys) = c.run("KEYS mcpgw:*")? else {
            anyhow::bail!("KEYS is an array");
        };
        let keys: BTreeSet<String> = keys.iter().map(Value::to_string).collect();
        let listed: BTreeSet<String> = truth::listed(&mut c, "")?.into_keys().collect();
        assert_eq!(listed, keys, "{}", c.show("ROLE")?);
    }
    Ok(())
}

/// Commands with a key are redirected by every node but one; keyless ones are served by all.
fn commands_are_served_at_their_node(cluster: &RedisCluster) -> anyhow::Result<()> {
    let mut connections = Vec::new();
    for node in cluster.primaries() {
        connections.push(Connection::open_resp3(node)?);
    }
    let grammars = grammars(&mut connections[0])?;
    for page in pages::all()? {
        let grammar = grammars.iter().find(|grammar| grammar.name == page.name);
        let line = grammar.context("a command of each page")?.whole();
        let words: Vec<&[u8]> = line.iter().map(|word| word.as_bytes()).collect();
        let mut moved = 0;
        for c in &mut connections {
            let shown = c.send(&words)?.to_string();
            assert!(!shown.starts_with("CROSSSLOT"), "{line:?}: {shown}");
            moved += usize::from(shown.starts_with("MOVED "));
        }
        let expected = if page.has_key()? { 2 } else { 0 };
        assert_eq!(moved, expected, "{line:?}");
    }
    Ok(())
}

/// Moves a slot of a cluster from one primary to another, given by their places.
type SlotMove = fn(&RedisCluster, slot: u16, from: usize, to: usize) -> anyhow::Result<()>;

/// Moves a slot from one primary to another and back, while a client works on the sessions in it. Answers the client.
fn a_slot_moves_under_load(cluster: &RedisCluster, move_slot: SlotMove) -> anyhow::Result<Client> {
    let (tag, slot) = cluster.tag_at(0)?;
    let mut walker = Walker::new(Client::of(&cluster.nodes), &tag);
    walker.walk()?;
    let is_done = AtomicBool::new(false);
    let walked = std::thread::scope(|scope| {
        let walking = scope.spawn(|| {
            while !is_done.load(Ordering::Acquire) {
                walker.walk()?;
            }
            walker.walk()?;
            anyhow::Ok(walker)
        });
        let moved = move_slot(cluster, slot, 0, 1).and_then(|()| move_slot(cluster, slot, 1, 0));
        is_done.store(true, Ordering::Release);
        let walked = walking.join().expect("the client panicked");
        moved.and(walked)
    })?;
    let mut home = Connection::open(&cluster.nodes[0])?;
    assert_eq!(
        home.run(&format!("CLUSTER COUNTKEYSINSLOT {slot}"))?
            .integer(),
        i64::try_from(walked.keys().len())?
    );
    Ok(walked.client)
}

/// Moves a slot while a caller has the turn of a session in it, and another one asks for it at its new node.
fn a_turn_stays_with_who_has_it(cluster: &RedisCluster, move_slot: SlotMove) -> anyhow::Result<()> {
    const LEASE_MS: u64 = 4_000;
    let set_lease_max = |ms: u64| -> anyhow::Result<()> {
        for node in cluster.primaries() {
            node.cli(&[
                "CONFIG",
                "SET",
                "mooring.turn-lease-max-ms",
                &ms.to_string(),
            ])?;
        }
        Ok(())
    };
    set_lease_max(LEASE_MS)?;
    let (tag, slot) = cluster.tag_at(0)?;
    let key = format!("mcpgw:session_affinity:{tag}:turned");
    let mut client = Client::of(&cluster.nodes);
    client.run(&format!("SESSION.CREATE {key} id zoe TTL 600000"))?;
    let ask = |worker: &str, more: &str| {
        format!("SESSION.ENTER {key} zoe tools {worker} t{worker} LEASE {LEASE_MS}{more}")
    };
    let granted = client.run(&ask("a:1", ""))?;
    let turn = granted.field("turn").integer();
    move_slot(cluster, slot, 0, 1)?;
    let other = client.run(&ask("b:1", ""))?;
    assert_eq!(*other.field("turn"), Value::Null, "{other}");
    let claimed = client.run(&ask("a:1", &format!(" HELD {turn}")))?;
    assert_eq!(claimed.field("turn").integer(), turn, "{claimed}");
    move_slot(cluster, slot, 1, 0)?;
    client.run(&format!("SESSION.END {key} zoe"))?;
    set_lease_max(100)
}

/// By the command of Valkey 9, which answers before it is done.
fn move_slot_at_once(
    cluster: &RedisCluster,
    slot: u16,
    from: usize,
    to: usize,
) -> anyhow::Result<()> {
    let primaries = cluster.primaries();
    let target = primaries[to].cli(&["CLUSTER", "MYID"])?;
    let mut source = Connection::open(&primaries[from])?;
    let asked = source.show(&format!(
        "CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {target}"
    ))?;
    assert_eq!(asked, "OK");
    let started = Instant::now();
    while started.elapsed() < SETTLED_WITHIN {
        let Value::Array(jobs) = source.run("CLUSTER GETSLOTMIGRATIONS")? else {
            anyhow::bail!("GETSLOTMIGRATIONS answers with an array");
        };
        // The latest comes first.
        let state = jobs.first().context("a job")?.field("state").to_string();
        match state.as_str() {
            "success" => return Ok(()),
            "failed" | "cancelled" => anyhow::bail!("the move has {state}: {}", jobs[0]),
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    anyhow::bail!("the move takes longer than {SETTLED_WITHIN:?}")
}

/// Kills a primary in the middle of creates and turns, and compares what its replica knows with what was acknowledged.
async fn a_primary_dies_under_load(cluster: &mut RedisCluster) -> anyhow::Result<()> {
    const PLACE: usize = 1;
    const LOADED_FOR: Duration = Duration::from_secs(1);
    let (tag, _) = cluster.tag_at(PLACE)?;
    let port = cluster.nodes[PLACE].port();
    let creates = std::thread::spawn({
        let tag = tag.clone();
        move || Burst::create(port, &tag)
    });
    let turns = std::thread::spawn({
        let tag = tag.clone();
        move || Burst::take_turns(port, &tag)
    });
    tokio::time::sleep(LOADED_FOR).await;
    cluster.nodes[PLACE].process().kill_now()?;
    let created = creates.join().expect("the creator panicked")?;
    let turned = turns.join().expect("the turn taker panicked")?;
    for (what, burst) in [("sessions", &created), ("turns", &turned)] {
        // So that there is load, also on a machine with other work.
        let rate = burst.rate();
        assert!(rate > 50.0, "{rate:.0} {what} a second before the kill");
    }

    let mut replica = Connection::open(cluster.replica_of(PLACE)?)?;
    wait::until_true("the replica's promotion", SETTLED_WITHIN, async || {
        Ok(replica.show("ROLE")?.starts_with("[master, ")
            && replica.show("CLUSTER INFO")?.contains("cluster_state:ok"))
    })
    .await?;
    let mut client = Client::of(&cluster.nodes);
    created.check_all(&mut client)?;
    turned.grow(&mut client)?;
    let mut c = Connection::open(cluster.replica_of(PLACE)?)?;
    wait::until_true("the index of the new primary", SETTLED_WITHIN, async || {
        Ok(c.run("SESSION.STATS")?.field("index_ready").integer() == 1)
    })
    .await
}
