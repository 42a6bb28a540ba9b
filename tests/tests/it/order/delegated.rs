//! Delegated turns and routes: calls of a session that stay at one worker cost the store next to nothing, and a call that comes to
//! another worker waits for no more than the current one.

use mooring_tests::session::result_of;

use super::*;
use crate::reaping::calls;
use crate::recovery::counted;

/// Calls in a row.
const CALLS: u64 = 20;
/// What so many may cost where the turn is delegated: it is renewed about once a second, and a busy machine may make a
/// call last so long that it keeps the turn.
const COMMANDS_MAX: u64 = 4;

/// How many commands about turns and routes Redis has run.
fn commands(redis: &Redis) -> anyhow::Result<u64> {
    ["enter", "leave", "route", "touch"]
        .iter()
        .map(|command| calls(redis, &format!("session.{command}")))
        .sum()
}

/// Turns that were delegated to any worker.
async fn granted(scene: &Scene) -> anyhow::Result<u64> {
    counted(
        &scene.gateways,
        "mooring_turn_delegations_total",
        &["event=\"granted\""],
    )
    .await
}

/// Counts on until a turn was delegated once more.
async fn until_delegated(
    scene: &Scene,
    session: &mut McpSession,
    count: &mut u64,
) -> anyhow::Result<()> {
    let before = granted(scene).await?;
    wait::until_true("a turn to be delegated", SOON, async || {
        for _ in 0..4 {
            *count += 1;
            assert_eq!(session.increment().await?, *count);
        }
        Ok(granted(scene).await? > before)
    })
    .await
}

#[tokio::test]
async fn calls_in_a_row_at_one_worker_send_next_to_no_commands() -> anyhow::Result<()> {
    let scene = Scene::start(1).await?;
    for server in [HTTP, STDIO, PARALLEL] {
        let mut session = scene.session(server).await?;
        let mut count = 0;
        wait::until_true("calls in a row that cost nothing", SOON, async || {
            let before = commands(&scene.redis)?;
            for _ in 0..CALLS {
                count += 1;
                assert_eq!(session.increment().await?, count, "{server}");
            }
            Ok(commands(&scene.redis)? - before <= COMMANDS_MAX)
        })
        .await?;
    }
    Ok(())
}

/// Two clients of one session, whose connections may be served by different threads, and a third at another worker.
#[tokio::test]
async fn calls_of_a_session_never_overlap_wherever_they_come() -> anyhow::Result<()> {
    let scene = Scene::start(2).await?;
    let mut session = scene.session(HTTP).await?;
    let mut count = 0;
    until_delegated(&scene, &mut session, &mut count).await?;
    let mut clients = Vec::new();
    for number in 0..3_u64 {
        // Its own client has connections of its own.
        let (client, url) = (
            HttpClient::new(SOON),
            scene.endpoint(HTTP, usize::from(number == 2)),
        );
        let mut session = session.fork(&client, &[url]);
        clients.push(tokio::spawn(async move {
            for call in 0..CALLS {
                let arguments = json!({"ms": 1, "token": format!("{number}")});
                session.call("slow", arguments).await?;
                // Now and then one client is alone, so that turns are delegated again.
                if call % 7 == number {
                    tokio::time::sleep(Duration::from_millis(30)).await;
                }
            }
            Ok::<_, anyhow::Error>(())
        }));
    }
    for client in clients {
        client.await??;
    }
    assert_eq!(scene.journal.overlap_max()?, 1);
    assert_eq!(session.increment().await?, count + 1);
    Ok(())
}

/// One worker's client sends call after call without a pause.
#[tokio::test]
async fn a_call_at_another_worker_runs_during_a_burst() -> anyhow::Result<()> {
    let scene = Scene::start(2).await?;
    let mut session = scene.session(HTTP).await?;
    let mut count = 0;
    until_delegated(&scene, &mut session, &mut count).await?;
    let mut burst = session.fork(&scene.client, &[scene.endpoint(HTTP, 0)]);
    let bursting = tokio::spawn(async move {
        let mut counts = Vec::new();
        loop {
            match burst.increment().await {
                Ok(count) => counts.push(count),
                Err(error) => return Ok::<_, anyhow::Error>((counts, error.to_string())),
            }
        }
    });
    for _ in 0..5 {
        // Each may meet a new delegation.
        let mut elsewhere = scene.at(&session, HTTP, 1);
        let counted = tokio::time::timeout(SOON, elsewhere.increment()).await;
        let next = counted.context("it waits for the end of the burst")??;
        assert!(next > count, "{next} after {count}");
        count = next;
        assert!(!bursting.is_finished());
        let before = granted(&scene).await?;
        wait::until_true("the burst to have the turn again", SOON, async || {
            Ok(granted(&scene).await? > before)
        })
        .await?;
    }
    // Its end takes effect on the next call of the burst, too.
    let ended = scene.at(&session, HTTP, 1).delete().await?;
    assert_eq!(ended.status, 204);
    let (counts, _) = tokio::time::timeout(SOON, bursting).await???;
    assert!(counts.is_sorted(), "{counts:?}");
    Ok(())
}

#[tokio::test]
async fn a_cancelled_call_with_a_delegated_turn_lets_the_next_one_run() -> anyhow::Result<()> {
    let scene = Scene::start(2).await?;
    let mut session = scene.session(HTTP).await?;
    until_delegated(&scene, &mut session, &mut 0).await?;
    let held = scene.hold(&session, HTTP, 0).await?;
    let next = scene.begin(&session, HTTP, 1, slow(1, "next"));
    scene.until_waiting(1).await?;
    scene.cancel(&session, HTTP, 1, HELD_ID).await?;
    result_of(next.answered().await?.response)?;
    drop(held);
    Ok(())
}

#[tokio::test]
async fn without_delegations_every_call_asks_the_store() -> anyhow::Result<()> {
    let scene = Scene::start_without_delegations(1).await?;
    let mut session = scene.session(HTTP).await?;
    let before = calls(&scene.redis, "session.enter")?;
    for count in 1..=CALLS {
        assert_eq!(session.increment().await?, count);
    }
    assert!(calls(&scene.redis, "session.enter")? >= before + CALLS);
    assert_eq!(granted(&scene).await?, 0);
    Ok(())
}
