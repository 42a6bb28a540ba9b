//! US-3: Operator - Multi-Worker Session Affinity. "As a Platform Operator running multiple gateway workers I want session
//! affinity to work across workers so that load balancing doesn't break session state."

use anyhow::Context;
use mooring_tests::session::McpSession;
use mooring_tests::wait;

use super::rig::{Story, Transport, UPSTREAMS, Upstream, User};
use crate::owned::rig::{assert_begun_anew, goes_on, owner_of};
use crate::recovery::{binding, call, count_of, mark_of, rebinds};

/// Requests of one session: enough for each worker to be asked more than once.
const CALLS: u64 = 6;
const REBOUND_LOGGED: &str = "session rebound; the state it had upstream is lost";
const CONTINUED_LOGGED: &str = "the worker that drove this session is dead; this one continues it";

async fn streamable(story: &Story) -> anyhow::Result<McpSession> {
    match story.user(Transport::StreamableHttp).await? {
        User::StreamableHttp(session) => Ok(session),
        User::Sse(_) => anyhow::bail!("a session over Streamable HTTP"),
    }
}

#[tokio::test]
async fn cross_worker_session_routing() -> anyhow::Result<()> {
    for upstream in UPSTREAMS {
        // Given 3 gateway workers behind a load balancer
        let story = Story::begin(upstream).await?;
        // And user session S1 was established on worker W1
        let mut s1 = streamable(&story).await?;
        let affinity = binding(&story.redis, &s1)?;
        // When subsequent request for S1 hits worker W2
        // Then W2 should lookup affinity in Redis
        // And route the request to the correct upstream server
        // And optionally redirect to W1 for optimal performance
        goes_on(&mut s1, 1, CALLS).await?;
        for worker in &story.workers {
            let hits = worker.metric("session_affinity_hits_total", &[]).await?;
            assert!(hits > 0.0, "each worker found the affinity: {upstream:?}");
        }
        let now = binding(&story.redis, &s1)?;
        for field in ["instance", "upstream_session", "owner", "epoch"] {
            assert_eq!(now[field], affinity[field], "{field}: {upstream:?}");
        }
    }
    Ok(())
}

/// A server that is reached over HTTP keeps its state: only the worker is another one.
#[tokio::test]
async fn worker_failure_recovery_over_streamable_http() -> anyhow::Result<()> {
    let mut story = Story::begin(Upstream::StreamableHttp).await?;
    // Given session S1 has affinity to upstream US1 via worker W1
    let direct = story.workers[0].mcp_url("tools");
    let mut s1 = McpSession::open(&story.client, &[direct]).await?;
    goes_on(&mut s1, 1, 2).await?;
    let us1 = binding(&story.redis, &s1)?["instance"].clone();
    // When W1 fails
    story.workers[0].process().kill_now()?;
    // And request arrives at W2
    let mut s1 = s1.fork(&story.client, &[story.balancer.url("/servers/tools/mcp")]);
    // Then W2 should re-establish affinity to US1
    // And continue processing requests
    mooring_tests::wait::until_true(
        "the death to be noticed",
        crate::owned::rig::GONE_WITHIN,
        async || {
            s1.call("whoami", serde_json::json!({})).await?;
            Ok(rebinds(&story.workers[1..], "worker").await? == 1)
        },
    )
    .await?;
    goes_on(&mut s1, 3, CALLS).await?;
    assert_eq!(binding(&story.redis, &s1)?["instance"], us1);
    // And log the rebind event
    assert_eq!(logged(&mut story, CONTINUED_LOGGED).await?, 1);
    Ok(())
}

/// A connection that lived in the worker dies with it: affinity is re-established to a new one, and the client is told.
#[tokio::test]
async fn worker_failure_recovery_over_sse_and_stdio() -> anyhow::Result<()> {
    for upstream in [Upstream::Sse, Upstream::Stdio] {
        let mut story = Story::begin(upstream).await?;
        // Given session S1 has affinity to upstream US1 via worker W1
        let mut s1 = streamable(&story).await?;
        goes_on(&mut s1, 1, 3).await?;
        let w1 = owner_of(&story.redis, &s1)?;
        // When W1 fails
        story.workers[w1].process().kill_now()?;
        // And request arrives at W2
        let w2 = story.workers.get((w1 + 1) % 3).context("another worker")?;
        let mut s1 = s1.fork(&story.client, &[w2.mcp_url("tools")]);
        // Then W2 should re-establish affinity to US1
        let exchange = call(&mut s1, "increment").await?;
        assert_begun_anew(&exchange);
        // And log the rebind event
        let mut dead = story.workers.remove(w1);
        assert_eq!(logged(&mut story, REBOUND_LOGGED).await?, 1, "{upstream:?}");
        assert_eq!(rebinds(&story.workers, "owner").await?, 1, "{upstream:?}");
        // And continue processing requests
        let mut s1 = s1.fork(&story.client, &[story.balancer.url("/servers/tools/mcp")]);
        goes_on(&mut s1, 2, CALLS).await?;
        dead.process().kill_now()?;
    }
    Ok(())
}

/// A client over SSE loses its stream with the worker that held it: it begins a new session, which is served.
#[tokio::test]
async fn worker_failure_recovery_for_a_client_over_sse() -> anyhow::Result<()> {
    let mut story = Story::begin(Upstream::Stdio).await?;
    let mut user = story.user(Transport::Sse).await?;
    assert_eq!(user.start_task().await?, 1);
    for worker in &mut story.workers[..2] {
        worker.process().kill_now()?;
    }
    // Either its stream was at one of them and is cut, or what it holds lives at the last one, or is made there anew.
    let User::Sse(session) = &mut user else {
        anyhow::bail!("a session over SSE")
    };
    let called = session
        .request(
            "tools/call",
            serde_json::json!({"name": "increment", "arguments": {}}),
        )
        .await;
    if let Ok(exchange) = called {
        let expected = if mark_of(&exchange).is_some() { 1 } else { 2 };
        assert_eq!(count_of(&exchange), Some(expected), "{exchange:?}");
    }
    let mut user = story.user(Transport::Sse).await?;
    assert_eq!(user.start_task().await?, 1);
    assert_eq!(user.start_task().await?, 2);
    Ok(())
}

/// How often the workers' logs have this line, once they have it.
async fn logged(story: &mut Story, line: &str) -> anyhow::Result<usize> {
    let logs = wait::until_logged(line, 1, || {
        let workers = story.workers.iter_mut();
        workers.map(|worker| worker.process().log_text()).collect()
    })
    .await?;
    Ok(logs.matches(line).count())
}
