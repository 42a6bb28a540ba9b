//! Writes requests as commands of the module.

use std::collections::BTreeMap;
use std::sync::Arc;

use mooring_session::names::{ContentHash, InstanceName, LabelName, LabelValue, UpstreamSession};
use mooring_session::rules::{
    BindRequest, ClaimRequest, ConfirmRequest, CreateRequest, EndCondition, EndRequest,
    ForgetRequest, LossReport, Ownership, RebindRequest, Revival, RouteReply, RouteRequest,
    TouchRequest, UnbindRequest,
};
use mooring_session::view::BindingView;
use redis::{Cmd, Value};

use super::known_bindings::KnownBindings;
use super::link_state::Resend;
use super::reply::{self, Problem};
use crate::key::SessionKey;
use crate::transition::{Get, GetBlockers, Transition};

/// A transition that Redis can execute.
pub(crate) trait Wire: Transition {
    /// Whether it is sent again if the connection is lost before the reply.
    const RESEND: Resend = Resend::Once;

    /// Writes the command.
    fn write(&self, key: &SessionKey, command: &mut Cmd);

    /// Reads the reply.
    fn read(&self, value: Value) -> Result<Self::Reply, Problem>;

    /// The binding that the reply need not repeat, because it is known. The command names its epoch.
    fn known_binding(
        &self,
        _key: &SessionKey,
        _bindings: &KnownBindings,
    ) -> Option<Arc<BindingView>> {
        None
    }

    /// The reply where the server confirms what is known.
    fn confirmed_reply(&self, _known: &BindingView) -> Option<Self::Reply> {
        None
    }

    /// Notes a whole reply, for the next command.
    fn note_binding(&self, _key: &SessionKey, _reply: &Self::Reply, _bindings: &KnownBindings) {}

    /// Whether it names no instance or too many, so that it cannot be sent.
    fn is_without_instances(&self) -> bool {
        false
    }
}

impl Wire for CreateRequest {
    fn write(&self, key: &SessionKey, command: &mut Cmd) {
        command
            .arg((Self::COMMAND, key.secret(), self.id.as_str()))
            .arg((self.principal.as_str(), "TTL", self.ttl.get()))
            .arg((hash(&self.content_hash), labels(&self.labels)))
            .arg(self.cap.map(|cap| ("CAP", cap.get())))
            .arg((self.revival == Revival::Refused).then_some("NOREVIVE"));
    }

    fn read(&self, value: Value) -> Result<Self::Reply, Problem> {
        reply::created(value, self)
    }
}

impl Wire for TouchRequest {
    fn write(&self, key: &SessionKey, command: &mut Cmd) {
        let reported = self.reported.as_ref();
        command
            .arg((Self::COMMAND, key.secret(), self.principal.as_str()))
            .arg(self.ttl.map(|ttl| ("TTL", ttl.get())))
            .arg((hash(&self.content_hash), labels(&self.labels)))
            .arg(reported.map(|loss| ("REPORTED", loss.server.as_str(), loss.epoch)));
    }

    fn read(&self, value: Value) -> Result<Self::Reply, Problem> {
        reply::touched(value)
    }
}

impl Wire for Get {
    fn write(&self, key: &SessionKey, command: &mut Cmd) {
        command.arg((Self::COMMAND, key.secret()));
    }

    fn read(&self, value: Value) -> Result<Self::Reply, Problem> {
        reply::record(value)
    }
}

impl Wire for GetBlockers {
    fn write(&self, key: &SessionKey, command: &mut Cmd) {
        command.arg((Self::COMMAND, key.secret(), "TURNS"));
    }

    fn read(&self, value: Value) -> Result<Self::Reply, Problem> {
        reply::blockers(value)
    }
}

impl Wire for EndRequest {
    fn write(&self, key: &SessionKey, command: &mut Cmd) {
        match &self.principal {
            Some(principal) => command.arg((Self::COMMAND, key.secret(), principal.as_str())),
            None => command.arg(("SESSION.KILL", key.secret())),
        };
        command.arg((self.when == EndCondition::Idle).then_some("IFIDLE"));
    }

    fn read(&self, value: Value) -> Result<Self::Reply, Problem> {
        reply::ended(value)
    }
}

impl Wire for RouteRequest {
    fn write(&self, key: &SessionKey, command: &mut Cmd) {
        command
            .arg((Self::COMMAND, key.secret(), self.principal.as_str()))
            .arg((self.server.as_str(), self.worker.as_str()));
    }

    fn read(&self, value: Value) -> Result<Self::Reply, Problem> {
        reply::routed(value, &self.server)
    }

    fn known_binding(
        &self,
        key: &SessionKey,
        bindings: &KnownBindings,
    ) -> Option<Arc<BindingView>> {
        bindings.get(key, &self.server)
    }

    fn confirmed_reply(&self, known: &BindingView) -> Option<RouteReply> {
        Some(RouteReply::known(known.clone()))
    }

    fn note_binding(&self, key: &SessionKey, reply: &RouteReply, bindings: &KnownBindings) {
        bindings.note(key, &self.server, &self.worker, reply);
    }
}

impl Wire for BindRequest {
    fn write(&self, key: &SessionKey, command: &mut Cmd) {
        command
            .arg((Self::COMMAND, key.secret(), self.principal.as_str()))
            .arg((self.server.as_str(), self.worker.as_str()))
            .arg((self.token.as_str(), "LEASE", self.lease.get()))
            .arg(instances(&self.instances))
            .arg((upstream(&self.upstream_session), owned(self.ownership)));
    }

    fn read(&self, value: Value) -> Result<Self::Reply, Problem> {
        reply::bound(value)
    }

    fn is_without_instances(&self) -> bool {
        is_unplaceable(&self.instances)
    }
}

impl Wire for ConfirmRequest {
    fn write(&self, key: &SessionKey, command: &mut Cmd) {
        command
            .arg((Self::COMMAND, key.secret(), self.principal.as_str()))
            .arg((self.server.as_str(), self.epoch, self.token.as_str()))
            .arg(upstream(&self.upstream_session));
    }

    fn read(&self, value: Value) -> Result<Self::Reply, Problem> {
        reply::binding(value)
    }
}

impl Wire for RebindRequest {
    fn write(&self, key: &SessionKey, command: &mut Cmd) {
        let (avoid, reason) = (self.avoid.as_ref(), self.reason.as_ref());
        command
            .arg((Self::COMMAND, key.secret(), self.principal.as_str()))
            .arg((self.server.as_str(), self.epoch, self.worker.as_str()))
            .arg((self.token.as_str(), "LEASE", self.lease.get()))
            .arg(instances(&self.instances))
            .arg(avoid.map(|avoid| ("AVOID", avoid.as_str())))
            .arg(reason.map(|reason| ("REASON", reason.as_str())))
            .arg((upstream(&self.upstream_session), owned(self.ownership)))
            .arg((self.report == LossReport::ByNextCall).then_some("UNREPORTED"));
    }

    fn read(&self, value: Value) -> Result<Self::Reply, Problem> {
        reply::rebound(value)
    }

    fn is_without_instances(&self) -> bool {
        is_unplaceable(&self.instances)
    }
}

impl Wire for UnbindRequest {
    // A repeated UNBIND returns STALE, as if the first one had failed.
    const RESEND: Resend = Resend::Never;

    fn write(&self, key: &SessionKey, command: &mut Cmd) {
        command
            .arg((Self::COMMAND, key.secret(), self.principal.as_str()))
            .arg((self.server.as_str(), self.epoch))
            .arg(self.token.as_ref().map(|token| token.as_str()));
    }

    fn read(&self, value: Value) -> Result<Self::Reply, Problem> {
        reply::binding(value)
    }
}

impl Wire for ClaimRequest {
    fn write(&self, key: &SessionKey, command: &mut Cmd) {
        command
            .arg((Self::COMMAND, key.secret(), self.worker.as_str()))
            .arg(("LEASE", self.lease.get()));
    }

    fn read(&self, value: Value) -> Result<Self::Reply, Problem> {
        reply::record(value)
    }
}

impl Wire for ForgetRequest {
    // A repeated FORGET returns NOSESSION, as if the first one had failed.
    const RESEND: Resend = Resend::Never;

    fn write(&self, key: &SessionKey, command: &mut Cmd) {
        command
            .arg((Self::COMMAND, key.secret()))
            .arg((self.generation, self.worker.as_str()));
    }

    fn read(&self, _value: Value) -> Result<Self::Reply, Problem> {
        Ok(())
    }
}

fn hash(hash: &Option<ContentHash>) -> Option<(&str, &str)> {
    hash.as_ref().map(|hash| ("HASH", hash.as_str()))
}

fn labels(labels: &BTreeMap<LabelName, LabelValue>) -> Vec<(&str, &str, &str)> {
    labels
        .iter()
        .map(|(name, value)| ("LABEL", name.as_str(), value.as_str()))
        .collect()
}

fn instances(instances: &[InstanceName]) -> (&str, usize, Vec<&str>) {
    let names = instances.iter().map(InstanceName::as_str).collect();
    ("INSTANCES", instances.len(), names)
}

fn upstream(session: &Option<UpstreamSession>) -> Option<(&str, &str)> {
    session.as_ref().map(|id| ("UPSTREAM", id.as_str()))
}

fn owned(ownership: Ownership) -> Option<&'static str> {
    (ownership == Ownership::Owned).then_some("OWNED")
}

fn is_unplaceable(instances: &[InstanceName]) -> bool {
    instances.is_empty() || instances.len() > mooring_session::limits::INSTANCES_MAX
}
