//! The store's commands of a call whose turn is not delegated: two if it takes a turn, of which it waits for one, and one
//! if it does not.

use super::*;
use crate::reaping::calls;

const CALLS: usize = 10;

/// How often Redis has run each command that calls send.
fn sent(redis: &Redis) -> anyhow::Result<[u64; 4]> {
    let [enter, leave, route, touch] = ["enter", "leave", "route", "touch"]
        .map(|command| calls(redis, &format!("session.{command}")));
    Ok([enter?, leave?, route?, touch?])
}

/// What one call has sent, once its turn has ended: a client that is faster than that makes the next call ask twice.
async fn cost(scene: &Scene, session: &mut McpSession, leaves: u64) -> anyhow::Result<[u64; 4]> {
    let before = sent(&scene.redis)?;
    session.call("whoami", json!({})).await?;
    let mut after = before;
    wait::until_true("the turn to end", SOON, async || {
        after = sent(&scene.redis)?;
        Ok(after[1] >= before[1] + leaves)
    })
    .await?;
    Ok([0, 1, 2, 3].map(|command| after[command] - before[command]))
}

#[tokio::test]
async fn a_call_sends_one_command_without_a_turn_and_two_with_one() -> anyhow::Result<()> {
    let scene = Scene::start_without_delegations(1).await?;
    for (server, each) in [(HTTP, [1, 1, 0, 0]), (PARALLEL, [0, 0, 1, 0])] {
        let mut session = scene.session(server).await?;
        let mut costs = Vec::new();
        for _ in 0..CALLS {
            costs.push(cost(&scene, &mut session, each[1]).await?);
        }
        // The first call may bind, and on a busy machine one may last until its turn is renewed.
        let usual = costs.iter().filter(|cost| **cost == each).count();
        assert!(usual > costs.len() / 2, "{server}: {costs:?}");
    }
    Ok(())
}
