//! US-2: Gateway - Route Elicitation to Correct Session. "As a Gateway administrator I want elicitation requests routed to
//! the originating user session so that the correct user receives interactive prompts."

use mooring_tests::session::result_of;
use serde_json::json;

use super::rig::{Story, TRANSPORTS, UPSTREAMS, User};
use crate::fixture_stdio::echo;

/// Elicitations of each session.
const ASKED: usize = 4;

/// The tool "confirm_delete": it asks its user, and returns the answer beside the secret that the call named.
async fn confirm_delete(user: &mut User, secret: &str) -> anyhow::Result<()> {
    let params = json!({"name": "ask", "arguments": {"secret": secret}});
    let exchange = user.call_answering(params, echo).await?;
    let expected = format!("The secret is {secret}.");
    let asked: Vec<_> = exchange
        .before
        .iter()
        .filter(|message| message["method"] == "elicitation/create")
        .collect();
    assert_eq!(asked.len(), 1, "{exchange:?}");
    assert_eq!(
        asked[0]["params"]["message"], expected,
        "the other user's question"
    );
    let result = result_of(exchange.response)?["structuredContent"].clone();
    assert_eq!(
        result,
        json!({"action": "accept", "answer": expected, "secret": secret})
    );
    Ok(())
}

#[tokio::test]
async fn elicitation_reaches_correct_user() -> anyhow::Result<()> {
    for upstream in UPSTREAMS {
        let story = Story::begin(upstream).await?;
        for transport in TRANSPORTS {
            // Given user A is executing tool "confirm_delete" via session S1
            let mut user_a = story.user(transport).await?;
            // And user B has active session S2
            let mut user_b = story.user(transport).await?;
            for number in 0..ASKED {
                // When the MCP server sends elicitation/create
                // Then the request should route ONLY to session S1
                // And user B (S2) should NOT see the elicitation
                let (for_a, for_b) = (format!("a{number}"), format!("b{number}"));
                tokio::try_join!(
                    confirm_delete(&mut user_a, &for_a),
                    confirm_delete(&mut user_b, &for_b)
                )?;
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn elicitation_with_session_affinity() -> anyhow::Result<()> {
    for upstream in UPSTREAMS {
        let story = Story::begin(upstream).await?;
        for transport in TRANSPORTS {
            // Given session S1 has affinity to upstream server US1
            let mut s1 = story.user(transport).await?;
            let us1 = s1.check_status().await?;
            for step in 1..=ASKED as u64 {
                // When US1 sends elicitation/create during tool execution
                // Then the response from S1 should return to US1
                confirm_delete(&mut s1, &format!("s{step}")).await?;
                // And the affinity should be maintained
                assert_eq!(s1.check_status().await?, us1, "{upstream:?} {transport:?}");
                assert_eq!(s1.start_task().await?, step, "{upstream:?} {transport:?}");
            }
        }
    }
    Ok(())
}
