//! Parking servers and instances: they get nothing new, and sessions that are on them stay.

use super::{Act, ActPreview, ActProgress};
use crate::operator::{Operator, OperatorIdentity};
use crate::operator_error::OperatorError;
use mooring_pipeline::{RequestServer as _, ServerTarget};
use mooring_session::names::InstanceName;
use mooring_settings::Right;
use mooring_store::{DesiredChange, OperatorNote, ParkedPart};

/// What to park or unpark.
#[derive(Clone, Copy, Debug)]
pub struct ParkRequest<'a> {
    /// The id of the server.
    pub server: &'a str,
    /// The instance; none for the whole server.
    pub instance: Option<&'a str>,
    /// Whether it is parked from now on, or no longer.
    pub change: ParkChange<'a>,
}

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParkChange<'a> {
    /// It gets nothing new, for this reason.
    Park(&'a str),
    /// It gets new sessions again.
    Unpark,
}

impl ParkChange<'_> {
    const fn act(self) -> Act {
        Act {
            name: match self {
                Self::Park(_) => "servers.park",
                Self::Unpark => "servers.unpark",
            },
            right: Right::ServersManage,
        }
    }
}

impl Operator {
    /// What [`park`](Self::park) would do. Needs `servers.manage`.
    ///
    /// # Errors
    /// Forbidden, that there is no such server or instance, or the store's.
    pub async fn preview_park(
        &self,
        operator: &OperatorIdentity,
        request: ParkRequest<'_>,
    ) -> Result<ActPreview, OperatorError> {
        self.require(operator, request.change.act().right)?;
        let part = self.part(request).await?;
        let tally = self.tally().await?;
        let sessions = match &part.instance {
            Some(instance) => tally.of_instance(part.server.as_str(), instance.as_str()),
            None => tally.of_server(part.server.as_str()),
        };
        let effect = match (request.change, self.is_parked(&part)) {
            (ParkChange::Park(_), true) => "nothing: it is parked already".to_owned(),
            (ParkChange::Unpark, false) => "nothing: it is not parked".to_owned(),
            (ParkChange::Park(_), false) => format!(
                "it gets no new sessions at any gateway; the {sessions} that are on it stay there"
            ),
            (ParkChange::Unpark, true) => "it gets new sessions again".to_owned(),
        };
        Ok(ActPreview {
            act: request.change.act().name.to_owned(),
            effect,
            sessions,
            sample: Vec::new(),
            complete: tally.is_complete,
        })
    }

    /// Parks a server or an instance, or ends that, for every gateway. Needs `servers.manage`.
    ///
    /// # Errors
    /// Forbidden, that there is no such server or instance, or the store's.
    pub async fn park(
        &self,
        operator: &OperatorIdentity,
        request: ParkRequest<'_>,
    ) -> Result<ActProgress, OperatorError> {
        let look_up = async {
            let part = self.part(request).await?;
            let subject = match request.instance {
                Some(instance) => format!("{} {instance}", request.server),
                None => request.server.to_owned(),
            };
            Ok((subject, part))
        };
        let doing = async |part: ParkedPart| {
            let is_parked = self.is_parked(&part);
            let (change, is_change) = match request.change {
                ParkChange::Park(reason) => {
                    let note = OperatorNote::now(operator.identity.principal.as_str(), reason);
                    (DesiredChange::Park(part, note), !is_parked)
                }
                ParkChange::Unpark => (DesiredChange::Unpark(part), is_parked),
            };
            self.change(is_change.then_some(change)).await
        };
        self.perform(operator, request.change.act(), look_up, doing)
            .await
    }

    /// The part that a request names. What is parked and no longer in the settings can be unparked.
    async fn part(&self, request: ParkRequest<'_>) -> Result<ParkedPart, OperatorError> {
        self.store().refresh_desired_state().await?;
        let instance = request
            .instance
            .map(|name| InstanceName::parse(name.as_bytes()));
        let instance = instance
            .transpose()
            .map_err(|_| OperatorError::InstanceNotFound)?;
        let state = self.store().desired_state();
        let mut parked = state.parked.keys();
        let is_named = |part: &&ParkedPart| {
            part.server.as_str() == request.server && part.instance == instance
        };
        if let Some(part) = parked.find(is_named) {
            return Ok(part.clone());
        }
        let target = self.target(request.server)?;
        if let Some(instance) = &instance {
            let has_it = match &target {
                ServerTarget::Upstream(server) => server.instance(instance).is_some(),
                _ => false,
            };
            if !has_it {
                return Err(OperatorError::InstanceNotFound);
            }
        }
        Ok(ParkedPart {
            server: target.id().clone(),
            instance,
        })
    }

    fn is_parked(&self, part: &ParkedPart) -> bool {
        self.store().desired_state().parked.contains_key(part)
    }
}
