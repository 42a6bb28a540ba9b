//! How the sessions are spread over the gateways and the instances.

use schemars::JsonSchema;
use serde::Serialize;

use std::collections::BTreeMap;

use super::operator::{Operator, OperatorIdentity};
use super::operator_error::OperatorError;
use super::tally::Tally;
use super::words::SessionKind;
use super::workers::WorkerView;
use mooring_pipeline::ServerTarget;
use mooring_settings::Right;
use mooring_store::rfc3339;

/// The fleet at one moment. The counts may be some seconds older than the states.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FleetView {
    /// Active sessions by kind.
    pub sessions: BTreeMap<SessionKind, u64>,
    /// Bindings whose owner is dead: the next request to each moves it.
    pub orphaned_bindings: u64,
    /// The gateways.
    pub gateways: Vec<GatewayLoad>,
    /// The skew between the living gateways that take new work, by the bindings that each used last.
    pub gateway_skew: Option<f64>,
    /// The servers with instances.
    pub servers: Vec<ServerLoad>,
    /// When the sessions were counted (RFC 3339).
    pub counted_at: String,
    /// Whether all of them were.
    pub complete: bool,
}

/// A gateway and what it has.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GatewayLoad {
    /// The gateway.
    #[serde(flatten)]
    pub worker: WorkerView,
    /// The connections of active sessions that it owns.
    pub owned: u64,
}

/// A server and the sessions on its instances.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ServerLoad {
    /// The server.
    pub server: String,
    /// The bindings of active sessions to it.
    pub sessions: u64,
    /// Its instances: those of the settings, and those that sessions are still bound to.
    pub instances: Vec<InstanceLoad>,
    /// The most loaded of the instances of the settings, as a multiple of their mean: 1 where all have the same. None with
    /// fewer than two instances or without sessions.
    pub skew: Option<f64>,
}

/// An instance and the sessions on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InstanceLoad {
    /// The instance.
    pub instance: String,
    /// The bindings of active sessions to it.
    pub sessions: u64,
    /// Whether the settings of this gateway have it.
    pub is_configured: bool,
}

impl Operator {
    /// How sessions are spread over gateways and instances. Needs `fleet.read`.
    ///
    /// # Errors
    /// Forbidden, or the store's.
    pub async fn fleet(&self, operator: &OperatorIdentity) -> Result<FleetView, OperatorError> {
        self.require(operator, Right::FleetRead)?;
        let tally = self.tally().await?;
        let gateways: Vec<GatewayLoad> = self
            .worker_views()
            .await?
            .into_iter()
            .map(|worker| GatewayLoad {
                owned: tally.of_owner(&worker.worker),
                worker,
            })
            .collect();
        let serving = gateways.iter().filter(|load| load.worker.takes_new_work());
        let bindings: Option<Vec<u64>> = serving.map(|load| load.worker.bindings).collect();
        Ok(FleetView {
            sessions: tally.sessions.clone(),
            orphaned_bindings: tally.orphaned_bindings,
            gateway_skew: bindings.and_then(|counts| skew(&counts)),
            gateways,
            servers: self.server_loads(&tally),
            counted_at: rfc3339(tally.counted_at_ms),
            complete: tally.is_complete,
        })
    }

    fn server_loads(&self, tally: &Tally) -> Vec<ServerLoad> {
        let mut by_server: BTreeMap<&str, Vec<InstanceLoad>> = BTreeMap::new();
        let targets = self.directory.targets();
        let upstreams = targets.iter().filter_map(|target| match target {
            ServerTarget::Upstream(server) => Some(server),
            _ => None,
        });
        for server in upstreams {
            let id = server.id.as_str();
            let instances = server.instances.iter().map(|instance| InstanceLoad {
                instance: instance.name.as_str().to_owned(),
                sessions: tally.of_instance(id, instance.name.as_str()),
                is_configured: true,
            });
            by_server.insert(id, instances.collect());
        }
        for ((server, instance), sessions) in &tally.instances {
            let instances = by_server.entry(server).or_default();
            if !instances.iter().any(|load| *load.instance == **instance) {
                instances.push(InstanceLoad {
                    instance: instance.to_string(),
                    sessions: *sessions,
                    is_configured: false,
                });
            }
        }
        let loads = by_server.into_iter().map(|(server, instances)| {
            let configured = instances.iter().filter(|load| load.is_configured);
            let counts: Vec<u64> = configured.map(|load| load.sessions).collect();
            ServerLoad {
                server: server.to_owned(),
                sessions: instances.iter().map(|load| load.sessions).sum(),
                skew: skew(&counts),
                instances,
            }
        });
        loads.collect()
    }
}

/// The highest count as a multiple of the mean.
fn skew(counts: &[u64]) -> Option<f64> {
    let (sum, most) = (counts.iter().sum::<u64>(), counts.iter().max()?);
    if counts.len() < 2 || sum == 0 {
        return None;
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "a ratio for people, to two digits"
    )]
    let ratio = *most as f64 * counts.len() as f64 / sum as f64;
    Some((ratio * 100.0).round() / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_skew_is_the_most_loaded_over_the_mean() {
        for (counts, expected) in [
            (&[][..], None),
            (&[7], None),
            (&[0, 0], None),
            (&[5, 5, 5], Some(1.0)),
            (&[9, 0, 0], Some(3.0)),
            (&[2, 1], Some(1.33)),
        ] {
            assert_eq!(skew(counts), expected, "{counts:?}");
        }
    }
}
