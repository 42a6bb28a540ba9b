//! Named, bounded waits that poll. Nothing in the tests sleeps for a guess.

use std::time::{Duration, Instant};

use anyhow::bail;

/// How long a process of this harness may take until it answers: generous, because the machine is shared.
pub const STARTED_WITHIN: Duration = Duration::from_secs(60);

/// How long a log line may take on a busy machine.
const LOGGED_WITHIN: Duration = Duration::from_secs(30);

/// Between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Polls `probe` until it yields a value; after `limit` fails with `what` was waited for.
///
/// The limit is not an assertion about speed: a test that passes should stay far below it.
pub async fn until<T>(
    what: &str,
    limit: Duration,
    mut probe: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let started = Instant::now();
    loop {
        if let Some(value) = probe().await? {
            return Ok(value);
        }
        if started.elapsed() >= limit {
            bail!("waited {limit:?} in vain: {what}");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Waits until a log has the text so many times: a process writes its log beside what it reports. The log.
pub async fn until_logged(
    text: &str,
    count: usize,
    mut read: impl FnMut() -> String,
) -> anyhow::Result<String> {
    let what = format!("{text:?} in the log, {count} times");
    until(&what, LOGGED_WITHIN, async || {
        let log = read();
        Ok((log.matches(text).count() >= count).then_some(log))
    })
    .await
}

/// [`until`] for a condition that is true or not yet.
pub async fn until_true(
    what: &str,
    limit: Duration,
    mut probe: impl AsyncFnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    until(what, limit, async || Ok(probe().await?.then_some(()))).await
}
