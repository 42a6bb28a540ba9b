//! The owner of a connection stands still and comes back when another has taken over: what it says late reaches nobody,
//! what it holds ends, and there is one state.

use std::time::Duration;

use mooring_tests::journal::Event;
use mooring_tests::process_tree::is_running;
use mooring_tests::session::read_exchange;
use mooring_tests::wait;
use serde_json::json;

use crate::recovery::{OUTCOME_UNKNOWN, call, count_of};

use super::rig::{GONE_WITHIN, OwnedFleet, assert_begun_anew, error_code, goes_on, pid_of, slow};

/// Long enough for the owner to be stopped in the middle.
const SLOW_MS: u64 = 400;
const BEGUN_WITHIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_frozen_owner_that_comes_back_finds_its_session_taken_and_says_nothing()
-> anyhow::Result<()> {
    let mut fleet = OwnedFleet::start(3).await?;
    let mut session = fleet.open_at(0).await?;
    goes_on(&mut session, 1, 3).await?;
    let old = pid_of(&mut session).await?;
    let mut through_one = fleet.through(&session, &[1]);
    let mut through_two = fleet.through(&session, &[2]);

    // A call runs, its owner freezes, and its child answers into a pipe that nobody reads.
    let running = through_one.request_body("tools/call", slow(SLOW_MS, "running"));
    let stream = through_one.post(&running).await?;
    fleet
        .journal
        .wait_for(Event::Begin, 1, BEGUN_WITHIN)
        .await?;
    fleet.gateways[0].process().stop()?;
    fleet.journal.wait_for(Event::End, 1, BEGUN_WITHIN).await?;

    // A list reaches the frozen owner and waits there: it carries the epoch of its time.
    let mut lister = through_one.fork(&fleet.client, &[fleet.endpoint(1)]);
    let listing = tokio::spawn(async move { lister.request("tools/list", json!({})).await });

    let told = read_exchange(stream, &running).await?;
    assert_eq!(
        error_code(&told.response),
        Some(OUTCOME_UNKNOWN),
        "{told:?}"
    );
    let taken_over = call(&mut through_two, "increment").await?;
    let listed = listing.await??;
    assert!(listed.response["result"]["tools"].is_array(), "{listed:?}");
    if count_of(&taken_over) == Some(1) && listed.before.is_empty() {
        assert_begun_anew(&taken_over);
    }
    let new = pid_of(&mut through_two).await?;
    assert_ne!(new, old);
    let owner = fleet.owner_of(&session)?;
    assert_ne!(owner, 0);

    fleet.gateways[0].process().cont()?;
    wait::until_true("the end of the old child", GONE_WITHIN, async || {
        Ok(!is_running(old))
    })
    .await?;
    assert_eq!(fleet.only_child()?, new);
    // The thawed worker serves the session again, by passing on to whoever owns it.
    goes_on(&mut session, 2, 6).await?;
    assert_eq!(fleet.owner_of(&session)?, owner);
    assert_eq!(fleet.journal.of(Event::Initialized)?.len(), 2);
    Ok(())
}

/// A call that the frozen owner finds in its socket when it comes back is not run: its epoch is over.
#[tokio::test]
async fn a_call_that_waited_at_a_frozen_owner_is_refused_when_it_comes_back() -> anyhow::Result<()>
{
    let mut fleet = OwnedFleet::start(2).await?;
    let mut session = fleet.open_at(0).await?;
    goes_on(&mut session, 1, 2).await?;
    let mut through_other = fleet.through(&session, &[1]);
    // The frozen worker must not hold the session's turn: then the call would not get as far as to it.
    let old = pid_of(&mut through_other).await?;
    fleet.gateways[0].process().stop()?;
    let waiting = through_other.request("tools/call", slow(0, "waited")).await;
    let code = waiting
        .as_ref()
        .ok()
        .and_then(|told| error_code(&told.response));
    let is_refused = waiting.as_ref().err().map(|error| format!("{error:#}"));
    assert!(
        code == Some(OUTCOME_UNKNOWN)
            || is_refused.is_some_and(|text| text.contains(&OUTCOME_UNKNOWN.to_string())),
        "{waiting:?}"
    );
    let exchange = call(&mut through_other, "increment").await?;
    assert_eq!(count_of(&exchange), Some(1), "{exchange:?}");

    fleet.gateways[0].process().cont()?;
    wait::until_true("the end of the old child", GONE_WITHIN, async || {
        Ok(!is_running(old))
    })
    .await?;
    goes_on(&mut session, 2, 4).await?;
    assert_eq!(
        fleet.journal.tokens_of(Event::Begin)?,
        Vec::<String>::new(),
        "it never ran"
    );
    Ok(())
}
