//! A worker that is killed in mid-call takes no turn with it.

use mooring_tests::journal::Event;
use mooring_tests::session::result_of;

use super::{HTTP, STDIO, Scene, slow};
use crate::recovery::{mark_of, warned_of};

#[tokio::test]
async fn the_turn_of_a_killed_worker_passes_on() -> anyhow::Result<()> {
    let mut scene = Scene::start(3).await?;
    let session = scene.session(HTTP).await?;
    let held = scene.hold(&session, HTTP, 0).await?;
    let mut waiting = Vec::new();
    for number in 1..=4_u64 {
        let worker = 1 + usize::try_from(number)? % 2;
        waiting.push(scene.begin(&session, HTTP, worker, slow(number, &number.to_string())));
        scene.until_waiting(number).await?;
    }
    scene.gateways[0].process().kill_now()?;
    assert!(held.answered().await.is_err(), "its worker is dead");
    for call in waiting {
        result_of(call.answered().await?.response)?;
    }
    assert_eq!(
        scene.journal.tokens_of(Event::Begin)?,
        ["held", "1", "2", "3", "4"]
    );
    Ok(())
}

#[tokio::test]
async fn the_turn_of_a_killed_owner_passes_on_and_its_child_is_made_anew() -> anyhow::Result<()> {
    let mut scene = Scene::start(2).await?;
    let session = scene.session(STDIO).await?;
    // Both wait at the survivor: their worker, not their client, finds out.
    let held = scene.hold(&session, STDIO, 1).await?;
    let waiting = scene.begin(&session, STDIO, 1, slow(1, "next"));
    scene.until_waiting(1).await?;
    scene.gateways[0].process().kill_now()?;

    let told = held.answered().await?;
    assert_eq!(
        told.response["error"]["code"],
        crate::recovery::OUTCOME_UNKNOWN,
        "{:?}",
        told.response
    );
    let next = waiting.answered().await?;
    assert_eq!(
        next.response["result"]["structuredContent"]["token"], "next",
        "{:?}",
        next.response
    );
    let is_told = |exchange| mark_of(exchange).is_some() || !warned_of(exchange).is_empty();
    assert!(
        is_told(&next) || is_told(&told) || told.response.to_string().contains("mooring/rebound"),
        "one of them says that the state is lost: {:?} {:?}",
        told.response,
        next.response
    );
    let started = scene.journal.of(Event::Started)?;
    let children = started.iter().filter(|entry| entry.instance == "child");
    assert_eq!(children.count(), 2);
    Ok(())
}
