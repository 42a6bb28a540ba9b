//! Draining gateways: they take no new connections to own, and balancers send them no new clients.

use super::{Act, ActPreview, ActProgress};
use crate::operator::{Operator, OperatorIdentity};
use crate::operator_error::OperatorError;
use mooring_session::names::WorkerId;
use mooring_settings::Right;
use mooring_store::{DesiredChange, OperatorNote};

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainChange<'a> {
    /// The gateway drains from now on, for this reason.
    Drain(&'a str),
    /// It takes new work again.
    Undrain,
}

impl DrainChange<'_> {
    const fn act(self) -> Act {
        Act {
            name: match self {
                Self::Drain(_) => "workers.drain",
                Self::Undrain => "workers.undrain",
            },
            right: Right::FleetManage,
        }
    }
}

impl Operator {
    /// What [`drain`](Self::drain) would do. Needs `fleet.manage`.
    ///
    /// # Errors
    /// Forbidden, that there is no such gateway, or the store's.
    pub async fn preview_drain(
        &self,
        operator: &OperatorIdentity,
        worker: &str,
        change: DrainChange<'_>,
    ) -> Result<ActPreview, OperatorError> {
        self.require(operator, change.act().right)?;
        let worker = self.named_worker(worker).await?;
        let tally = self.tally().await?;
        let owned = tally.of_owner(worker.as_str());
        let is_draining = self.is_draining(&worker);
        let effect = match (change, is_draining) {
            (DrainChange::Drain(_), true) => "nothing: it drains already".to_owned(),
            (DrainChange::Undrain, false) => "nothing: it does not drain".to_owned(),
            (DrainChange::Drain(_), false) => format!(
                "it reports draining to balancers and owns no new connections; it finishes its calls, and {owned} \
                 connections that it owns move when they are used next or end"
            ),
            (DrainChange::Undrain, true) => "it takes new work again".to_owned(),
        };
        Ok(ActPreview {
            act: change.act().name.to_owned(),
            effect,
            sessions: owned,
            sample: Vec::new(),
            complete: tally.is_complete,
        })
    }

    /// Drains a gateway, or ends that; `worker` is its id, or its name for each boot of it. Its progress is shown by
    /// its bindings in the list of gateways. Needs `fleet.manage`.
    ///
    /// # Errors
    /// Forbidden, that there is no such gateway, or the store's.
    pub async fn drain(
        &self,
        operator: &OperatorIdentity,
        worker: &str,
        change: DrainChange<'_>,
    ) -> Result<ActProgress, OperatorError> {
        let look_up = async {
            let worker = self.named_worker(worker).await?;
            Ok((worker.to_string(), worker))
        };
        let doing = async |worker: WorkerId| {
            let is_draining = self.is_draining(&worker);
            let (desired, is_change) = match change {
                DrainChange::Drain(reason) => {
                    let note = OperatorNote::now(operator.identity.principal.as_str(), reason);
                    (DesiredChange::Drain(worker, note), !is_draining)
                }
                DrainChange::Undrain => (DesiredChange::Undrain(worker), is_draining),
            };
            self.change(is_change.then_some(desired)).await
        };
        self.perform(operator, change.act(), look_up, doing).await
    }

    /// The gateway of this id or name: one that drains, or one with a heartbeat.
    async fn named_worker(&self, named: &str) -> Result<WorkerId, OperatorError> {
        self.store().refresh_desired_state().await?;
        let worker =
            WorkerId::parse(named.as_bytes()).map_err(|_| OperatorError::WorkerNotFound)?;
        if self.is_draining(&worker) {
            return Ok(worker);
        }
        let workers = self.store().workers().await?;
        let is_known = |known: &WorkerId| *known == worker || known.name() == worker.as_str();
        match workers.iter().any(|view| is_known(&view.worker)) {
            true => Ok(worker),
            false => Err(OperatorError::WorkerNotFound),
        }
    }

    fn is_draining(&self, worker: &WorkerId) -> bool {
        self.store().desired_state().draining.contains_key(worker)
    }
}
