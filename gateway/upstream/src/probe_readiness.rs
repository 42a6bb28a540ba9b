//! Probes an instance in the gateway's own name, to find whether it serves.

use std::time::Duration;

use mooring_session::names::Principal;

use super::{
    Caller, Client, ExchangeError, FailureCause, Instance, Outgoing, Readiness, Server, within,
};
use mooring_protocol::call;

/// Sends a ping without a session, over a connection that is kept if there is one, and records the outcome. Any answer
/// counts except an error of the server itself (5xx). Returns the new state if it changes.
pub async fn probe_readiness(
    client: &Client,
    server: &Server,
    instance: &Instance,
    id: &str,
    limit: Duration,
) -> Option<Readiness> {
    let gateway = Principal::gateway();
    let ping = Outgoing::post(server, call::ping(id).into());
    let ping = ping.on_behalf_of(server, &Caller::of(&gateway));
    let exchange = async { Ok(client.send_once(instance, &ping).await?.status) };
    let is_answered = match within(limit, exchange).await {
        Ok(status) => !status.is_server_error(),
        Err(error) => {
            // What could not be sent is recorded already.
            if let ExchangeError::TimedOut(_) = error {
                instance.contact.fail(FailureCause::from(&error));
            }
            false
        }
    };
    if is_answered {
        instance.contact.succeed();
    }
    instance.readiness.note(is_answered)
}
