//! One at a time and in the order of arrival, unless the server's settings say otherwise.

use mooring_tests::journal::Event;
use mooring_tests::session::result_of;
use serde_json::json;

use super::{HELD_ID, HTTP, PARALLEL, SOON, STDIO, Scene, slow};
use crate::rig::refusal;

/// Calls that wait at once, spread over the workers.
const CALLS: u64 = 50;

/// Lines the calls up behind one that does not end, so that the order of their arrival is known.
async fn check_order(server: &str) -> anyhow::Result<()> {
    let scene = Scene::start(8).await?;
    let session = scene.session(server).await?;
    let held = scene.hold(&session, server, 0).await?;
    let mut begun = Vec::new();
    for number in 0..CALLS {
        // Each at another worker than the one before it.
        let worker = usize::try_from(number)? * 3;
        let call = slow(number + 1, &number.to_string());
        begun.push(scene.begin(&session, server, worker, call));
        scene.until_waiting(number + 1).await?;
    }
    assert_eq!(scene.journal.tokens_of(Event::Begin)?, ["held"]);
    scene.release()?;
    for (number, call) in begun.into_iter().enumerate() {
        let result = result_of(call.answered().await?.response)?;
        assert_eq!(
            result["structuredContent"]["token"],
            number.to_string(),
            "every call has its own answer"
        );
    }
    result_of(held.answered().await?.response)?;
    assert_eq!(scene.journal.overlap_max()?, 1);
    let arrived: Vec<String> = (0..CALLS).map(|number| number.to_string()).collect();
    assert_eq!(scene.journal.tokens_of(Event::Begin)?[1..], arrived);
    Ok(())
}

#[tokio::test]
async fn calls_of_an_http_server_run_in_the_order_of_arrival_over_eight_workers()
-> anyhow::Result<()> {
    check_order(HTTP).await
}

#[tokio::test]
async fn calls_of_a_child_process_run_in_the_order_of_arrival_over_eight_workers()
-> anyhow::Result<()> {
    check_order(STDIO).await
}

#[tokio::test]
async fn calls_that_all_come_at_once_run_one_at_a_time() -> anyhow::Result<()> {
    let scene = Scene::start(4).await?;
    for server in [HTTP, STDIO] {
        let session = scene.session(server).await?;
        let calls: Vec<_> = (0..CALLS)
            .map(|number| {
                let worker = usize::try_from(number).unwrap();
                scene.begin(&session, server, worker, slow(number + 1, server))
            })
            .collect();
        for call in calls {
            result_of(call.answered().await?.response)?;
        }
    }
    assert_eq!(scene.journal.overlap_max()?, 1);
    let ended = scene.journal.of(Event::End)?.len();
    assert_eq!(u64::try_from(ended)?, 2 * CALLS);
    Ok(())
}

#[tokio::test]
async fn parallel_calls_overlap_and_sessions_do_not_wait_for_each_other() -> anyhow::Result<()> {
    let scene = Scene::start(2).await?;
    let session = scene.session(PARALLEL).await?;
    let mut held = Vec::new();
    for number in 0..4 {
        let call = (number + 1, "hang", json!({"token": "parallel"}));
        held.push(scene.begin(&session, PARALLEL, usize::try_from(number)?, call));
    }
    // Two other sessions, whose calls have turns of their own.
    for _ in 0..2 {
        let session = scene.session(HTTP).await?;
        let call = (1, "hang", json!({"token": "serial"}));
        held.push(scene.begin(&session, HTTP, 1, call));
    }
    scene.journal.wait_for(Event::Begin, 6, SOON).await?;
    assert_eq!(scene.journal.overlap_max()?, 6);
    Ok(())
}

#[tokio::test]
async fn a_call_beyond_the_queues_bound_is_refused_and_has_not_run() -> anyhow::Result<()> {
    let scene = Scene::start(2).await?;
    let bound = ["CONFIG", "SET", "mooring.turn-queue-max", "1"];
    scene.redis.cli(&bound)?;
    let session = scene.session(HTTP).await?;
    let _held = scene.hold(&session, HTTP, 0).await?;
    let waiting = scene.begin(&session, HTTP, 1, slow(1, "waiting"));
    scene.until_waiting(1).await?;
    let (reply, _) = scene
        .begin(&session, HTTP, 0, slow(2, "refused"))
        .reply()
        .await?;
    let (status, _) = refusal(reply).await?;
    assert_eq!(status, 429);
    scene.cancel(&session, HTTP, 1, HELD_ID).await?;
    result_of(waiting.answered().await?.response)?;
    assert_eq!(
        scene.journal.tokens_of(Event::Begin)?,
        ["held", "waiting"],
        "nothing of the refused call was done"
    );
    Ok(())
}
