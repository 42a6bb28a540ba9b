//! SESSION.RATE: its figures, the same for a whole fleet, and what replicas and the append-only file are told.

use std::time::Duration;

use mooring_tests::redis::{Module, Redis};
use mooring_tests::wait;

use super::resp::{Connection, Value};
use super::stream::Stream;

const KEY: &str = "mcpgw:rate:zoe";

/// Days, so that nothing is earned back within a test.
const WINDOW: u64 = 864_000_000;

#[tokio::test]
async fn the_limit_passes_and_then_one_for_each_share_of_the_window() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    let ask = format!("SESSION.RATE {KEY} LIMIT 10 WINDOW {WINDOW}");
    let passed = |remaining| format!("{{allowed: 1, remaining: {remaining}, retry_after_ms: 0}}");
    assert_eq!(c.show(&ask)?, passed(9));
    assert_eq!(c.show(&format!("{ask} COST 5"))?, passed(4));
    let before = c.show(&format!("GET {KEY}"))?;
    let refused = c.run(&format!("{ask} COST 6"))?;
    assert_eq!(refused.field("allowed").integer(), 0);
    assert_eq!(refused.field("remaining").integer(), 4);
    // Two shares of a tenth of the window each, less the moments since the first.
    let retry_after = refused.field("retry_after_ms").integer();
    let two_shares = i64::try_from(WINDOW / 5)?;
    assert!(
        (two_shares - 60_000..=two_shares).contains(&retry_after),
        "{retry_after}"
    );
    assert_eq!(
        c.show(&format!("GET {KEY}"))?,
        before,
        "a refusal writes nothing"
    );
    assert_eq!(c.show(&format!("{ask} COST 4"))?, passed(0));
    assert_eq!(c.run(&ask)?.field("allowed").integer(), 0);
    let mut resp2 = Connection::open(&redis)?;
    assert_eq!(
        resp2.show(&format!("SESSION.RATE {KEY}:2 LIMIT 1 WINDOW 1000"))?,
        "[allowed, 1, remaining, 0, retry_after_ms, 0]"
    );
    Ok(())
}

/// The share of one is a twentieth of a second, and comes back after that.
#[tokio::test]
async fn what_was_spent_is_earned_back() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    let ask = format!("SESSION.RATE {KEY} LIMIT 20 WINDOW 1000");
    c.run(&format!("{ask} COST 20"))?;
    wait::until_true("a share", Duration::from_secs(10), async || {
        Ok(c.run(&ask)?.field("allowed").integer() == 1)
    })
    .await?;
    wait::until_true("the key's end", Duration::from_secs(10), async || {
        Ok(c.show(&format!("EXISTS {KEY}"))? == "0")
    })
    .await
}

#[tokio::test]
async fn a_fleet_shares_one_limit() -> anyhow::Result<()> {
    const GATEWAYS: usize = 12;
    const ASKED_EACH: usize = 100;
    const LIMIT: i64 = 500;
    let redis = Redis::start().await?;
    let ask = format!("SESSION.RATE {KEY} LIMIT {LIMIT} WINDOW {WINDOW}");
    let passed = std::thread::scope(|threads| {
        let gateways: Vec<_> = (0..GATEWAYS)
            .map(|_| {
                threads.spawn(|| -> anyhow::Result<i64> {
                    let mut c = Connection::open_resp3(&redis)?;
                    let mut passed = 0;
                    for _ in 0..ASKED_EACH {
                        passed += c.run(&ask)?.field("allowed").integer();
                    }
                    Ok(passed)
                })
            })
            .collect();
        let mut all = 0;
        for gateway in gateways {
            all += gateway.join().expect("no panic")?;
        }
        anyhow::Ok(all)
    })?;
    assert_eq!(passed, LIMIT);
    Ok(())
}

#[tokio::test]
async fn replicas_are_told_what_came_of_it() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let plain = Redis::start_replica(&redis, Module::Absent, &[]).await?;
    let mut c = Connection::open_resp3(&redis)?;
    let mut there = Connection::open(&plain)?;
    wait::until_true(
        "the replica is linked",
        Duration::from_secs(20),
        async || {
            Ok(there
                .show("INFO replication")?
                .contains("master_link_status:up"))
        },
    )
    .await?;
    let mut stream = Stream::of(&redis)?;
    let ask = format!("SESSION.RATE {KEY} LIMIT 2 WINDOW {WINDOW}");
    for _ in 0..2 {
        c.run(&ask)?;
        let value = c.show(&format!("GET {KEY}"))?;
        let ends_at = c.run(&format!("PEXPIRETIME {KEY}"))?.integer();
        let [sent] = &stream.sent()?[..] else {
            panic!("one command is sent");
        };
        // The reply shows moments as `#`; the words of a command are shown as they are.
        let expected = ["SET", KEY, &value, "PXAT", &ends_at.to_string()];
        assert_eq!(*sent, expected);
    }
    assert_eq!(c.run(&ask)?.field("allowed").integer(), 0);
    assert!(stream.sent()?.is_empty(), "a refusal sends nothing");
    assert_eq!(c.show("WAIT 1 10000")?, "1");
    for question in ["GET", "PEXPIRETIME"] {
        let question = format!("{question} {KEY}");
        assert_eq!(there.run(&question)?, c.run(&question)?);
    }
    Ok(())
}

#[tokio::test]
async fn what_it_cannot_read_or_take_is_refused_and_stays() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    c.run("SET corrupt hello")?;
    c.run("RPUSH list a")?;
    c.run("SESSION.CREATE mcpgw:s1 s1 zoe TTL 900000")?;
    for (command, expected) in [
        (
            "SESSION.RATE corrupt LIMIT 1 WINDOW 1000",
            "ERR corrupt rate record",
        ),
        ("SESSION.RATE list LIMIT 1 WINDOW 1000", "WRONGTYPE"),
        ("SESSION.RATE mcpgw:s1 LIMIT 1 WINDOW 1000", "WRONGTYPE"),
        (
            "SESSION.RATE new LIMIT 0 WINDOW 1000",
            "ERR invalid LIMIT: must be an integer from 1 to 1000000",
        ),
        (
            "SESSION.RATE new LIMIT 1000001 WINDOW 1000",
            "ERR invalid LIMIT",
        ),
        (
            "SESSION.RATE new LIMIT 1 WINDOW 0",
            "ERR invalid WINDOW: must be an integer from 1 to 2592000000",
        ),
        (
            "SESSION.RATE new LIMIT 5 WINDOW 1000 COST 6",
            "ERR invalid COST: must be an integer from 1 to 5",
        ),
        (
            "SESSION.RATE new LIMIT 5 WINDOW 1000 COST 0",
            "ERR invalid COST",
        ),
        (
            "SESSION.RATE new LIMIT 5 COST 1 COST 1",
            "ERR syntax error near 'COST'",
        ),
        (
            "SESSION.RATE new LIMIT 5 COST 1 FOO 1",
            "ERR syntax error near 'FOO'",
        ),
        ("SESSION.RATE new LIMIT 5 LIMIT 1", "ERR wrong number"),
    ] {
        let shown = c.show(command)?;
        let is_expected = shown.starts_with(expected)
            || (expected == "ERR wrong number"
                && shown.starts_with("ERR syntax error near 'LIMIT'"));
        assert!(is_expected, "{command}: {shown}");
    }
    assert_eq!(c.show("GET corrupt")?, "hello");
    assert_eq!(c.show("EXISTS new")?, "0");
    Ok(())
}

#[tokio::test]
async fn memory_that_is_short_refuses_it() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    c.run("CONFIG SET maxmemory 1")?;
    let shown = c.show(&format!("SESSION.RATE {KEY} LIMIT 1 WINDOW 1000"))?;
    assert!(shown.starts_with("OOM"), "{shown}");
    assert_eq!(c.run(&format!("EXISTS {KEY}"))?, Value::Integer(0));
    Ok(())
}
