//! A call that waits for its client lets others have its turn, and nothing that its client answers waits for one.

use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::fleet::Fleet;
use mooring_tests::journal::Event;
use mooring_tests::session::{McpSession, read_exchange, result_of};
use mooring_tests::wait;
use serde_json::{Value, json};

use super::{HTTP, SOON, STDIO, Scene, slow};
use crate::rig::{increment, post_text};
use crate::scripted::Scripted;

/// How long a call is watched that must not reach its server: far longer than it takes one that may.
const WATCHED_FOR: Duration = Duration::from_millis(500);

async fn check(server: &str) -> anyhow::Result<()> {
    let scene = Scene::start(4).await?;
    let session = scene.session(server).await?;
    let arguments = json!({"message": "which?", "secret": "s"});
    let (mut asking, call) = scene
        .begin(&session, server, 1, (1, "ask", arguments))
        .reply()
        .await?;
    let question = asking.next_message().await?.expect("the question");
    assert_eq!(question["method"], "elicitation/create");

    // While it waits, another call runs from its begin to its end, and one more begins.
    let other = scene.begin(&session, server, 2, slow(2, "other"));
    result_of(other.answered().await?.response)?;
    let held = scene.hold(&session, server, 2).await?;

    // Neither its answer nor its reply waits for that one.
    let answer = json!({"jsonrpc": "2.0", "id": question["id"],
        "result": {"action": "accept", "content": {"answer": "this"}}});
    let posted = scene.at(&session, server, 3).post(&answer).await?;
    assert_eq!(posted.status, 202);
    let result = result_of(read_exchange(asking, &call).await?.response)?;
    let expected = json!({"action": "accept", "answer": "this", "secret": "s"});
    assert_eq!(result["structuredContent"], expected);

    // And the order holds on.
    let last = scene.begin(&session, server, 0, slow(3, "last"));
    scene.until_waiting(1).await?;
    scene.release()?;
    result_of(last.answered().await?.response)?;
    result_of(held.answered().await?.response)?;
    assert_eq!(
        scene.journal.tokens_of(Event::Begin)?,
        ["other", "held", "last"]
    );
    assert_eq!(scene.journal.overlap_max()?, 1);
    Ok(())
}

#[tokio::test]
async fn a_call_that_asks_its_client_lets_others_run() -> anyhow::Result<()> {
    check(HTTP).await
}

#[tokio::test]
async fn a_call_of_a_child_process_that_asks_its_client_lets_others_run() -> anyhow::Result<()> {
    check(STDIO).await
}

/// The first sign of the server's that a call goes on asks for the turn again: later calls wait for it once more.
#[tokio::test]
async fn a_call_that_goes_on_after_its_question_has_the_turn_again() -> anyhow::Result<()> {
    let mut upstream = Scripted::start().await?;
    let fleet = Fleet::start(3, &[upstream.url()]).await?;
    let client = HttpClient::default();
    let session = McpSession::open(&client, &fleet.endpoints()).await?;
    let at = |worker: usize| session.fork(&client, &[fleet.gateways[worker].mcp_url("tools")]);

    let (mut first, mut second, mut third) = (at(0), at(1), at(2));
    let asking = post_text(&client, &mut first, increment("1"));
    let questioned = async {
        let mut call = upstream.next().await?;
        call.begin_events().await?;
        call.event(r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#)
            .await?;
        anyhow::Ok(call)
    };
    let (mut asking, mut call) = tokio::try_join!(asking, questioned)?;
    assert_eq!(
        asking.next_message().await?.expect("the question")["method"],
        "roots/list"
    );

    let served = async {
        let passed_to = upstream.next().await?;
        passed_to.result(&json!({"content": []})).await
    };
    let (reply, ()) = tokio::try_join!(post_text(&client, &mut second, increment("2")), served)?;
    assert_eq!(reply.json().await?["id"], 2, "it ran while the other waits");

    call.event(
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"on"}}"#,
    )
    .await?;
    assert_eq!(
        asking.next_message().await?.expect("the sign")["method"],
        "notifications/message"
    );
    // The first one's, the second one's, and the first one's again.
    until_granted(&fleet, 3).await?;
    let seen = upstream.seen().len();
    let waiting = tokio::spawn(async move {
        let reply = post_text(&client, &mut third, increment("3")).await?;
        reply.json().await
    });
    tokio::time::sleep(WATCHED_FOR).await;
    assert_eq!(upstream.seen().len(), seen, "a later call waits for it");

    let id = call.wire_id();
    call.event(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}}}}"#
    ))
    .await?;
    call.end().await?;
    assert_eq!(asking.next_message().await?.expect("the answer")["id"], 1);
    let last = upstream.next().await?;
    last.result(&json!({"content": []})).await?;
    assert_eq!(waiting.await??["id"], 3);
    Ok(())
}

/// Waits until the fleet has given so many turns.
async fn until_granted(fleet: &Fleet, turns: u64) -> anyhow::Result<()> {
    wait::until_true("the turn of a call that goes on", SOON, async || {
        let stats = fleet.redis.cli(&["-3", "--json", "SESSION.STATS"])?;
        let stats: Value = serde_json::from_str(&stats)?;
        Ok(stats["turns_granted"].as_u64() == Some(turns))
    })
    .await
}
