//! The owner of a connection is killed: another worker makes a new one, the client is told that state was lost, and of
//! the old one nothing is left.

use std::time::Instant;

use mooring_tests::journal::Event;

use crate::recovery::{call, mark_of, rebinds};

use super::rig::{BEAT_TTL_MS, OwnedFleet, assert_begun_anew, goes_on, tell};

/// Sessions that the killed worker owned, all in use at once.
const MANY: usize = 20;
const OWNER_DEAD: &str = "the worker that held the connection is dead";

#[tokio::test]
async fn the_next_call_after_a_kill_meets_one_new_child_and_tells_of_the_loss() -> anyhow::Result<()>
{
    let mut fleet = OwnedFleet::start(3).await?;
    let mut session = fleet.open().await?;
    goes_on(&mut session, 1, 4).await?;
    let (owner, child) = (fleet.owner_of(&session)?, fleet.only_child()?);

    fleet.gateways[owner].process().kill_now()?;
    let killed = Instant::now();
    let mut session = session.fork(&fleet.client, &fleet.endpoints_but(owner));
    let exchange = call(&mut session, "increment").await?;
    tell(&format!(
        "reply {} ms after its owner was killed, with beat_ttl_ms = {BEAT_TTL_MS}",
        killed.elapsed().as_millis()
    ));
    assert_begun_anew(&exchange);
    let mark = mark_of(&exchange).expect("a mark");
    assert_eq!(mark["reason"], OWNER_DEAD);

    // The record names the new owner, one child is left, and it is another one.
    assert_ne!(fleet.owner_of(&session)?, owner);
    let left = fleet.until_children(1).await?;
    assert!(!left.contains(&child), "the old child is gone");
    goes_on(&mut session, 2, 4).await?;
    assert_eq!(fleet.journal.of(Event::Initialized)?.len(), 2);
    fleet.gateways.remove(owner);
    assert_eq!(rebinds(&fleet.gateways, "owner").await?, 1);
    Ok(())
}

#[tokio::test]
async fn all_sessions_of_a_killed_owner_go_on_at_once_with_one_new_child_each() -> anyhow::Result<()>
{
    let mut fleet = OwnedFleet::start(3).await?;
    let mut sessions = Vec::new();
    for _ in 0..MANY {
        let mut session = fleet.open_at(0).await?;
        goes_on(&mut session, 1, 2).await?;
        sessions.push(session.fork(&fleet.client, &fleet.endpoints()[1..]));
    }
    let old = fleet.children()?;
    assert_eq!(old.len(), MANY);
    fleet.gateways[0].process().kill_now()?;
    let killed = Instant::now();
    let (client, endpoints) = (&fleet.client, &fleet.endpoints()[1..]);
    let calls = sessions.into_iter().map(|mut session| async move {
        // Two users of the session at once: one of them moves it, the other meets it where it is then.
        let mut one = session.fork(client, endpoints);
        let mut other = one.fork(client, endpoints);
        let both = tokio::try_join!(call(&mut one, "increment"), call(&mut other, "increment"))?;
        goes_on(&mut session, 3, 2).await?;
        anyhow::Ok(both)
    });
    for (one, other) in futures_util::future::try_join_all(calls).await? {
        let (first, second) = match crate::recovery::count_of(&one) {
            Some(1) => (one, other),
            _ => (other, one),
        };
        assert_begun_anew(&first);
        assert_eq!(crate::recovery::count_of(&second), Some(2), "{second:?}");
    }
    tell(&format!(
        "{MANY} sessions, four calls each, {} ms after their owner was killed, with beat_ttl_ms = {BEAT_TTL_MS}",
        killed.elapsed().as_millis()
    ));
    let left = fleet.until_children(MANY).await?;
    assert!(left.is_disjoint(&old), "no orphans: {old:?} {left:?}");
    assert_eq!(fleet.journal.of(Event::Initialized)?.len(), 2 * MANY);
    assert_eq!(rebinds(&fleet.gateways[1..], "owner").await?, MANY as u64);
    Ok(())
}
