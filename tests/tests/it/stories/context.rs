//! US-1: AI Agent - Maintain Context Across Tool Calls. "As an AI Agent executing multi-step workflows I want all my tool
//! calls routed to the same upstream MCP server so that the server can maintain state between calls."

use super::rig::{Story, TRANSPORTS, UPSTREAMS, Upstream};

/// Calls of one session: enough for each worker to be asked more than once.
const CALLS: u64 = 6;

async fn check_sequential_tool_calls(upstream: Upstream) -> anyhow::Result<()> {
    let story = Story::begin(upstream).await?;
    for transport in TRANSPORTS {
        // Given a user starts a session via SSE transport (and via Streamable HTTP)
        let mut user = story.user(transport).await?;
        // And the session is assigned to upstream MCP server "server-A"
        let server_a = user.check_status().await?;
        for step in 1..=CALLS {
            // When the user calls tool "start_task"
            // Then the call should route to "server-A"
            // And both calls should see the same server-side state
            assert_eq!(user.start_task().await?, step, "{upstream:?} {transport:?}");
            // When the user calls tool "check_status"
            // Then the call should also route to "server-A"
            assert_eq!(
                user.check_status().await?,
                server_a,
                "{upstream:?} {transport:?}"
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn sequential_tool_calls_maintain_session_affinity_over_streamable_http() -> anyhow::Result<()>
{
    check_sequential_tool_calls(Upstream::StreamableHttp).await
}

#[tokio::test]
async fn sequential_tool_calls_maintain_session_affinity_over_sse() -> anyhow::Result<()> {
    check_sequential_tool_calls(Upstream::Sse).await
}

#[tokio::test]
async fn sequential_tool_calls_maintain_session_affinity_over_stdio() -> anyhow::Result<()> {
    check_sequential_tool_calls(Upstream::Stdio).await
}

#[tokio::test]
async fn new_session_gets_fresh_assignment() -> anyhow::Result<()> {
    for upstream in UPSTREAMS {
        let story = Story::begin(upstream).await?;
        for transport in TRANSPORTS {
            // Given user A has affinity to "server-A"
            let mut user_a = story.user(transport).await?;
            let server_a = user_a.check_status().await?;
            assert_eq!(user_a.start_task().await?, 1);
            // When user B starts a new session
            let mut user_b = story.user(transport).await?;
            // Then user B may be assigned to "server-A" or "server-B"
            let of_user_b = user_b.check_status().await?;
            // And user B's assignment is independent of user A
            assert_ne!(
                of_user_b, server_a,
                "a session of its own: {upstream:?} {transport:?}"
            );
            assert_eq!(user_b.start_task().await?, 1, "{upstream:?} {transport:?}");
            assert_eq!(user_a.start_task().await?, 2, "{upstream:?} {transport:?}");
            assert_eq!(user_a.check_status().await?, server_a);
            assert_eq!(user_b.check_status().await?, of_user_b);
        }
    }
    Ok(())
}
