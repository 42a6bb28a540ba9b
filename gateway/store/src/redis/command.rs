//! Requests as the module's commands, in the grammar of its contract.

use std::collections::BTreeMap;

use mooring_session::names::{InstanceName, LabelName, LabelValue};
use mooring_session::rules::{
    Bind, Clean, Confirm, Create, End, EndWhen, Forget, LossReport, Ownership, Rebind,
    ReportedLoss, Revival, Route, Touch, Unbind,
};
use redis::{Cmd, Value};

use super::link::Resend;
use super::reply::{self, Problem};
use crate::key::SessionKey;
use crate::transition::{Get, Transition};

/// A transition that Redis can be asked for.
pub(crate) trait Wire: Transition {
    /// Whether it is sent again where the connection is lost before the reply.
    const RESEND: Resend = Resend::Once;

    /// Writes the command.
    fn write(&self, key: &SessionKey, command: &mut Cmd);

    /// Reads the reply.
    fn read(&self, value: Value) -> Result<Self::Reply, Problem>;

    /// Whether it names no place to go, or too many: nothing that could be sent.
    fn is_without_instances(&self) -> bool {
        false
    }
}

impl Wire for Create {
    fn write(&self, key: &SessionKey, command: &mut Cmd) {
        command
            .arg(Self::COMMAND)
            .arg(key.secret())
            .arg(self.id.as_str())
            .arg(self.principal.as_str())
            .arg("TTL")
            .arg(self.ttl.get());
        if let Some(hash) = &self.content_hash {
            command.arg("HASH").arg(hash.as_str());
        }
        labels(&self.labels, command);
        if let Some(cap) = self.cap {
            command.arg("CAP").arg(cap.get());
        }
        if self.revival == Revival::Refused {
            command.arg("NOREVIVE");
        }
    }

    fn read(&self, value: Value) -> Result<Self::Reply, Problem> {
        reply::created(value)
    }
}

impl Wire for Touch {
    fn write(&self, key: &SessionKey, command: &mut Cmd) {
        command
            .arg(Self::COMMAND)
            .arg(key.secret())
            .arg(self.principal.as_str());
        if let Some(ttl) = self.ttl {
            command.arg("TTL").arg(ttl.get());
        }
        if let Some(hash) = &self.content_hash {
            command.arg("HASH").arg(hash.as_str());
        }
        labels(&self.labels, command);
        if let Some(ReportedLoss { server, epoch }) = &self.reported {
            command.arg("REPORTED").arg(server.as_str()).arg(*epoch);
        }
    }

    fn read(&self, value: Value) -> Result<Self::Reply, Problem> {
        reply::touched(value)
    }
}

impl Wire for Get {
    fn write(&self, key: &SessionKey, command: &mut Cmd) {
        command.arg(Self::COMMAND).arg(key.secret());
    }

    fn read(&self, value: Value) -> Result<Self::Reply, Problem> {
        reply::record(value)
    }
}

impl Wire for End {
    fn write(&self, key: &SessionKey, command: &mut Cmd) {
        match &self.principal {
            Some(principal) => command
                .arg(Self::COMMAND)
                .arg(key.secret())
                .arg(principal.as_str()),
            None => command.arg("SESSION.KILL").arg(key.secret()),
        };
        if self.when == EndWhen::Idle {
            command.arg("IFIDLE");
        }
    }

    fn read(&self, value: Value) -> Result<Self::Reply, Problem> {
        reply::ended(value)
    }
}

impl Wire for Route {
    fn write(&self, key: &SessionKey, command: &mut Cmd) {
        command
            .arg(Self::COMMAND)
            .arg(key.secret())
            .arg(self.principal.as_str())
            .arg(self.server.as_str())
            .arg(self.worker.as_str());
    }

    fn read(&self, value: Value) -> Result<Self::Reply, Problem> {
        reply::routed(value, &self.server)
    }
}

impl Wire for Bind {
    fn write(&self, key: &SessionKey, command: &mut Cmd) {
        command
            .arg(Self::COMMAND)
            .arg(key.secret())
            .arg(self.principal.as_str())
            .arg(self.server.as_str())
            .arg(self.worker.as_str())
            .arg(self.token.as_str())
            .arg("LEASE")
            .arg(self.lease.get());
        instances(&self.instances, command);
        if let Some(upstream_session) = &self.upstream_session {
            command.arg("UPSTREAM").arg(upstream_session.as_str());
        }
        ownership(self.ownership, command);
    }

    fn read(&self, value: Value) -> Result<Self::Reply, Problem> {
        reply::bound(value)
    }

    fn is_without_instances(&self) -> bool {
        is_unplaceable(&self.instances)
    }
}

impl Wire for Confirm {
    fn write(&self, key: &SessionKey, command: &mut Cmd) {
        command
            .arg(Self::COMMAND)
            .arg(key.secret())
            .arg(self.principal.as_str())
            .arg(self.server.as_str())
            .arg(self.epoch)
            .arg(self.token.as_str());
        if let Some(upstream_session) = &self.upstream_session {
            command.arg("UPSTREAM").arg(upstream_session.as_str());
        }
    }

    fn read(&self, value: Value) -> Result<Self::Reply, Problem> {
        reply::binding(value)
    }
}

impl Wire for Rebind {
    fn write(&self, key: &SessionKey, command: &mut Cmd) {
        command
            .arg(Self::COMMAND)
            .arg(key.secret())
            .arg(self.principal.as_str())
            .arg(self.server.as_str())
            .arg(self.epoch)
            .arg(self.worker.as_str())
            .arg(self.token.as_str())
            .arg("LEASE")
            .arg(self.lease.get());
        instances(&self.instances, command);
        if let Some(avoid) = &self.avoid {
            command.arg("AVOID").arg(avoid.as_str());
        }
        if let Some(reason) = &self.reason {
            command.arg("REASON").arg(reason.as_str());
        }
        if let Some(upstream_session) = &self.upstream_session {
            command.arg("UPSTREAM").arg(upstream_session.as_str());
        }
        ownership(self.ownership, command);
        if self.report == LossReport::ByNextCall {
            command.arg("UNREPORTED");
        }
    }

    fn read(&self, value: Value) -> Result<Self::Reply, Problem> {
        reply::rebound(value)
    }

    fn is_without_instances(&self) -> bool {
        is_unplaceable(&self.instances)
    }
}

impl Wire for Unbind {
    // The answer to a second UNBIND is STALE, which would say of one that succeeded that it did not.
    const RESEND: Resend = Resend::Never;

    fn write(&self, key: &SessionKey, command: &mut Cmd) {
        command
            .arg(Self::COMMAND)
            .arg(key.secret())
            .arg(self.principal.as_str())
            .arg(self.server.as_str())
            .arg(self.epoch);
        if let Some(token) = &self.token {
            command.arg(token.as_str());
        }
    }

    fn read(&self, value: Value) -> Result<Self::Reply, Problem> {
        reply::binding(value)
    }
}

impl Wire for Clean {
    fn write(&self, key: &SessionKey, command: &mut Cmd) {
        command
            .arg(Self::COMMAND)
            .arg(key.secret())
            .arg(self.worker.as_str())
            .arg("LEASE")
            .arg(self.lease.get());
    }

    fn read(&self, value: Value) -> Result<Self::Reply, Problem> {
        reply::record(value)
    }
}

impl Wire for Forget {
    // The answer to a second FORGET is NOSESSION, which would say of one that succeeded that it did not.
    const RESEND: Resend = Resend::Never;

    fn write(&self, key: &SessionKey, command: &mut Cmd) {
        command
            .arg(Self::COMMAND)
            .arg(key.secret())
            .arg(self.generation)
            .arg(self.worker.as_str());
    }

    fn read(&self, _value: Value) -> Result<Self::Reply, Problem> {
        Ok(())
    }
}

fn labels(labels: &BTreeMap<LabelName, LabelValue>, command: &mut Cmd) {
    for (name, value) in labels {
        command.arg("LABEL").arg(name.as_str()).arg(value.as_str());
    }
}

fn instances(instances: &[InstanceName], command: &mut Cmd) {
    command.arg("INSTANCES").arg(instances.len());
    for instance in instances {
        command.arg(instance.as_str());
    }
}

fn ownership(ownership: Ownership, command: &mut Cmd) {
    if ownership == Ownership::Owned {
        command.arg("OWNED");
    }
}

fn is_unplaceable(instances: &[InstanceName]) -> bool {
    instances.is_empty() || instances.len() > mooring_session::limits::INSTANCES_MAX
}
