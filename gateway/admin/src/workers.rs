//! The gateways of the fleet, as their heartbeats tell.

use schemars::JsonSchema;
use serde::Serialize;

use super::local_gateway::LocalGatewayView;
use super::note_view::NoteView;
use super::operator::{Operator, OperatorIdentity};
use super::operator_error::OperatorError;
use super::words::GatewayState;
use mooring_session::workers::Drain;
use mooring_settings::Right;
use mooring_store as store;
use mooring_store::{DesiredState, rfc3339};

/// The gateways of the fleet.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct WorkerList {
    /// All that have sent a heartbeat, by name, also those that are dead.
    pub workers: Vec<WorkerView>,
    /// The gateway that answers.
    pub this_gateway: LocalGatewayView,
}

/// One gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WorkerView {
    /// Its id: its name and the boot of it.
    pub worker: String,
    /// Its configured name, which its next boot has too.
    pub name: String,
    /// Where its peers reach it.
    pub address: String,
    /// Whether it takes new work.
    pub state: GatewayState,
    /// Its last heartbeat (RFC 3339).
    pub last_beat_at: String,
    /// The bindings that it used last; none if the store does not count them.
    pub bindings: Option<u64>,
    /// Whether it is the gateway that answers.
    pub is_this: bool,
    /// Why it is to drain; none if no operator wants that.
    pub drain: Option<NoteView>,
}

impl WorkerView {
    pub(crate) fn takes_new_work(&self) -> bool {
        self.state == GatewayState::Serving
    }

    fn of(view: &store::WorkerView, this: &str, state: &DesiredState) -> Self {
        Self {
            worker: view.worker.to_string(),
            name: view.worker.name().to_owned(),
            address: view.address.as_str().to_owned(),
            state: match (view.alive, view.drain) {
                (false, _) => GatewayState::Dead,
                (true, Drain::Draining) => GatewayState::Draining,
                (true, Drain::Serving) => GatewayState::Serving,
            },
            last_beat_at: rfc3339(view.last_beat_at.unix_ms()),
            bindings: view.bindings,
            is_this: view.worker.as_str() == this,
            drain: state.draining_note(&view.worker).map(NoteView::of),
        }
    }
}

impl Operator {
    /// The gateways of the fleet. Needs `fleet.read`.
    ///
    /// # Errors
    /// Forbidden, or the store's.
    pub async fn workers(&self, operator: &OperatorIdentity) -> Result<WorkerList, OperatorError> {
        self.require(operator, Right::FleetRead)?;
        Ok(WorkerList {
            workers: self.worker_views().await?,
            this_gateway: LocalGatewayView::of(&self.directory.core),
        })
    }

    pub(crate) async fn worker_views(&self) -> Result<Vec<WorkerView>, OperatorError> {
        let workers = self.store().workers().await?;
        let this = self.directory.core.session_router.worker().as_str();
        let state = self.store().desired_state();
        let mut views: Vec<WorkerView> = workers
            .iter()
            .map(|worker| WorkerView::of(worker, this, &state))
            .collect();
        views.sort_by(|one, other| one.worker.cmp(&other.worker));
        Ok(views)
    }
}
