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

    /// The BIND of an attempt, which claims a server at one of the candidates.
    pub(crate) fn bind(&self, token: &Token) -> BindRequest {
        BindRequest {
            instances: self.instances.candidates(),
            ..self.renew_claim(token, self.claim_lease)
        }
    }

    /// The BIND by which the holder of a claim renews it. It names instances, as any BIND has to, and they choose none.
    #[must_use]
    pub fn renew_claim(&self, token: &Token, lease: Millis) -> BindRequest {
        BindRequest {
            principal: self.principal.clone(),
            server: self.server.clone(),
            worker: self.worker.clone(),
            token: token.clone(),
            lease,
            instances: self.instances.move_targets(),
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
            instances: self.instances.move_targets(),
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
