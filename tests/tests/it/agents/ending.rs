//! How runs end that do not end by themselves: nothing of them is left, and their conversations go on.

use std::collections::BTreeSet;

use mooring_tests::agent::{AgentHome, AgentUser, Ids, SERVER};
use mooring_tests::gateway::Gateway;
use mooring_tests::process_tree::started_with;
use mooring_tests::redis::Redis;
use mooring_tests::stdio_client::StdioClient;
use serde_json::{Value, json};

use super::{
    ADA, Call, Scene, long_time, prompt_in, sleeper_toml, text, until_asleep, until_gone,
    until_running,
};

/// The id of the server whose runs last.
const SLEEPER: &str = "sleeper";

#[tokio::test]
async fn a_client_that_cancels_ends_its_own_run_with_all_that_it_started() -> anyhow::Result<()> {
    let scene = Scene::start(1, Ids::Stay, &sleeper_toml(SLEEPER, "")).await?;
    let gateway = &scene.gateways[0];
    let (mine, others) = (long_time(), long_time());
    let mut my_call = Call::begin(gateway, SLEEPER, ADA, json!({"prompt": mine})).await?;
    let mut others_call = Call::begin(gateway, SLEEPER, ADA, json!({"prompt": others})).await?;
    assert_eq!(my_call.id, others_call.id);
    until_asleep(&mine).await?;
    until_asleep(&others).await?;

    my_call.cancel().await?;
    let (answer, is_error) = my_call.answer().await?;
    assert!(is_error, "{answer}");
    let error = text(&answer, "error");
    assert!(error.contains("cancelled"), "{error}");
    assert_eq!(answer["exitCode"], Value::Null);
    assert_eq!(started_with(&mine)?, BTreeSet::new());
    // That the other client's request has the same id is nobody's business.
    assert_eq!(started_with(&others)?.len(), 2);
    assert_eq!(scene.runs("cancelled").await?, 1.0);

    others_call.cancel().await?;
    assert!(others_call.answer().await?.1);
    assert_eq!(started_with(&others)?, BTreeSet::new());
    assert_eq!(scene.runs("cancelled").await?, 2.0);
    Ok(())
}

#[tokio::test]
async fn a_run_that_takes_too_long_or_prints_too_much_is_ended() -> anyhow::Result<()> {
    let limits = "timeout_seconds = 5\noutput_bytes_max = 65536";
    let scene = Scene::start(1, Ids::Change, limits).await?;
    let mut ada = scene.user(ADA).await?;
    ada.run("chat", "remember a").await?;
    let sleep = format!("sleep {}", long_time());
    for (prompt, says, outcome) in [
        (sleep.as_str(), "too long", "timed_out"),
        ("spew 1000000", "too much", "broken"),
    ] {
        let (answer, is_error) = ada.call(prompt_in("chat", prompt)).await?;
        assert!(is_error, "{answer}");
        let error = text(&answer, "error");
        assert!(error.contains(says), "{error}");
        assert_eq!(
            started_with(&format!("--prompt={prompt}"))?,
            BTreeSet::new()
        );
        assert_eq!(scene.runs(outcome).await?, 1.0);
        // What it told before is where the conversation goes on.
        let told = text(&answer, "agentSessionId");
        assert_eq!(scene.home.remembered(&told)?, ["a"]);
    }
    let answer = ada.run("chat", "recall").await?;
    assert_eq!(answer["result"], "a");
    assert_eq!(answer["resumed"], true);
    assert_eq!(answer["startedFresh"], Value::Null);
    Ok(())
}

#[tokio::test]
async fn what_an_agent_leaves_behind_is_gone_when_its_call_is_answered() -> anyhow::Result<()> {
    let scene = Scene::start(1, Ids::Stay, "").await?;
    let mut ada = scene.user(ADA).await?;
    let mark = format!("stray-{:016x}", fastrand::u64(..));
    let pid = ada.ask("chat", &format!("spawn {mark}")).await?;
    assert!(pid.parse::<u32>().is_ok(), "{pid}");
    assert_eq!(started_with(&mark)?, BTreeSet::new());
    Ok(())
}

#[tokio::test]
async fn a_gateway_that_ends_in_mid_run_leaves_nothing_and_another_goes_on() -> anyhow::Result<()> {
    let (home, redis) = (AgentHome::new(Ids::Change)?, Redis::start().await?);
    let settings = home
        .settings(&redis.url(), &sleeper_toml(SLEEPER, ""))?
        .env("MOORING_WORKER_STOP_PATIENCE_MS", "0");
    for is_killed in [true, false] {
        let mut gateways = Gateway::fleet(2, &settings).await?;
        let parent = format!("chat {is_killed}");
        let mut before = AgentUser::open(&[&gateways[0]], ADA).await?;
        before.run(&parent, "remember a").await?;
        let (seconds, sleep) = (long_time(), format!("sleep {}", long_time()));
        let at = &gateways[0];
        let asleep = Call::begin(at, SLEEPER, ADA, json!({"prompt": seconds})).await?;
        let running = Call::begin(at, SERVER, ADA, prompt_in(&parent, &sleep)).await?;
        until_asleep(&seconds).await?;
        until_running(&sleep).await?;

        if is_killed {
            gateways[0].process().kill_now()?;
        } else {
            let status = gateways[0].process().terminate().await?;
            assert!(status.success(), "{status}");
        }
        until_gone(&seconds).await?;
        until_gone(&format!("--prompt={sleep}")).await?;
        // Whether they were answered depends on how the gateway ended.
        drop((asleep.answer().await, running.answer().await));
        let mut after = AgentUser::open(&[&gateways[1]], ADA).await?;
        let answer = after.run(&parent, "recall").await?;
        assert_eq!(answer["result"], "a", "killed: {is_killed}");
        assert_eq!(answer["resumed"], true);
        assert_eq!(answer["startedFresh"], Value::Null);
    }
    Ok(())
}

#[tokio::test]
async fn a_process_of_one_client_that_ends_in_mid_run_leaves_nothing() -> anyhow::Result<()> {
    let (home, state) = (AgentHome::new(Ids::Stay)?, tempfile::tempdir()?);
    let settings = home
        .settings("embedded", &sleeper_toml(SLEEPER, ""))?
        .state_home(state.path());
    let seconds = long_time();
    let mut client = StdioClient::open(&settings, SLEEPER, &[]).await?;
    let params = json!({"name": SLEEPER, "arguments": {"prompt": seconds}});
    client.send("tools/call", params).await?;
    until_asleep(&seconds).await?;
    client.kill().await?;
    until_gone(&seconds).await?;

    // One that is told by the end of its input finishes first what it was asked.
    let mut client = StdioClient::open(&settings, SERVER, &[]).await?;
    let params = json!({"name": SERVER, "arguments": prompt_in("chat", "sleep 0.5")});
    let id = client.send("tools/call", params).await?;
    client.close_input();
    let result = client.answer(id).await?;
    assert_eq!(result["structuredContent"]["result"], "slept 0.5");
    assert!(client.ended().await?.success(), "{}", client.log_text());
    Ok(())
}
