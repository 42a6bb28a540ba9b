//! Deletes upstream sessions that no binding refers to any more.
//!
//! Invariant: an upstream session counts as gone only if the instance's answer is final. All other cases are left to a
//! later attempt or to the instance's own expiry.

use std::time::Duration;

use http::StatusCode;
use mooring_session::names::UpstreamSession;

use super::exchange::within;
use super::request::Outgoing;
use super::{Client, Instance};

/// The outcome of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscardOutcome {
    /// The upstream session is gone, or its instance does not end sessions on request.
    Final,
    /// The instance answered with a transient error.
    Refused,
    /// The instance did not answer.
    Unanswered,
}

/// Sends one DELETE, prepared with [`Outgoing::delete`], within `limit`.
pub async fn discard(
    client: &Client,
    instance: &Instance,
    deletion: &Outgoing,
    upstream_session: &UpstreamSession,
    limit: Duration,
) -> DiscardOutcome {
    let outgoing = deletion.clone().upstream_session(Some(upstream_session));
    let exchange = async {
        let response = client.send_once(instance, &outgoing).await?;
        Ok(response.status)
    };
    match within(limit, exchange).await {
        Ok(status) if is_final(status) => {
            tracing::debug!(instance = %instance.name, %status, "deleted an upstream session");
            DiscardOutcome::Final
        }
        Ok(status) => {
            tracing::info!(instance = %instance.name, %status, "the instance did not delete an upstream session");
            DiscardOutcome::Refused
        }
        Err(error) => {
            tracing::info!(instance = %instance.name, %error, "no answer to the deletion of an upstream session");
            DiscardOutcome::Unanswered
        }
    }
}

/// Whether another attempt would change nothing: it worked, the session is unknown (404 by the protocol, 400 or 410 in
/// practice), or the server does not let clients end sessions.
fn is_final(status: StatusCode) -> bool {
    status.is_success()
        || matches!(
            status,
            StatusCode::BAD_REQUEST
                | StatusCode::NOT_FOUND
                | StatusCode::METHOD_NOT_ALLOWED
                | StatusCode::GONE
                | StatusCode::NOT_IMPLEMENTED
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn final_answers() {
        for (code, is_settled) in [
            (200, true),
            (204, true),
            (400, true),
            (404, true),
            (405, true),
            (410, true),
            (501, true),
            (307, false),
            (401, false),
            (403, false),
            (408, false),
            (429, false),
            (500, false),
            (503, false),
        ] {
            let status = StatusCode::from_u16(code);
            assert_eq!(status.ok().map(is_final), Some(is_settled), "{code}");
        }
    }
}
