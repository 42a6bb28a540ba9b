//! The store's commands of a call: two if it takes a turn, of which it waits for one, and one if it does not.

use super::*;
use crate::reaping::calls;

const CALLS: u64 = 20;

/// How often Redis has run each command that calls send.
fn sent(redis: &Redis) -> anyhow::Result<[u64; 4]> {
    let [enter, leave, route, touch] = ["enter", "leave", "route", "touch"]
        .map(|command| calls(redis, &format!("session.{command}")));
    Ok([enter?, leave?, route?, touch?])
}

#[tokio::test]
async fn a_call_sends_one_command_without_a_turn_and_two_with_one() -> anyhow::Result<()> {
    let scene = Scene::start(1).await?;
    for (server, each) in [(HTTP, [1, 1, 0, 0]), (PARALLEL, [0, 0, 1, 0])] {
        let mut session = scene.session(server).await?;
        // The first call may bind.
        session.call("whoami", json!({})).await?;
        let mut before = sent(&scene.redis)?;
        wait::until_true("the first turn to end", SOON, async || {
            before = sent(&scene.redis)?;
            Ok(before[0] == before[1])
        })
        .await?;
        for _ in 0..CALLS {
            session.call("whoami", json!({})).await?;
        }
        let expected = [0, 1, 2, 3].map(|command| before[command] + CALLS * each[command]);
        // The last turn may end after its call.
        wait::until_true("the last turn to end", SOON, async || {
            Ok(sent(&scene.redis)?[1] >= expected[1])
        })
        .await?;
        assert_eq!(sent(&scene.redis)?, expected, "{server}");
    }
    Ok(())
}
