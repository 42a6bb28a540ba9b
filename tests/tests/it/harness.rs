//! The harness's own doors: signals reach the process they are meant for, and waits end.

use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::wait;

#[tokio::test]
async fn a_stopped_process_keeps_its_connections_and_answers_once_continued() -> anyhow::Result<()>
{
    let mut fixture = Fixture::start("one").await?;
    let url = format!("http://127.0.0.1:{}/stats", fixture.port());
    fixture.process().stop()?;
    let impatient = HttpClient::new(Duration::from_millis(200));
    let error = impatient.get(&url).await.expect_err("nobody answers");
    assert!(
        error.to_string().starts_with("no reply within"),
        "{error:#}"
    );
    fixture.process().cont()?;
    fixture.stats().await?;
    Ok(())
}

#[tokio::test]
async fn a_killed_process_refuses_connections_and_is_signalled_no_more() -> anyhow::Result<()> {
    let mut fixture = Fixture::start("one").await?;
    fixture.process().kill_now()?;
    assert!(fixture.stats().await.is_err());
    assert!(
        fixture.process().stop().is_err(),
        "its id may be another process's by now"
    );
    fixture.process().kill_now()?;
    Ok(())
}

#[tokio::test]
async fn a_terminated_process_ends_cleanly() -> anyhow::Result<()> {
    let mut fixture = Fixture::start("one").await?;
    assert!(fixture.process().terminate().await?.success());
    Ok(())
}

#[tokio::test]
async fn a_wait_in_vain_says_what_for() {
    let limit = Duration::from_millis(50);
    let error = wait::until_true("the moon", limit, async || Ok(false))
        .await
        .expect_err("in vain");
    assert!(
        error.to_string().ends_with("in vain: the moon"),
        "{error:#}"
    );
}
