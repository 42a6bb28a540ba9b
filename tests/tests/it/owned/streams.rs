//! Streams of connections that live in one worker: at any worker, one at a time, and resumed at any other.

use std::time::Duration;

use anyhow::Context;
use http::StatusCode;
use mooring_tests::client::Reply;
use mooring_tests::journal::Event;
use mooring_tests::session::{read_exchange, result_of};
use mooring_tests::wait;
use serde_json::{Value, json};

use crate::fixture_stdio::echo;
use crate::recovery::{OUTCOME_UNKNOWN, call};
use crate::rig::refusal;

use super::rig::{GONE_WITHIN, OwnedFleet, assert_begun_anew, error_code, goes_on, slow};

const BEGUN_WITHIN: Duration = Duration::from_secs(60);
const SLOW_MS: u64 = 1_500;

#[tokio::test]
async fn the_stream_of_no_request_opens_at_any_worker_once_and_again_after_a_kill()
-> anyhow::Result<()> {
    let mut fleet = OwnedFleet::start(3).await?;
    let mut session = fleet.open_at(0).await?;
    let mut stream = fleet.through(&session, &[1]).listen(None).await?;
    assert_eq!(stream.status, 200);
    asked_on(&mut session, &mut stream, "s1").await?;

    for gateway in [1, 2] {
        let second = fleet.through(&session, &[gateway]).listen(None).await?;
        assert_eq!(
            refusal(second).await?.0,
            StatusCode::CONFLICT,
            "at {gateway}"
        );
    }
    fleet.gateways[1].process().kill_now()?;
    let mut session = fleet.through(&session, &[0, 2]);
    // Before the store knows of the death the stream counts as open; whoever asks again gets it.
    let mut stream = wait::until("the stream of a dead worker", GONE_WITHIN, async || {
        let reply = fleet.through(&session, &[2]).listen(None).await?;
        Ok((reply.status == 200).then_some(reply))
    })
    .await?;
    asked_on(&mut session, &mut stream, "s2").await?;
    goes_on(&mut session, 1, 2).await?;
    assert_eq!(
        fleet.journal.of(Event::Initialized)?.len(),
        1,
        "the owner was not touched"
    );
    Ok(())
}

/// Asks through a call that is over by then; the question comes on the stream, and its answer through any worker.
async fn asked_on(
    session: &mut mooring_tests::session::McpSession,
    stream: &mut Reply,
    secret: &str,
) -> anyhow::Result<()> {
    session.ask_later(secret).await?;
    let question = loop {
        let message = stream.next_message().await?.context("the question")?;
        if message["method"] == "elicitation/create" {
            break message;
        }
    };
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": echo(&question)?});
    assert_eq!(session.post(&answer).await?.status, 202);
    let expected = format!("The secret is {secret}.");
    wait::until_true("the answer at the server", GONE_WITHIN, async || {
        let result = session.call("answers", json!({})).await?;
        Ok(result["structuredContent"]["answers"]
            .to_string()
            .contains(&expected))
    })
    .await
}

/// The id of the first event of a call's stream, by which it can be resumed.
async fn first_id(stream: &mut Reply) -> anyhow::Result<String> {
    let first = stream.next_event().await?.context("a priming event")?;
    first.id.context("an event with an id")
}

/// The worker through which a call came is killed; the owner lives, and the answer is fetched at a third.
#[tokio::test]
async fn a_call_is_resumed_at_another_worker_when_its_own_dies() -> anyhow::Result<()> {
    let mut fleet = OwnedFleet::start(3).await?;
    let session = fleet.open_at(0).await?;
    let mut at_edge = fleet.through(&session, &[1]);
    let running = at_edge.request_body("tools/call", slow(SLOW_MS, "cut"));
    let mut stream = at_edge.post(&running).await?;
    let id = first_id(&mut stream).await?;
    fleet
        .journal
        .wait_for(Event::Begin, 1, BEGUN_WITHIN)
        .await?;
    fleet.gateways[1].process().kill_now()?;
    while let Ok(Some(event)) = stream.next_event().await {
        assert_eq!(event.data, "", "the answer is still to come");
    }
    let resumed = fleet.through(&session, &[2]).listen(Some(&id)).await?;
    let result = result_of(read_exchange(resumed, &running).await?.response)?;
    assert_eq!(result["structuredContent"]["token"], "cut");
    // What has been answered can be asked for again, at the owner as well.
    let again = fleet.through(&session, &[0]).listen(Some(&id)).await?;
    assert_eq!(
        result_of(read_exchange(again, &running).await?.response)?,
        result
    );
    assert_eq!(
        fleet.journal.tokens_of(Event::Begin)?,
        ["cut"],
        "it ran once"
    );
    Ok(())
}

/// The owner is killed in mid-call: whoever waits, or resumes, is told that the call may have run.
#[tokio::test]
async fn a_call_whose_owner_dies_is_answered_on_its_stream_and_on_its_resume() -> anyhow::Result<()>
{
    for edge in [1, 0] {
        let mut fleet = OwnedFleet::start(3).await?;
        let session = fleet.open_at(0).await?;
        let mut at_edge = fleet.through(&session, &[edge]);
        let hanging = json!({"name": "hang", "arguments": {"token": "lost"}});
        let running = at_edge.request_body("tools/call", hanging);
        let mut stream = at_edge.post(&running).await?;
        let id = first_id(&mut stream).await?;
        fleet
            .journal
            .wait_for(Event::Begin, 1, BEGUN_WITHIN)
            .await?;
        fleet.gateways[0].process().kill_now()?;
        if edge != 0 {
            let told = read_exchange(stream, &running).await?;
            assert_may_have_run(&told.response);
        }
        let mut elsewhere = fleet.through(&session, &[2]);
        let resumed = elsewhere.listen(Some(&id)).await?;
        assert_eq!(resumed.status, 200, "through {edge}");
        assert_may_have_run(&read_exchange(resumed, &running).await?.response);
        let next = call(&mut elsewhere, "increment").await?;
        assert_eq!(crate::recovery::count_of(&next), Some(1), "{next:?}");
        if crate::recovery::mark_of(&next).is_some() {
            assert_begun_anew(&next);
        }
        fleet.until_children(1).await?;
    }
    Ok(())
}

#[track_caller]
fn assert_may_have_run(response: &Value) {
    assert_eq!(error_code(response), Some(OUTCOME_UNKNOWN), "{response}");
}
