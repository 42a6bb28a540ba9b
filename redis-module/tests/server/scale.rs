//! Fifty thousand sessions: pages are whole, work is cut into steps, and a dead worker's sessions are free at once.
//!
//! Nothing here asserts how long something takes: benches/commands measures that, with twenty times as many. What is
//! asserted is what bounds it: pages and steps of limited size.

use std::collections::BTreeSet;
use std::time::Duration;

use mooring_tests::redis::{Module, Redis};
use mooring_tests::wait;

use super::resp::{Connection, Value};

const SESSIONS: usize = 50_000;
/// Sessions in one write.
const BATCH: usize = 250;
const PAGE_MAX: usize = 1_000;
const WORKERS: usize = 10;
const DONE_WITHIN: Duration = Duration::from_secs(60);

/// A server without persistence: what is on disk is not the concern here.
async fn server() -> anyhow::Result<Redis> {
    let arguments = ["--appendonly", "no", "--hash-max-listpack-value", "512"];
    Redis::start_with(Module::Loaded, &arguments).await
}

fn key(session: usize) -> String {
    format!("mcpgw:session_affinity:{session:05}")
}

/// Makes sessions, each with one binding; `more` is added to every BIND.
fn make(
    c: &mut Connection,
    sessions: std::ops::Range<usize>,
    ttl_ms: u64,
    more: &str,
) -> anyhow::Result<()> {
    let sessions: Vec<usize> = sessions.collect();
    for batch in sessions.chunks(BATCH) {
        let commands = batch.iter().flat_map(|&session| {
            let (key, worker) = (key(session), session % WORKERS);
            [
                format!("SESSION.CREATE {key} s{session} p{} TTL {ttl_ms}", session % 7),
                format!(
                    "SESSION.BIND {key} p{} tools w{worker}:b t LEASE 60000 INSTANCES 2 a b UPSTREAM u{session}{more}",
                    session % 7
                ),
            ]
        });
        for reply in c.run_all(&commands.collect::<Vec<_>>())? {
            assert!(!matches!(reply, Value::Error(_)), "{reply}");
        }
    }
    Ok(())
}

fn array(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items,
        other => panic!("no array: {other}"),
    }
}

/// All keys that LIST names, page after page; `between` runs between two pages.
fn listed(
    c: &mut Connection,
    filter: &str,
    mut between: impl FnMut(&mut Connection, usize) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<String>> {
    let (mut keys, mut cursor, mut page_number) = (Vec::new(), "0".to_owned(), 0);
    loop {
        let page = c.run(&format!(
            "SESSION.LIST{filter} CURSOR {cursor} COUNT {PAGE_MAX}"
        ))?;
        let sessions = array(page.field("sessions"));
        assert!(sessions.len() <= PAGE_MAX, "{} on a page", sessions.len());
        keys.extend(
            sessions
                .iter()
                .map(|session| session.field("key").to_string()),
        );
        cursor = page.field("cursor").to_string();
        if cursor == "0" {
            return Ok(keys);
        }
        page_number += 1;
        between(c, page_number)?;
    }
}

#[tokio::test]
async fn list_names_everything_once_while_sessions_come_and_go() -> anyhow::Result<()> {
    let redis = server().await?;
    let mut c = Connection::open(&redis)?;
    make(&mut c, 0..SESSIONS, 900_000, "")?;
    for order in ["newest", "oldest"] {
        // Every seventh goes and comes back as new, somewhere else in the order; the others stay where they are.
        let keys = listed(&mut c, &format!(" ORDER {order}"), |c, page| {
            let session = page * 7;
            c.run(&format!("DEL {}", key(session)))?;
            make(c, session..session + 1, 900_000, "")
        })?;
        let found: BTreeSet<&String> = keys.iter().collect();
        for session in (0..SESSIONS).filter(|session| session % 7 != 0) {
            assert!(
                found.contains(&key(session)),
                "{order}: {session} is missing"
            );
        }
        let stayed = keys.iter().filter(|key| {
            let number: usize = key
                .rsplit(':')
                .next()
                .unwrap_or_default()
                .parse()
                .expect("a number");
            !number.is_multiple_of(7)
        });
        let stayed: Vec<&String> = stayed.collect();
        let once: BTreeSet<&String> = stayed.iter().copied().collect();
        assert_eq!(stayed.len(), once.len(), "{order}: something came twice");
    }
    Ok(())
}

#[tokio::test]
async fn filters_page_through_what_they_leave_out() -> anyhow::Result<()> {
    let redis = server().await?;
    let mut c = Connection::open(&redis)?;
    make(&mut c, 0..SESSIONS, 900_000, "")?;
    let nothing = |_: &mut Connection, _| Ok(());
    for (filter, expected) in [
        (" PRINCIPAL p3", SESSIONS.div_ceil(7)),
        (" PRINCIPAL p3 MATCH *00", SESSIONS / 100 / 7 + 1),
        (" MATCH *nothing*like*this*", 0),
        (" STATE ended", 0),
        (" SERVER tools STATE active", SESSIONS),
        (" SERVER other", 0),
    ] {
        let keys = listed(&mut c, filter, nothing)?;
        // How many of a hundred fall on a seventh differs by one.
        let least = expected.saturating_sub(usize::from(filter.contains("MATCH *00")));
        assert!(
            (least..=expected).contains(&keys.len()),
            "{filter}: {}",
            keys.len()
        );
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
    }
    Ok(())
}

#[tokio::test]
async fn a_rebuild_goes_by_steps_and_says_when_it_is_done() -> anyhow::Result<()> {
    let redis = server().await?;
    let mut c = Connection::open(&redis)?;
    make(&mut c, 0..SESSIONS, 900_000, "")?;
    assert_eq!(c.run("SESSION.REINDEX")?.field("started").integer(), 1);
    // The command that asks for it returns before the work is done, and others are served meanwhile.
    assert_eq!(c.run("SESSION.STATS")?.field("index_ready").integer(), 0);
    assert_eq!(
        c.run("SESSION.LIST COUNT 1")?.field("complete").integer(),
        0
    );
    assert_eq!(c.run("SESSION.REINDEX")?.field("started").integer(), 0);
    make(&mut c, SESSIONS..SESSIONS + 10, 900_000, "")?;
    c.run(&format!("UNLINK {}", key(1)))?;
    wait::until_true("the rebuild", DONE_WITHIN, async || {
        Ok(c.run("SESSION.STATS")?.field("index_ready").integer() == 1)
    })
    .await?;
    let keys = listed(&mut c, "", |_, _| Ok(()))?;
    assert_eq!(keys.len(), SESSIONS + 10 - 1);
    assert!(!keys.contains(&key(1)));
    Ok(())
}

#[tokio::test]
async fn what_expired_is_reaped_page_by_page_and_nothing_else() -> anyhow::Result<()> {
    const EXPIRING: usize = 5_000;
    let redis = server().await?;
    let mut c = Connection::open(&redis)?;
    make(&mut c, EXPIRING..SESSIONS, 900_000, "")?;
    make(&mut c, 0..EXPIRING, 1_000, "")?;
    let mut reaped = BTreeSet::new();
    wait::until_true("everything that expired", DONE_WITHIN, async || {
        let page = c.run("SESSION.REAP w1:b COUNT 500")?;
        let keys = array(page.field("keys"));
        assert!(keys.len() <= 500, "{} on a page", keys.len());
        let claims: Vec<String> = keys
            .iter()
            .map(|key| format!("SESSION.CLAIM {key} w1:b LEASE 60000"))
            .collect();
        let records = c.run_all(&claims)?;
        let forgotten = keys.iter().zip(&records).map(|(key, record)| {
            format!(
                "SESSION.FORGET {key} {} w1:b",
                record.field("gen").integer()
            )
        });
        let forgotten = c.run_all(&forgotten.collect::<Vec<_>>())?;
        assert!(
            forgotten
                .iter()
                .all(|reply| reply.field("forgotten").integer() == 1)
        );
        for key in keys {
            assert!(reaped.insert(key.to_string()), "{key} twice");
        }
        Ok(reaped.len() >= EXPIRING)
    })
    .await?;
    assert_eq!(reaped, (0..EXPIRING).map(key).collect());
    let left = usize::try_from(c.run("DBSIZE")?.integer())?;
    assert_eq!(left, SESSIONS - EXPIRING);
    Ok(())
}

#[tokio::test]
async fn all_that_a_dead_worker_owned_is_free_at_once() -> anyhow::Result<()> {
    let redis = server().await?;
    let mut c = Connection::open(&redis)?;
    for worker in 0..WORKERS {
        c.run(&format!(
            "WORKER.BEAT w{worker}:b 127.0.0.1:{worker} TTL 600000"
        ))?;
    }
    make(&mut c, 0..SESSIONS, 900_000, " OWNED")?;
    c.run("WORKER.GONE w3:b")?;
    for session in (3..SESSIONS).step_by(WORKERS) {
        let of = format!("{} p{} tools", key(session), session % 7);
        let route = c.run(&format!("SESSION.ROUTE {of} w4:b"))?;
        assert_eq!(route.field("state").to_string(), "orphaned", "{session}");
        let epoch = route.field("epoch").integer();
        let moved = c.run(&format!(
            "SESSION.REBIND {of} {epoch} w4:b t2 LEASE 60000 INSTANCES 2 a b OWNED"
        ))?;
        assert_eq!(moved.field("won").integer(), 1, "{session}");
    }
    let of_another = format!("SESSION.ROUTE {} p{} tools w4:b", key(5), 5);
    assert_eq!(c.run(&of_another)?.field("state").to_string(), "bound");
    Ok(())
}
