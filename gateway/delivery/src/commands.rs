//! The commands to the store that a resolution sends.

use mooring_session::names::{InstanceName, Token, UpstreamSession};
use mooring_session::rules::{
    BindRequest, ConfirmRequest, LossReport, RebindRequest, RouteRequest, UnbindRequest,
};
use mooring_session::time::Millis;

use crate::facts::Facts;
use crate::loss::{Loss, LostBinding};
use crate::task::Claim;

impl Facts<'_> {
    pub(crate) fn route(&self) -> RouteRequest {
        RouteRequest {
            principal: self.principal.clone(),
            server: self.server.clone(),
            worker: self.worker.clone(),
        }
    }

    /// The BIND of an attempt: it claims a server, and repeated it renews the claim.
    #[must_use]
    pub fn bind(&self, token: &Token, lease: Millis) -> BindRequest {
        BindRequest {
            principal: self.principal.clone(),
            server: self.server.clone(),
            worker: self.worker.clone(),
            token: token.clone(),
            lease,
            instances: self.instances.candidates(),
            upstream_session: None,
            ownership: self.ownership,
        }
    }

    /// Moves a lost binding. The record keeps the loss until the result of a tool has reported it: the caller may have no
    /// reply that can, or its reply may be lost.
    pub(crate) fn rebind(&self, lost: &LostBinding, token: &Token) -> RebindRequest {
        RebindRequest {
            principal: self.principal.clone(),
            server: self.server.clone(),
            epoch: lost.epoch,
            worker: self.worker.clone(),
            token: token.clone(),
            lease: self.claim_lease,
            instances: self.instances.all(),
            avoid: (lost.loss.avoids_the_instance()).then(|| lost.instance.clone()),
            reason: lost.loss.reason(),
            upstream_session: None,
            ownership: self.ownership,
            report: LossReport::ByNextCall,
        }
    }

    /// Moves an attempt's own claim to an instance that it has not tried.
    pub(crate) fn move_claim(&self, claim: &Claim, untried: &[InstanceName]) -> RebindRequest {
        RebindRequest {
            principal: self.principal.clone(),
            server: self.server.clone(),
            epoch: claim.binding.epoch,
            worker: self.worker.clone(),
            token: claim.token.clone(),
            lease: self.claim_lease,
            instances: untried.to_vec(),
            avoid: None,
            reason: Loss::InstanceRefuses.reason(),
            upstream_session: None,
            ownership: self.ownership,
            report: LossReport::ByCaller,
        }
    }

    pub(crate) fn confirm(
        &self,
        claim: &Claim,
        upstream_session: Option<UpstreamSession>,
    ) -> ConfirmRequest {
        ConfirmRequest {
            principal: self.principal.clone(),
            server: self.server.clone(),
            epoch: claim.binding.epoch,
            token: claim.token.clone(),
            upstream_session,
        }
    }

    pub(crate) fn unbind(&self, claim: &Claim) -> UnbindRequest {
        UnbindRequest {
            principal: self.principal.clone(),
            server: self.server.clone(),
            epoch: claim.binding.epoch,
            token: Some(claim.token.clone()),
        }
    }
}
