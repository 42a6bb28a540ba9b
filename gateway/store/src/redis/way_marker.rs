//! How the gateways of a prefix use their Redis: by the module's commands, or by a script. It is one way for all of them.
//!
//! Both ways have the same records, but turns, heartbeats and indexes in other places, so a fleet that mixed them would
//! not be in order. The plain string `<prefix>fleet` names the way while gateways run, which renew it with their
//! heartbeats. A cluster has none: it is used by the module's commands only. Invariant: a gateway that finds the other way
//! there does not start, or none of its heartbeats succeeds.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt};
use redis::{Cmd, Value};

use super::command_connection::CommandConnection;
use super::dial::way_word;
use super::down_reason::{ANSWERED, DownReason};
use super::link::Link;
use super::link_entry::EntryCheck;
use super::link_state::Resend;
use super::log_in::send;
use super::reply::text;
use super::scripted;
use crate::error::{NotReady, StoreError};
use crate::lock::lock;
use mooring_settings::ModuleUse;

/// How long after the last heartbeat of a fleet its way is known.
const KEPT_FOR: Duration = Duration::from_secs(15);
/// How often it is renewed.
const RENEWED_EVERY: Duration = Duration::from_secs(4);

/// The marker, and the way of this gateway.
#[derive(Debug)]
pub(super) struct WayMarker {
    key: String,
    /// Exists while every session is in the indexes of the script.
    indexed: String,
    way: ModuleUse,
    renewed_at: Mutex<Option<Instant>>,
}

/// Gateways with the other way than this run.
fn problem(ours: ModuleUse) -> String {
    let (theirs, ours) = match ours {
        ModuleUse::Required => ("without", "required"),
        ModuleUse::Unused => ("with", "none"),
    };
    let seconds = KEPT_FOR.as_secs();
    format!(
        "gateways with this store.key_prefix use it {theirs} the module, and store.module is {ours:?} here: stop them all, \
         wait {seconds} seconds, and start them with one setting"
    )
}

impl WayMarker {
    pub(super) fn new(prefix: &str, way: ModuleUse) -> Self {
        Self {
            key: format!("{prefix}fleet"),
            indexed: scripted::indexed_key(prefix),
            way,
            renewed_at: Mutex::default(),
        }
    }

    /// Checks and sets the marker over the first connection; later ones are left to the heartbeats, so that a connection
    /// which is lost is soon replaced. A server that cannot do that now, or does not let this client, is not the subject here.
    async fn claim(&self, connection: &CommandConnection) -> Result<(), DownReason> {
        if lock(&self.renewed_at).is_some() {
            return Ok(());
        }
        let found = match send(connection, &self.read()).await {
            Ok(found) => found,
            Err(DownReason::Unreachable(problem)) if !problem.starts_with(ANSWERED) => {
                return Err(DownReason::Unreachable(problem));
            }
            Err(_) => return Ok(()),
        };
        if self.is_other(&found) {
            return Err(DownReason::OtherWay(problem(self.way)));
        }
        if let Some(command) = self.forget_indexes(&found) {
            drop(send(connection, &command).await);
        }
        drop(send(connection, &self.write()).await);
        *lock(&self.renewed_at) = Some(Instant::now());
        Ok(())
    }

    /// The same after a heartbeat, now and then.
    pub(super) async fn renew(&self, link: &Link) -> Result<(), StoreError> {
        let renewed_at = *lock(&self.renewed_at);
        if renewed_at.is_some_and(|at| at.elapsed() < RENEWED_EVERY) {
            return Ok(());
        }
        let found = link.send(&self.read(), Resend::Once).await?;
        if self.is_other(&found) {
            let why = NotReady::Answered(problem(self.way).into());
            return Err(StoreError::NotReady(why));
        }
        if let Some(command) = self.forget_indexes(&found) {
            link.send(&command, Resend::Once).await?;
        }
        // A user without the right to write it, or a replica, renews nothing.
        link.send(&self.write(), Resend::Once).await?;
        *lock(&self.renewed_at) = Some(Instant::now());
        Ok(())
    }

    fn is_other(&self, found: &Value) -> bool {
        text(found).is_some_and(|word| word != way_word(self.way))
    }

    /// For the first gateway of a fleet that uses the module, whose sessions are in no index of the script.
    fn forget_indexes(&self, found: &Value) -> Option<Cmd> {
        (self.way == ModuleUse::Required && *found == Value::Nil).then(|| {
            let mut command = redis::cmd("DEL");
            command.arg(&self.indexed);
            command
        })
    }

    fn read(&self) -> Cmd {
        let mut command = redis::cmd("GET");
        command.arg(&self.key);
        command
    }

    fn write(&self) -> Cmd {
        let mut command = redis::cmd("SET");
        let kept_ms = u64::try_from(KEPT_FOR.as_millis()).unwrap_or(u64::MAX);
        command.arg((&self.key, way_word(self.way), "PX", kept_ms));
        command
    }
}

impl EntryCheck for WayMarker {
    fn check<'a>(
        &'a self,
        connection: &'a CommandConnection,
    ) -> BoxFuture<'a, Result<(), DownReason>> {
        self.claim(connection).boxed()
    }
}
