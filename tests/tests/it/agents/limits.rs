//! How many conversations and runs there may be, and for how long a conversation can be taken up.

use std::time::Duration;

use mooring_tests::agent::{AgentHome, AgentUser, Ids, SERVER};
use mooring_tests::gateway::Gateway;
use mooring_tests::redis::Redis;
use mooring_tests::wait;
use serde_json::{Value, json};

use super::{ADA, BOB, Call, SEEN_WITHIN, Scene, long_time, prompt_in, text, until_running};

/// How long a conversation is left alone so that it lapses: more than its time to live, which is one second.
const LAPSE: Duration = Duration::from_millis(1_500);
/// How often it is left alone at most.
const LAPSES_MAX: usize = 10;

/// A gateway over each kind of store.
async fn gateways(
    home: &AgentHome,
    redis: &Redis,
    more: &str,
) -> anyhow::Result<[(&'static str, Gateway); 2]> {
    let over_redis = home.settings(&redis.url(), more)?;
    let embedded = home.settings("embedded", more)?;
    Ok([
        ("redis", Gateway::start("redis", over_redis).await?),
        ("embedded", Gateway::start("embedded", embedded).await?),
    ])
}

#[tokio::test]
async fn no_more_runs_go_on_at_once_than_may() -> anyhow::Result<()> {
    let scene = Scene::start(1, Ids::Stay, "children_max = 2").await?;
    let mut running = Vec::new();
    for user in [ADA, BOB] {
        let prompt = format!("sleep {}", long_time());
        let arguments = json!({"prompt": prompt});
        running.push(Call::begin(&scene.gateways[0], SERVER, user, arguments).await?);
        until_running(&prompt).await?;
    }
    let mut ada = scene.user(ADA).await?;
    let (answer, is_error) = ada.call(prompt_in("chat", "remember a")).await?;
    assert!(is_error, "{answer}");
    let error = text(&answer, "error");
    assert!(error.contains("as many"), "{error}");
    assert!(scene.home.sessions()?.len() <= 2, "it was run");

    let mut ended = running.pop().unwrap();
    ended.cancel().await?;
    assert!(ended.answer().await?.1);
    // Its place is free once the last of it is gone.
    wait::until_true("a place for another run", SEEN_WITHIN, async || {
        Ok(!ada.call(prompt_in("chat", "remember b")).await?.1)
    })
    .await?;
    assert_eq!(ada.ask("chat", "recall").await?, "b");
    for mut call in running {
        call.cancel().await?;
    }
    Ok(())
}

#[tokio::test]
async fn beyond_the_most_the_conversation_used_longest_ago_is_forgotten() -> anyhow::Result<()> {
    let (home, redis) = (AgentHome::new(Ids::Stay)?, Redis::start().await?);
    for (store, gateway) in gateways(&home, &redis, "sessions_max = 3").await? {
        let mut ada = AgentUser::open(&[&gateway], ADA).await?;
        let mut bob = AgentUser::open(&[&gateway], BOB).await?;
        bob.run("a", "remember bob").await?;
        for parent in ["a", "b", "c"] {
            ada.run(parent, &format!("remember {parent}")).await?;
        }
        // The one that was begun first is used last, and is only read.
        assert_eq!(ada.ask("a", "recall").await?, "a");
        ada.run("d", "remember d").await?;
        for parent in ["a", "c", "d"] {
            let answer = ada.run(parent, "recall").await?;
            assert_eq!(answer["result"], parent, "{store}");
            assert_eq!(answer["resumed"], true, "{store}: {parent}");
        }
        let answer = ada.run("b", "recall").await?;
        assert_eq!(answer["result"], "", "{store}");
        assert_eq!(answer["resumed"], false, "{store}");
        // That took the place of the one used longest ago by now.
        let answer = ada.run("a", "recall").await?;
        assert_eq!(answer["resumed"], false, "{store}");
        // Each principal has its own number of them.
        assert_eq!(bob.ask("a", "recall").await?, "bob", "{store}");
    }
    Ok(())
}

#[tokio::test]
async fn a_conversation_that_was_not_used_for_its_time_is_forgotten() -> anyhow::Result<()> {
    let (home, redis) = (AgentHome::new(Ids::Stay)?, Redis::start().await?);
    for (store, gateway) in gateways(&home, &redis, "session_ttl_seconds = 1").await? {
        let mut ada = AgentUser::open(&[&gateway], ADA).await?;
        ada.run("chat", "remember a").await?;
        let mut answer = Value::Null;
        for _ in 0..LAPSES_MAX {
            // Asking is using: what is waited for is that nobody asks.
            tokio::time::sleep(LAPSE).await;
            answer = ada.run("chat", "recall").await?;
            if answer["resumed"] == false {
                break;
            }
        }
        assert_eq!(answer["resumed"], false, "{store}: {answer}");
        assert_eq!(answer["result"], "", "{store}");
    }
    Ok(())
}

#[tokio::test]
async fn a_conversation_does_not_lapse_while_a_call_of_it_runs() -> anyhow::Result<()> {
    let (home, redis) = (AgentHome::new(Ids::Change)?, Redis::start().await?);
    for (store, gateway) in gateways(&home, &redis, "session_ttl_seconds = 3").await? {
        let mut ada = AgentUser::open(&[&gateway], ADA).await?;
        ada.run("chat", "remember a").await?;
        ada.run("chat", "sleep 4").await?;
        let answer = ada.run("chat", "recall").await?;
        assert_eq!(answer["resumed"], true, "{store}: {answer}");
        assert_eq!(answer["result"], "a", "{store}");
    }
    Ok(())
}
