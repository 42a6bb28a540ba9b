//! A call that is wanted no more leaves the queue, whichever worker is told of it.

use mooring_tests::journal::Event;
use mooring_tests::session::result_of;

use super::{HELD_ID, HTTP, STDIO, Scene, slow};

async fn check(server: &str) -> anyhow::Result<()> {
    let scene = Scene::start(3).await?;
    let session = scene.session(server).await?;
    let held = scene.hold(&session, server, 0).await?;
    let unwanted = scene.begin(&session, server, 1, slow(1, "unwanted"));
    scene.until_waiting(1).await?;
    let wanted = scene.begin(&session, server, 2, slow(2, "wanted"));
    scene.until_waiting(2).await?;

    scene.cancel(&session, server, 2, 1).await?;
    // It ends without an answer, as every call that its client withdrew, while the call before it still runs.
    let (mut reply, _) = unwanted.reply().await?;
    assert_eq!(
        (reply.status.as_u16(), reply.next_message().await?),
        (200, None)
    );
    scene.until_waiting(1).await?;

    // The one that runs is withdrawn at its server, from yet another worker.
    scene.cancel(&session, server, 1, HELD_ID).await?;
    result_of(wanted.answered().await?.response)?;
    drop(held);
    assert_eq!(scene.journal.tokens_of(Event::Cancelled)?, ["held"]);
    assert_eq!(
        scene.journal.tokens_of(Event::Begin)?,
        ["held", "wanted"],
        "the server never saw the call that was withdrawn"
    );
    Ok(())
}

#[tokio::test]
async fn a_call_that_waits_is_withdrawn_at_another_worker() -> anyhow::Result<()> {
    check(HTTP).await
}

#[tokio::test]
async fn a_call_that_waits_for_a_child_process_is_withdrawn_at_another_worker() -> anyhow::Result<()>
{
    check(STDIO).await
}
