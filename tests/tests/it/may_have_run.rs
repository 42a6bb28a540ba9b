//! A call that may have run is never sent twice behind the client's back: the client is told, and decides.
//!
//! Every test counts how often the tool began to run, on every instance, dead ones included.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet::Fleet;
use mooring_tests::session::{Exchange, McpSession, Opening, read_exchange};
use mooring_tests::wait;
use serde_json::json;

use crate::faulty::{Fate, FaultyProxy};
use crate::recovery::{
    OUTCOME_UNKNOWN, Pair, attempt, binding, call, count_of, counted, mark_of, rebinds,
};

const BEGUN_WITHIN: Duration = Duration::from_secs(60);

/// The last revision whose streams carry no event ids.
const WITHOUT_EVENT_IDS: &str = "2025-06-18";

#[track_caller]
fn assert_may_have_run(exchange: &Exchange) {
    let error = &exchange.response["error"];
    assert_eq!(error["code"], OUTCOME_UNKNOWN, "{exchange:?}");
    let message = error["message"].as_str().unwrap_or_default();
    assert!(message.contains("may have run"), "{message}");
}

/// Begins `slow_increment`, and waits until it runs at its instance.
async fn begin_slow(
    session: &McpSession,
    endpoint: String,
    home: &Fixture,
) -> anyhow::Result<tokio::task::JoinHandle<anyhow::Result<Exchange>>> {
    let mut fork = session.fork(&HttpClient::default(), &[endpoint]);
    let running = tokio::spawn(async move {
        let arguments = json!({"delay_ms": 30_000});
        let params = json!({"name": "slow_increment", "arguments": arguments});
        let request = fork.request_body("tools/call", params);
        let reply = fork.post(&request).await?;
        read_exchange(reply, &request).await
    });
    wait::until_true("slow_increment to run", BEGUN_WITHIN, async || {
        Ok(home.stats().await?.calls_of("slow_increment") == 1)
    })
    .await?;
    Ok(running)
}

/// What becomes of the instance in the middle of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Killed,
    Restarted,
}

async fn check_running_call(end: End, revision: &str) -> anyhow::Result<()> {
    let mut pair = Pair::start().await?;
    let fleet = Fleet::start(2, &pair.urls()).await?;
    let opening = Opening {
        protocol_version: revision.to_owned(),
        ..Opening::default()
    };
    let client = HttpClient::default();
    let mut session = McpSession::open_with(&client, &fleet.endpoints(), opening).await?;
    let (home, other) = pair.home_and_other(&mut session).await?;
    let running = begin_slow(&session, fleet.endpoints()[0].clone(), home).await?;
    match end {
        End::Killed => home.process().kill_now()?,
        End::Restarted => home.restart().await?,
    }
    assert_may_have_run(&running.await??);

    let next = call(&mut session, "increment").await?;
    assert_eq!(count_of(&next), Some(1));
    assert!(mark_of(&next).is_some(), "{next:?}");
    assert_eq!(other.stats().await?.calls_of("slow_increment"), 0);
    if end == End::Restarted {
        assert_eq!(home.stats().await?.calls_of("slow_increment"), 0);
    }
    assert_eq!(binding(&fleet.redis, &session)?["rebinds"], 1);
    Ok(())
}

#[tokio::test]
async fn a_call_whose_instance_is_killed_is_not_sent_to_another() -> anyhow::Result<()> {
    check_running_call(End::Killed, WITHOUT_EVENT_IDS).await
}

#[tokio::test]
async fn a_call_whose_instance_is_restarted_is_not_sent_again() -> anyhow::Result<()> {
    check_running_call(End::Restarted, WITHOUT_EVENT_IDS).await
}

/// With event ids a cut stream can be resumed, so the cut alone says nothing yet.
#[tokio::test]
async fn a_call_with_event_ids_whose_instance_is_killed_is_told_of() -> anyhow::Result<()> {
    check_running_call(End::Killed, "2025-11-25").await
}

#[tokio::test]
async fn a_call_with_event_ids_whose_instance_is_restarted_is_told_of() -> anyhow::Result<()> {
    check_running_call(End::Restarted, "2025-11-25").await
}

/// The instance is stopped, so that the request is delivered and not answered; then it is killed.
async fn kill_before_the_answer(
    tool: &'static str,
) -> anyhow::Result<(Pair, Fleet, Exchange, McpSession)> {
    let mut pair = Pair::start().await?;
    let fleet = Fleet::start(2, &pair.urls()).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &fleet.endpoints()).await?;
    assert_eq!(session.increment().await?, 1);
    let (home, _) = pair.home_and_other(&mut session).await?;
    let unread_before = unread_bytes(home.port())?;
    home.process().stop()?;
    let mut fork = session.fork(&client, &fleet.endpoints());
    let waiting = tokio::spawn(async move { call(&mut fork, tool).await });
    wait::until_true(
        "the request to reach the instance",
        BEGUN_WITHIN,
        async || Ok(unread_bytes(home.port())? > unread_before),
    )
    .await?;
    home.process().kill_now()?;
    let exchange = waiting.await??;
    Ok((pair, fleet, exchange, session))
}

/// Bytes that wait in the kernel for whoever listens on a port of 127.0.0.1, as /proc/net/tcp shows them.
fn unread_bytes(port: u16) -> anyhow::Result<u64> {
    let local = format!(":{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp")?;
    let unread = table.lines().filter_map(|line| {
        let mut columns = line.split_whitespace().skip(1);
        let is_local = columns.next()?.ends_with(&local);
        let state = columns.nth(1)?;
        let (_, unread) = columns.next()?.split_once(':')?;
        // 01 is an established connection; for a listener the column has another meaning.
        (is_local && state == "01").then(|| u64::from_str_radix(unread, 16).ok())?
    });
    Ok(unread.sum())
}

#[tokio::test]
async fn a_call_that_was_delivered_to_a_dying_instance_is_not_sent_again() -> anyhow::Result<()> {
    let (mut pair, fleet, exchange, mut session) = kill_before_the_answer("increment").await?;
    assert_may_have_run(&exchange);
    let mark = &exchange.response["error"]["data"]["mooring/rebound"];
    assert_eq!(
        mark["state_lost"], true,
        "the error tells of the loss too: {exchange:?}"
    );
    let next = call(&mut session, "increment").await?;
    assert_eq!(count_of(&next), Some(1), "{next:?}");
    assert!(mark_of(&next).is_some(), "an error is no result: {next:?}");
    let alive = pair.home_and_other(&mut session).await?.0;
    assert_eq!(alive.stats().await?.calls_of("increment"), 1);
    assert_eq!(rebinds(&fleet.gateways, "upstream").await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_harmless_call_that_was_delivered_to_a_dying_instance_is_sent_again() -> anyhow::Result<()>
{
    let (mut pair, fleet, exchange, mut session) = kill_before_the_answer("whoami").await?;
    assert!(
        exchange.response["result"]["structuredContent"]["instance"].is_string(),
        "{exchange:?}"
    );
    assert!(mark_of(&exchange).is_some(), "{exchange:?}");
    let alive = pair.home_and_other(&mut session).await?.0;
    // Once for the repeated call, once for the look at who is alive.
    assert_eq!(alive.stats().await?.calls_of("whoami"), 2);
    assert_eq!(rebinds(&fleet.gateways, "upstream").await?, 1);
    Ok(())
}

/// A proxy that does `fate` to the first call of `tool`, and a fleet in front of it.
async fn behind_a_proxy(
    fixture: &Fixture,
    tool: &str,
    fate: Fate,
) -> anyhow::Result<(FaultyProxy, Fleet, Arc<AtomicUsize>)> {
    let met = Arc::new(AtomicUsize::new(0));
    let (seen, name) = (Arc::clone(&met), format!("\"name\":\"{tool}\""));
    let proxy = FaultyProxy::start(fixture.port(), move |request| {
        let is_call = request.text.contains("tools/call") && request.text.contains(&name);
        if is_call && seen.fetch_add(1, Ordering::SeqCst) == 0 {
            fate
        } else {
            Fate::Forward
        }
    })
    .await?;
    let fleet = Fleet::start(1, &[proxy.url()]).await?;
    Ok((proxy, fleet, met))
}

#[tokio::test]
async fn a_request_that_was_read_and_not_answered_is_not_sent_again() -> anyhow::Result<()> {
    for (fate, runs) in [(Fate::Swallow, 0), (Fate::RunAndClose, 1)] {
        let fixture = Fixture::start("one").await?;
        let (_proxy, fleet, met) = behind_a_proxy(&fixture, "increment", fate).await?;
        let mut session = McpSession::open(&HttpClient::default(), &fleet.endpoints()).await?;
        assert_may_have_run(&call(&mut session, "increment").await?);
        assert_eq!(
            met.load(Ordering::SeqCst),
            1,
            "{fate:?}: the request came once"
        );
        // The reply may begin before the tool does.
        wait::until_true("the call to run", BEGUN_WITHIN, async || {
            Ok(fixture.stats().await?.calls_of("increment") == runs)
        })
        .await?;

        // The session itself is alive, which is found out before it is given up.
        let next = attempt(&mut session, "increment").await?;
        assert_eq!(next.count(), runs + 1, "{fate:?}");
        assert_eq!(fixture.stats().await?.calls_of("increment"), runs + 1);
        assert_eq!(rebinds(&fleet.gateways, "upstream").await?, 0, "{fate:?}");
        assert_eq!(fixture.stats().await?.initializes, 1, "{fate:?}");
    }
    Ok(())
}

/// What fails after the call does not make it a call that has not run.
#[tokio::test]
async fn a_call_that_ran_at_the_only_instance_is_not_answered_with_try_again() -> anyhow::Result<()>
{
    let fixture = Fixture::start("one").await?;
    let (proxy, fleet, _) = behind_a_proxy(&fixture, "increment", Fate::RunAndHold).await?;
    let mut session = McpSession::open(&HttpClient::default(), &fleet.endpoints()).await?;
    let mut fork = session.fork(&HttpClient::default(), &fleet.endpoints());
    let waiting = tokio::spawn(async move { attempt(&mut fork, "increment").await });
    wait::until_true("the call to run", BEGUN_WITHIN, async || {
        Ok(fixture.stats().await?.calls_of("increment") == 1)
    })
    .await?;
    drop(proxy);
    let answered = waiting.await??;
    let exchange = answered.exchange.as_ref();
    assert_may_have_run(exchange.unwrap_or_else(|| panic!("{answered:?}")));
    let reason = ["reason=\"no_instance\""];
    let failures = counted(&fleet.gateways, "session_affinity_failures_total", &reason).await?;
    assert!(failures > 0, "the recovery failed");
    // The next call reaches no instance at all, and is told so.
    attempt(&mut session, "increment").await?.assert_try_again();
    assert_eq!(fixture.stats().await?.calls_of("increment"), 1);
    Ok(())
}

#[tokio::test]
async fn a_harmless_request_that_was_read_and_not_answered_is_sent_again() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let (_proxy, fleet, met) = behind_a_proxy(&fixture, "whoami", Fate::Swallow).await?;
    let mut session = McpSession::open(&HttpClient::default(), &fleet.endpoints()).await?;
    let exchange = call(&mut session, "whoami").await?;
    assert_eq!(
        exchange.response["result"]["structuredContent"]["instance"],
        "one"
    );
    assert_eq!(mark_of(&exchange), None, "nothing was lost");
    assert_eq!(met.load(Ordering::SeqCst), 2);
    assert_eq!(fixture.stats().await?.calls_of("whoami"), 1);
    assert_eq!(rebinds(&fleet.gateways, "upstream").await?, 0);
    Ok(())
}

/// A server that cuts a reply on purpose (SEP-1699) is to be asked for the rest by its event id.
#[tokio::test]
async fn a_stream_that_ends_cleanly_after_an_event_id_is_left_to_be_resumed() -> anyhow::Result<()>
{
    let fixture = Fixture::start("one").await?;
    let fleet = Fleet::start(2, &[fixture.url()]).await?;
    let mut session = McpSession::open(&HttpClient::default(), &fleet.endpoints()).await?;
    let params = json!({"name": "test_reconnection", "arguments": {}});
    let request = session.request_body("tools/call", params);
    let mut stream = session.post(&request).await?;
    let mut last_event_id = None;
    while let Some(event) = stream.next_event().await? {
        assert_eq!(event.data, "", "no answer yet, and no error");
        last_event_id = event.id.or(last_event_id);
    }
    let resumed = session.listen(last_event_id.as_deref()).await?;
    let exchange = read_exchange(resumed, &request).await?;
    assert!(exchange.response["result"].is_object(), "{exchange:?}");
    assert_eq!(fixture.stats().await?.calls_of("test_reconnection"), 1);
    Ok(())
}
