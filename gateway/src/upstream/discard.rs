//! Deleting an upstream session that nothing refers to any more.
//!
//! Nobody waits for its outcome: what fails is logged and left to the instance's own expiry.

use std::time::Duration;

use mooring_session::names::UpstreamSession;

use super::exchange::within;
use super::request::Outgoing;
use super::{Client, Instance};

/// Sends the DELETE that [`Outgoing::delete`] made once, within `limit`.
pub(crate) async fn discard(
    client: &Client,
    instance: &Instance,
    deletion: &Outgoing,
    upstream_session: &UpstreamSession,
    limit: Duration,
) {
    let outgoing = deletion.clone().upstream_session(Some(upstream_session));
    let exchange = async {
        let response = client.send_once(instance, outgoing.to(instance)).await?;
        Ok(response.status())
    };
    match within(limit, exchange).await {
        Ok(status) => {
            tracing::debug!(instance = %instance.name, %status, "upstream session deleted");
        }
        Err(error) => {
            tracing::info!(instance = %instance.name, %error, "an upstream session could not be deleted");
        }
    }
}
