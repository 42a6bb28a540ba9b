//! The store's commands of a call: two if it takes a turn, of which it waits for one, and one if it does not.

use super::*;
use crate::reaping::calls;

const CALLS: u64 = 10;

/// How often Redis has run each command that calls send.
fn sent(redis: &Redis) -> anyhow::Result<[u64; 4]> {
    let [enter, leave, route, touch] = ["enter", "leave", "route", "touch"]
        .map(|command| calls(redis, &format!("session.{command}")));
    Ok([enter?, leave?, route?, touch?])
}

/// One call, to the end of its turn: a client that is faster than that end makes the next call ask twice.
async fn call(scene: &Scene, session: &mut McpSession) -> anyhow::Result<()> {
    session.call("whoami", json!({})).await?;
    wait::until_true("the turn to end", SOON, async || {
        let [enter, leave, ..] = sent(&scene.redis)?;
        Ok(enter == leave)
    })
    .await
}

#[tokio::test]
async fn a_call_sends_one_command_without_a_turn_and_two_with_one() -> anyhow::Result<()> {
    let scene = Scene::start(1).await?;
    for (server, each) in [(HTTP, [1, 1, 0, 0]), (PARALLEL, [0, 0, 1, 0])] {
        let mut session = scene.session(server).await?;
        // The first call may bind.
        call(&scene, &mut session).await?;
        let before = sent(&scene.redis)?;
        for _ in 0..CALLS {
            call(&scene, &mut session).await?;
        }
        let expected = [0, 1, 2, 3].map(|command| before[command] + CALLS * each[command]);
        assert_eq!(sent(&scene.redis)?, expected, "{server}");
    }
    Ok(())
}
