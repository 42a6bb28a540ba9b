//! Who has the turn when: exclusion and the order of arrival, over many connections.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use super::super::resp::{Connection, Value};
use super::{SHORT_QUIET, enter, hear, hear_turn, leave, server, turn};

const WORKERS: usize = 16;

#[tokio::test]
async fn sixteen_workers_have_one_turn_after_another_in_the_order_of_arrival() -> anyhow::Result<()>
{
    const CALLS_EACH: usize = 5;
    let (redis, mut c) = server(&SHORT_QUIET).await?;
    c.run("CONFIG SET mooring.turn-lease-max-ms 60000")?;
    c.run(&enter("w0:1", "first", 60_000, ""))?;
    let mut arrived = Vec::new();
    for call in 0..CALLS_EACH {
        for worker in 0..WORKERS {
            let ticket = format!("t{worker}-{call}");
            let reply = c.run(&enter(&format!("w{worker}:1"), &ticket, 60_000, ""))?;
            assert_eq!(turn(&reply), None, "{ticket} has to wait");
            arrived.push(ticket);
        }
    }
    let inside = AtomicBool::new(false);
    let (tell, told) = mpsc::channel();
    std::thread::scope(|threads| -> anyhow::Result<()> {
        for worker in 0..WORKERS {
            let (tell, inside, redis) = (tell.clone(), &inside, &redis);
            threads.spawn(move || -> anyhow::Result<()> {
                let mut waiting = Connection::open_resp3(redis)?;
                let mut calling = Connection::open(redis)?;
                let mut left = CALLS_EACH;
                while left > 0 {
                    let command = format!("WORKER.WAIT w{worker}:1 TIMEOUT 5000");
                    let Value::Array(items) = waiting.run(&command)? else {
                        panic!("WAIT answers with an array");
                    };
                    for item in items {
                        assert!(!inside.swap(true, Ordering::SeqCst), "two are inside");
                        let ticket = item.field("ticket").to_string();
                        tell.send((ticket.clone(), item.field("turn").integer()))?;
                        assert!(inside.swap(false, Ordering::SeqCst));
                        assert_eq!(calling.show(&leave(&ticket))?, "[left, 1]");
                        left -= 1;
                    }
                }
                Ok(())
            });
        }
        c.run(&leave("first"))?;
        Ok(())
    })?;
    drop(tell);
    let had: Vec<(String, i64)> = told.into_iter().collect();
    let order: Vec<&String> = had.iter().map(|(ticket, _)| ticket).collect();
    assert_eq!(order, arrived.iter().collect::<Vec<_>>());
    assert!(
        had.is_sorted_by(|(_, one), (_, next)| one < next),
        "{had:?}"
    );
    assert_eq!(c.run("SESSION.STATS")?.field("turns_lost").integer(), 0);
    Ok(())
}

/// Nobody orders the arrivals here: the workers race, and every one of their calls gets through.
#[tokio::test]
async fn sixteen_workers_that_race_never_meet() -> anyhow::Result<()> {
    const CALLS_EACH: usize = 25;
    let (redis, mut c) = server(&SHORT_QUIET).await?;
    let inside = AtomicBool::new(false);
    let (tell, told) = mpsc::channel();
    std::thread::scope(|threads| {
        for worker in 0..WORKERS {
            let (tell, inside, redis) = (tell.clone(), &inside, &redis);
            threads.spawn(move || -> anyhow::Result<()> {
                let name = format!("w{worker}:1");
                let mut waiting = Connection::open_resp3(redis)?;
                let mut calling = Connection::open_resp3(redis)?;
                for call in 0..CALLS_EACH {
                    let ticket = format!("t{worker}-{call}");
                    let reply = calling.run(&enter(&name, &ticket, 1_000, ""))?;
                    let number = match turn(&reply) {
                        Some(number) => number,
                        None => {
                            hear_turn(&mut waiting, &name, &ticket)?;
                            turn(&calling.run(&enter(&name, &ticket, 1_000, ""))?)
                                .expect("the holder has its turn")
                        }
                    };
                    assert!(!inside.swap(true, Ordering::SeqCst), "two are inside");
                    tell.send(number)?;
                    assert!(inside.swap(false, Ordering::SeqCst));
                    assert_eq!(calling.show(&leave(&ticket))?, "{left: 1}");
                }
                Ok(())
            });
        }
    });
    drop(tell);
    let numbers: Vec<i64> = told.into_iter().collect();
    assert_eq!(numbers.len(), WORKERS * CALLS_EACH);
    assert!(numbers.is_sorted_by(|one, next| one < next));
    let stats = c.run("SESSION.STATS")?;
    assert_eq!(stats.field("turn_queues").integer(), 0, "nothing is left");
    Ok(())
}

#[tokio::test]
async fn who_says_first_goes_before_who_does_not() -> anyhow::Result<()> {
    let (_redis, mut c) = server(&SHORT_QUIET).await?;
    c.run("CONFIG SET mooring.turn-lease-max-ms 60000")?;
    for (ticket, more) in [("a1", ""), ("b1", ""), ("c1", " FIRST"), ("d1", " FIRST")] {
        c.run(&enter("w:1", ticket, 60_000, more))?;
    }
    let mut order = Vec::new();
    let mut last = "a1".to_owned();
    for _ in 0..3 {
        c.run(&leave(&last))?;
        let heard = hear(&mut c, "w:1", 5_000)?.concat();
        last = heard.trim_start_matches("turn ").to_owned();
        order.push(last.clone());
    }
    assert_eq!(order, ["c1", "d1", "b1"]);
    Ok(())
}

#[tokio::test]
async fn ten_thousand_wait_and_each_has_its_turn() -> anyhow::Result<()> {
    const CALLERS: usize = 10_000;
    let (redis, mut c) = server(&SHORT_QUIET).await?;
    c.run("CONFIG SET mooring.turn-lease-max-ms 600000")?;
    c.run(&format!("CONFIG SET mooring.turn-queue-max {CALLERS}"))?;
    c.run(&enter("w:1", "first", 600_000, ""))?;
    let tickets: Vec<String> = (0..CALLERS).map(|n| format!("t{n}")).collect();
    let asked: Vec<String> = tickets
        .iter()
        .map(|ticket| enter("w:1", ticket, 600_000, ""))
        .collect();
    for replies in asked.chunks(1_000).map(|chunk| c.run_all(chunk)) {
        assert!(replies?.iter().all(|reply| turn(reply).is_none()));
    }
    let shown = c.show(&enter("w:1", "one-too-many", 600_000, ""))?;
    assert_eq!(shown, format!("LIMIT turn-queue {CALLERS}"));
    // One in ten gives up, anywhere in the queue.
    let (gave_up, stay): (Vec<_>, Vec<_>) =
        tickets.iter().enumerate().partition(|(n, _)| n % 10 == 3);
    let leaves: Vec<String> = gave_up.iter().map(|(_, ticket)| leave(ticket)).collect();
    for reply in c.run_all(&leaves)? {
        assert_eq!(reply.field("left").integer(), 1);
    }
    let mut waiting = Connection::open_resp3(&redis)?;
    let mut last = "first".to_owned();
    for (_, ticket) in stay {
        c.run(&leave(&last))?;
        assert_eq!(
            hear(&mut waiting, "w:1", 5_000)?,
            [format!("turn {ticket}")]
        );
        last.clone_from(ticket);
    }
    c.run(&leave(&last))?;
    let stats = c.run("SESSION.STATS")?;
    assert_eq!(stats.field("turns_lost").integer(), 0);
    assert_eq!(stats.field("turn_waiters").integer(), 0);
    Ok(())
}
