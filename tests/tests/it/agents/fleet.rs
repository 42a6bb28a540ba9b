//! Conversations over several gateways that share nothing but Redis and the agent's own files.

use std::collections::BTreeSet;

use futures_util::future::try_join_all;
use mooring_tests::agent::{AgentUser, Ids, SERVER};
use mooring_tests::stdio_client::StdioClient;
use serde_json::Value;

use super::{
    ADA, Call, RUNS, Scene, long_time, one_after_another, prompt_in, text, until_gone,
    until_running,
};

/// Gateways of a fleet.
const GATEWAYS: usize = 3;

#[tokio::test]
async fn a_conversation_goes_on_at_whichever_gateway() -> anyhow::Result<()> {
    for ids in [Ids::Stay, Ids::Change] {
        let scene = Scene::start(GATEWAYS, ids, "").await?;
        let mut ada = scene.user(ADA).await?;
        let mut remembered = Vec::new();
        for number in 0..2 * GATEWAYS {
            let answer = ada.run("chat", &format!("remember {number}")).await?;
            assert_eq!(answer["resumed"], number > 0, "{ids:?}: {answer}");
            assert_eq!(answer["startedFresh"], Value::Null);
            remembered.push(number.to_string());
        }
        assert_eq!(ada.ask("chat", "recall").await?, remembered.join("\n"));
        // Every gateway has run some of them.
        for gateway in &scene.gateways {
            assert!(gateway.metric(RUNS, &[]).await? > 0.0);
        }
    }
    Ok(())
}

#[tokio::test]
async fn calls_of_one_conversation_at_once_run_one_after_another() -> anyhow::Result<()> {
    const CALLS: usize = 20;
    // Where every run has a new id, one that did not see the run before it would leave that out.
    let scene = Scene::start(GATEWAYS, Ids::Change, "").await?;
    let mut users = Vec::new();
    for number in 0..CALLS {
        let gateway = &scene.gateways[number % GATEWAYS];
        users.push(AgentUser::open(&[gateway], ADA).await?);
    }
    let calls = users
        .iter_mut()
        .enumerate()
        .map(|(number, user)| async move {
            let answer = user.run("chat", &format!("remember {number}")).await?;
            anyhow::Ok(text(&answer, "agentSessionId"))
        });
    let sessions = try_join_all(calls).await?;
    let remembered = one_after_another(&scene.home, &sessions)?;
    let recalled = users[0].ask("chat", "recall").await?;
    assert_eq!(recalled, remembered.join("\n"));
    let all: BTreeSet<usize> = remembered
        .iter()
        .map(|number| number.parse())
        .collect::<Result<_, _>>()?;
    assert_eq!(all, (0..CALLS).collect());
    assert_eq!(remembered.len(), CALLS);
    Ok(())
}

#[tokio::test]
async fn a_gateway_that_is_killed_while_it_runs_one_holds_up_nobody_else() -> anyhow::Result<()> {
    const CALLS: usize = 6;
    let mut scene = Scene::start(GATEWAYS, Ids::Change, "").await?;
    let mut ada = scene.user(ADA).await?;
    ada.run("chat", "remember first").await?;
    let sleep = format!("sleep {}", long_time());
    let killed = Call::begin(&scene.gateways[0], SERVER, ADA, prompt_in("chat", &sleep)).await?;
    until_running(&sleep).await?;
    let mut users = Vec::new();
    for number in 0..CALLS {
        // None at the one that will be killed.
        let gateway = &scene.gateways[1 + number % (GATEWAYS - 1)];
        users.push(AgentUser::open(&[gateway], ADA).await?);
    }
    let calls = users
        .iter_mut()
        .enumerate()
        .map(|(number, user)| async move {
            let answer = user.run("chat", &format!("remember {number}")).await?;
            assert_eq!(answer["resumed"], true, "{answer}");
            anyhow::Ok(())
        });
    let kill = async { scene.gateways[0].process().kill_now() };
    tokio::try_join!(try_join_all(calls), kill)?;
    until_gone(&format!("--prompt={sleep}")).await?;
    assert!(killed.answer().await.is_err());

    let recalled = users[0].ask("chat", "recall").await?;
    let mut lines: Vec<&str> = recalled.lines().collect();
    assert_eq!(lines.remove(0), "first");
    let all: BTreeSet<String> = lines.iter().map(|line| (*line).to_owned()).collect();
    assert_eq!(all, (0..CALLS).map(|number| number.to_string()).collect());
    assert_eq!(lines.len(), CALLS);
    Ok(())
}

#[tokio::test]
async fn a_process_of_one_client_goes_on_where_a_gateway_was() -> anyhow::Result<()> {
    let scene = Scene::start(1, Ids::Change, "").await?;
    let mut ada = scene.user(ADA).await?;
    ada.run("chat", "remember gateway").await?;
    // What its file says of the store, the command line changes.
    let settings = scene.home.settings("embedded", "")?;
    let url = scene.redis.url();
    let store = ["--store", &url];
    for (principal, remembered) in [(ADA, "gateway"), ("local", "")] {
        let words = [&store[..], &["--principal", principal]].concat();
        let mut client = StdioClient::open(&settings, SERVER, &words).await?;
        let answer = client.ask(SERVER, prompt_in("chat", "recall")).await?;
        assert_eq!(answer["result"], remembered, "{principal}");
        let prompt = format!("remember {principal}");
        client.ask(SERVER, prompt_in("chat", &prompt)).await?;
        client.close().await?;
    }
    let recalled = ada.ask("chat", "recall").await?;
    assert_eq!(recalled, format!("gateway\n{ADA}"));
    Ok(())
}
