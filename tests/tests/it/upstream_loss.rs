//! An instance dies, is restarted, hangs, or all of them are away: what its sessions see, and what is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet::Fleet;
use mooring_tests::session::McpSession;
use mooring_tests::wait;
use serde_json::json;

use crate::faulty::{Fate, FaultyProxy};
use crate::recovery::{
    OUTCOME_UNKNOWN, Pair, attempt, binding, call, client_name, count_of, counted, mark_of,
    rebinds, warned_of, whoami,
};

const REBOUND_LOGGED: &str = "session rebound";

/// How long a gateway may need to see that an instance is back.
const NOTICED_WITHIN: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_killed_instance_costs_its_session_only_what_it_remembered() -> anyhow::Result<()> {
    let mut pair = Pair::start().await?;
    let mut fleet = Fleet::start(3, &pair.urls()).await?;
    let mut session = McpSession::open(&HttpClient::default(), &fleet.endpoints()).await?;
    session
        .request("logging/setLevel", json!({"level": "warning"}))
        .await?;
    let watched = json!({"uri": "test://watched-resource"});
    session.request("resources/subscribe", watched).await?;
    assert_eq!(session.increment().await?, 1);
    assert_eq!(session.increment().await?, 2);
    let set_up = whoami(&mut session).await?.set_up;
    assert_eq!(set_up["log_level"], "warning");
    assert_eq!(set_up["subscriptions"], json!(["test://watched-resource"]));

    let (home, other) = pair.home_and_other(&mut session).await?;
    home.process().kill_now()?;
    let first = call(&mut session, "increment").await?;
    assert_eq!(count_of(&first), Some(1), "{first:?}");
    let mark = mark_of(&first).expect("the reply is marked");
    let bound = binding(&fleet.redis, &session)?;
    assert_eq!(mark["from"], client_name(home));
    assert_eq!(mark["to"], client_name(other));
    assert_eq!(mark["epoch"], bound["epoch"]);
    assert_eq!(mark["state_lost"], true);
    assert!(
        mark["reason"]
            .as_str()
            .is_some_and(|reason| !reason.is_empty())
    );
    assert_eq!(warned_of(&first), [mark], "the user is warned once");

    let second = call(&mut session, "increment").await?;
    assert_eq!(count_of(&second), Some(2));
    assert_eq!(
        (mark_of(&second), warned_of(&second).len()),
        (None, 0),
        "told once"
    );
    assert_eq!(bound["instance"], other.url());
    assert_eq!(bound["rebinds"], 1);
    assert_eq!(
        other.stats().await?.initializes,
        1,
        "one new upstream session"
    );
    assert_eq!(
        whoami(&mut session).await?.set_up,
        set_up,
        "what the client set up is carried over"
    );
    assert_eq!(rebinds(&fleet.gateways, "upstream").await?, 1);
    assert_eq!(rebinds(&fleet.gateways, "worker").await?, 0);

    let logs = wait::until_logged(REBOUND_LOGGED, 1, || {
        let gateways = fleet.gateways.iter_mut();
        gateways
            .map(|gateway| gateway.process().log_text())
            .collect()
    })
    .await?;
    assert_eq!(logs.matches(REBOUND_LOGGED).count(), 1, "{logs}");
    assert!(
        !logs.contains(session.id().unwrap_or_default()),
        "a session id is a secret"
    );
    Ok(())
}

/// The stream moves the session, and has no reply that could bear the mark: the next call's does, through whichever gateway.
#[tokio::test]
async fn a_loss_that_the_clients_stream_met_is_marked_in_the_next_reply() -> anyhow::Result<()> {
    let mut pair = Pair::start().await?;
    let fleet = Fleet::start(3, &pair.urls()).await?;
    let mut session = McpSession::open(&HttpClient::default(), &fleet.endpoints()).await?;
    let watched = session.listen(None).await?;
    assert_eq!(watched.status, 200);
    assert_eq!(session.increment().await?, 1);

    let (home, other) = pair.home_and_other(&mut session).await?;
    home.process().kill_now()?;
    drop(watched);
    // The gateway of the former stream may still be giving it back.
    let mut stream = wait::until("the stream to open again", NOTICED_WITHIN, async || {
        let reply = session.listen(None).await?;
        Ok((reply.status == 200).then_some(reply))
    })
    .await?;
    let warning = stream.next_message().await?.expect("the warning");
    let warned = &warning["params"]["data"]["mooring/rebound"];
    assert_eq!(warned["from"], client_name(home), "{warning}");

    for expected in [Some(warned), None, None] {
        let next = call(&mut session, "increment").await?;
        assert_eq!(mark_of(&next), expected, "{next:?}");
        assert_eq!(warned_of(&next), Vec::from_iter(expected));
    }
    assert_eq!(other.stats().await?.initializes, 1);
    assert_eq!(rebinds(&fleet.gateways, "upstream").await?, 1);
    Ok(())
}

#[tokio::test]
async fn an_instance_restarted_on_its_port_keeps_its_session() -> anyhow::Result<()> {
    let mut pair = Pair::start().await?;
    let fleet = Fleet::start(3, &pair.urls()).await?;
    let mut session = McpSession::open(&HttpClient::default(), &fleet.endpoints()).await?;
    assert_eq!(session.increment().await?, 1);
    assert_eq!(session.increment().await?, 2);

    let (home, other) = pair.home_and_other(&mut session).await?;
    home.restart().await?;
    let first = call(&mut session, "increment").await?;
    assert_eq!(count_of(&first), Some(1), "{first:?}");
    let mark = mark_of(&first).expect("the reply is marked");
    assert_eq!(
        (&mark["from"], &mark["to"]),
        (&json!(client_name(home)), &json!(client_name(home)))
    );
    assert_eq!(warned_of(&first), [mark]);
    assert_eq!(session.increment().await?, 2);
    assert_eq!(home.stats().await?.initializes, 1);
    assert_eq!(other.stats().await?.initializes, 0);
    assert_eq!(rebinds(&fleet.gateways, "upstream").await?, 1);
    assert_eq!(binding(&fleet.redis, &session)?["rebinds"], 1);
    Ok(())
}

#[tokio::test]
async fn the_policy_to_fail_makes_the_client_initialize_again() -> anyhow::Result<()> {
    let mut pair = Pair::start().await?;
    let fleet = Fleet::start_with(3, &pair.urls(), "on_upstream_loss = \"fail\"\n").await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &fleet.endpoints()).await?;
    assert_eq!(session.increment().await?, 1);

    let (home, other) = pair.home_and_other(&mut session).await?;
    home.process().kill_now()?;
    for _ in 0..3 {
        let lost = attempt(&mut session, "increment").await?;
        assert_eq!(lost.status, 404, "{lost:?}");
    }
    assert_eq!(
        other.stats().await?.initializes,
        0,
        "nothing is made behind the client's back"
    );
    assert_eq!(rebinds(&fleet.gateways, "upstream").await?, 0);

    let mut again = McpSession::open(&client, &fleet.endpoints()).await?;
    assert_eq!(again.increment().await?, 1);
    assert_eq!(again.increment().await?, 2);
    Ok(())
}

#[tokio::test]
async fn with_every_instance_away_a_session_waits_for_the_first_that_returns() -> anyhow::Result<()>
{
    let mut pair = Pair::start().await?;
    let fleet = Fleet::start(3, &pair.urls()).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &fleet.endpoints()).await?;
    assert_eq!(session.increment().await?, 1);
    for fixture in pair.both() {
        fixture.process().kill_now()?;
    }
    // Every gateway in turn: what one of them tried may not stand in the way of the next.
    for _ in 0..3 {
        let refused = attempt(&mut session, "increment").await?;
        refused.assert_try_again();
    }
    let failures = counted(
        &fleet.gateways,
        "session_affinity_failures_total",
        &["reason=\"no_instance\""],
    );
    assert!(failures.await? >= 3);
    let opened = McpSession::open(&client, &fleet.endpoints()).await;
    let error = format!("{:#}", opened.expect_err("nobody can begin a session"));
    assert!(error.contains("503"), "{error}");

    let [_, back] = pair.both();
    back.restart().await?;
    let answered = wait::until(
        "an answer of the instance that is back",
        NOTICED_WITHIN,
        async || {
            let answered = attempt(&mut session, "increment").await?;
            Ok((answered.status == 200).then_some(answered))
        },
    )
    .await?;
    assert_eq!(answered.count(), 1);
    let exchange = answered.exchange.expect("a reply");
    assert!(
        mark_of(&exchange).is_some(),
        "the client is told that state was lost: {exchange:?}"
    );
    assert_eq!(session.increment().await?, 2);
    assert_eq!(back.stats().await?.initializes, 1);
    Ok(())
}

#[tokio::test]
async fn an_instance_that_hangs_is_not_taken_for_lost() -> anyhow::Result<()> {
    let mut pair = Pair::start().await?;
    // Shorter than the hang: whatever counted a late answer as a loss would show.
    let impatient = "[upstream]\nconnect_timeout_ms = 1000\nresponse_headers_timeout_ms = 1000\n\
                     claim_lease_ms = 1500\nlost_after_ms = 100\n";
    let fleet = Fleet::start_with(3, &pair.urls(), impatient).await?;
    let mut session = McpSession::open(&HttpClient::default(), &fleet.endpoints()).await?;
    assert_eq!(session.increment().await?, 1);
    let (home, other) = pair.home_and_other(&mut session).await?;
    home.process().stop()?;

    // One call through each gateway gives up on the client's side long after every limit above.
    let hasty = HttpClient::new(Duration::from_secs(4));
    let mut calls = tokio::task::JoinSet::new();
    let mut last = session.fork(&hasty, &[]);
    for endpoint in fleet.endpoints() {
        // A fork of a fork: no two of them use the same request id.
        let mut fork = last.fork(&hasty, &[endpoint]);
        last = fork.fork(&hasty, &[]);
        calls.spawn(async move { fork.increment().await });
    }
    while let Some(gave_up) = calls.join_next().await {
        let error = gave_up?.expect_err("the instance answers nothing");
        assert!(
            format!("{error:#}").contains("no reply within"),
            "{error:#}"
        );
    }
    let bound = binding(&fleet.redis, &session)?;
    assert_eq!(
        (&bound["state"], &bound["rebinds"]),
        (&json!("bound"), &json!(0))
    );

    home.process().cont()?;
    // A client that goes away has not cancelled: the three calls run, and each counts once.
    wait::until_true("the calls that hung to run", NOTICED_WITHIN, async || {
        Ok(home.stats().await?.calls_of("increment") == 4)
    })
    .await?;
    let next = call(&mut session, "increment").await?;
    assert_eq!(count_of(&next), Some(5));
    assert_eq!(mark_of(&next), None);
    assert_eq!(rebinds(&fleet.gateways, "upstream").await?, 0);
    assert_eq!(
        (
            home.stats().await?.initializes,
            other.stats().await?.initializes
        ),
        (1, 0)
    );
    Ok(())
}

/// Neither a connection that breaks nor a ping that is not answered proves a loss, nor do both together.
#[tokio::test]
async fn an_instance_that_hangs_while_connections_break_is_not_taken_for_lost() -> anyhow::Result<()>
{
    let (mut home, other) = (Fixture::start("a").await?, Fixture::start("b").await?);
    let breaks = Arc::new(AtomicBool::new(false));
    let armed = Arc::clone(&breaks);
    let proxy = FaultyProxy::start(home.port(), move |request| {
        if armed.load(Ordering::SeqCst) && request.text.contains("tools/call") {
            Fate::Swallow
        } else {
            Fate::Forward
        }
    })
    .await?;
    let impatient = "[upstream]\nresponse_headers_timeout_ms = 1000\n";
    let fleet = Fleet::start_with(2, &[proxy.url(), other.url()], impatient).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &fleet.endpoints()).await?;
    while whoami(&mut session).await?.instance != "a" {
        session = McpSession::open(&client, &fleet.endpoints()).await?;
    }
    assert_eq!(session.increment().await?, 1);

    breaks.store(true, Ordering::SeqCst);
    home.process().stop()?;
    for _ in 0..2 {
        let broken = call(&mut session, "increment").await?;
        assert_eq!(
            broken.response["error"]["code"], OUTCOME_UNKNOWN,
            "{broken:?}"
        );
    }
    home.process().cont()?;
    breaks.store(false, Ordering::SeqCst);
    let next = call(&mut session, "increment").await?;
    assert_eq!((count_of(&next), mark_of(&next)), (Some(2), None));
    assert_eq!(binding(&fleet.redis, &session)?["rebinds"], 0);
    assert_eq!(rebinds(&fleet.gateways, "upstream").await?, 0);
    Ok(())
}
