//! Probes the instances of all servers in the background, so that a server that is down is known before it is called.
//!
//! Invariant: an instance gets at most one probe in each interval, and none that it answered a request within; a fleet's
//! gateways probe at different times.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use mooring_store::{jittered, unix_now_ms};
use tokio::time::sleep;

use super::{Connector, SessionRouter};
use mooring_upstream::{Instance, Readiness, Server, probe_readiness};

/// Most probes at once.
const AT_ONCE: usize = 8;

/// Probes all instances once in every `interval`, until it is dropped.
pub async fn probe_instances(router: SessionRouter, interval: Duration) {
    // The first look is soon, so that /readyz tells of what is down from the start.
    let mut pause = jittered(interval.min(Duration::from_secs(1)));
    loop {
        sleep(pause).await;
        let mut instances: Vec<(Arc<Server>, Arc<Instance>)> = Vec::new();
        for server in router.servers().iter() {
            let of_server = server.instances.iter();
            instances.extend(of_server.map(|instance| (Arc::clone(server), Arc::clone(instance))));
        }
        stream::iter(instances)
            .for_each_concurrent(AT_ONCE, |(server, instance)| {
                let router = &router;
                async move { router.probe_instance(&server, &instance, interval).await }
            })
            .await;
        pause = jittered(interval);
    }
}

impl SessionRouter {
    async fn probe_instance(&self, server: &Server, instance: &Instance, interval: Duration) {
        let connector = self.connector_of(server);
        let changed = match connector.as_deref() {
            // It is started for each session: all that can be found is whether that is possible.
            Some(Connector::Stdio { spec, .. }) => {
                instance.readiness.note(spec.find_program().is_ok())
            }
            Some(Connector::Sse) | None if has_answered(instance, interval) => {
                instance.readiness.note(true)
            }
            Some(Connector::Sse) | None => {
                let (id, limit) = (self.next_id(), self.options().answer_timeout);
                let limit = limit.min(interval);
                probe_readiness(self.client(), server, instance, &id, limit).await
            }
        };
        match changed {
            Some(Readiness::NotReady) => {
                tracing::warn!(server = %server.id, instance = %instance.name, "instance not ready: probes fail");
            }
            Some(readiness) => {
                let readiness: &str = readiness.into();
                tracing::info!(server = %server.id, instance = %instance.name, readiness, "instance probed");
            }
            None => {}
        }
    }
}

/// Whether the last contact with the instance was a success within the interval.
fn has_answered(instance: &Instance, interval: Duration) -> bool {
    let since = unix_now_ms().saturating_sub(u64::try_from(interval.as_millis()).unwrap_or(0));
    let last = instance.contact.last();
    last.is_some_and(|last| last.failure.is_none() && last.at_ms >= since)
}
