//! COUNT: how many sessions there are, from the counters of the module.

use mooring_session::names::WorkerId;
use redis::Value;

use super::failure::invalid_reply;
use super::reply::{Fields, Problem, bytes};
use super::{RedisStore, Resend};
use crate::error::StoreError;
use crate::key::Family;
use crate::session_counts::{InstanceCount, OwnerCount, SessionCounts};

impl RedisStore {
    /// None if the module has no COUNT, or this user may not use it: then only LIST knows.
    pub(crate) async fn count(&self, family: Family) -> Result<Option<SessionCounts>, StoreError> {
        // Without the module there are no counters.
        if self.scripted.is_some() {
            return Ok(None);
        }
        let name = "SESSION.COUNT";
        let head = family.head(&self.prefix);
        let mut command = redis::cmd(name);
        command.arg(("PREFIX", &head));
        let replies = self.servers.send_to_all(&command, Resend::Once).await;
        match replies.some(name) {
            Ok((replies, is_complete)) => {
                let counted = replies.into_iter().map(|value| counts(&head, value));
                let counted: Result<Vec<_>, Problem> = counted.collect();
                let mut sum = SessionCounts::sum(counted.map_err(invalid_reply(name))?);
                sum.complete &= is_complete;
                Ok(Some(sum))
            }
            Err(StoreError::NoModule | StoreError::Reply { .. }) => Ok(None),
            Err(StoreError::NotReady(reason)) if reason.is_denied() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Parses the reply of COUNT.
fn counts(head: &str, value: Value) -> Result<SessionCounts, Problem> {
    let mut fields = Fields::of(value)?;
    Ok(SessionCounts {
        complete: fields.truth("complete")?,
        active: fields.list("groups", |value| group(head, value))?,
        instances: fields.list("instances", instance)?,
        owners: fields.list("owners", owner)?,
    })
}

/// The server in the name of a group, which is what the keys of its sessions begin with.
fn group(head: &str, value: Value) -> Result<(Box<str>, u64), Problem> {
    let mut fields = Fields::of(value)?;
    let name = fields.take("prefix");
    let name = name.as_ref().and_then(bytes).unwrap_or_default();
    let server = name.strip_prefix(head.as_bytes()).unwrap_or_default();
    let server = server.strip_suffix(b":").unwrap_or(server);
    let server = String::from_utf8_lossy(server).into_owned();
    Ok((server.into(), fields.number("active")?))
}

fn instance(value: Value) -> Result<InstanceCount, Problem> {
    let mut fields = Fields::of(value)?;
    Ok(InstanceCount {
        server: fields.short_text("server")?,
        instance: fields.short_text("instance")?,
        bindings: fields.number("bindings")?,
    })
}

fn owner(value: Value) -> Result<OwnerCount, Problem> {
    let mut fields = Fields::of(value)?;
    Ok(OwnerCount {
        worker: fields.name("worker", WorkerId::parse)?,
        alive: fields.truth("alive")?,
        bindings: fields.number("bindings")?,
    })
}
