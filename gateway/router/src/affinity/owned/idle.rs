//! Stops idle server processes: after their idle timeout, and, if the process limit is reached, the longest idle one in
//! favor of a session that needs a process.
//!
//! Invariant: a process with an in-flight request is not stopped, because its connection decides between two messages.
//! The session stays bound; its next message starts a new process, and the reply has a rebind notice, as after every
//! loss. A process that its session has never called has nothing to lose: its binding is undone, and nothing is reported.

use std::time::Duration;

use mooring_session::names::ServerName;
use tokio::time::{Instant, sleep, timeout_at};

use super::connection_table::{ConnectionKey, OwnedConnection};
use super::{Connector, SessionRouter};
use mooring_session::rules::UnbindRequest;
use mooring_store::{OwnerChange, StoreError};
use mooring_upstream::connection::{Activity, IdleLimits, StoppedServer};
use mooring_upstream::stdio::{ChildSlot, ChildSpec, Children, StartError};

/// Interval of checks for idle timeouts.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Interval of checks for a process that can be stopped to make room.
const LOOK_FOR_ROOM_EVERY: Duration = Duration::from_millis(100);
/// Minimum idle time before a process is stopped in favor of another session, so that sessions that begin at the same
/// time do not stop each other's process before the first call.
const YIELDS_AFTER: Duration = Duration::from_secs(1);
/// How long a session waits for room.
const ROOM_WITHIN: Duration = Duration::from_secs(3);

/// Stops processes whose idle timeout has passed, until it is stopped itself.
pub async fn stop_idle_processes(router: SessionRouter) {
    loop {
        sleep(LOOK_EVERY).await;
        router.stop_timed_out().await;
    }
}

impl SessionRouter {
    async fn stop_timed_out(&self) {
        for (connection_key, held) in self.owned_connections().table.all() {
            let connector = self.connector(&connection_key.server);
            let Some(Connector::Stdio {
                idle_timeout: Some(limit),
                ..
            }) = connector.as_deref()
            else {
                continue;
            };
            let limits = IdleLimits::of(*limit);
            if idle_for(&held).is_some_and(|idle| idle >= limits.unused) {
                self.stop(&connection_key, &held, limits, "idle time-out")
                    .await;
            }
        }
    }

    /// Reserves a slot for a process of this server. If none is free, the longest idle process is stopped and its end
    /// awaited.
    ///
    /// # Errors
    /// `AllInUse`: every process has an in-flight request.
    pub(super) async fn make_process_room(
        &self,
        server: &ServerName,
        spec: &ChildSpec,
        children: &Children,
    ) -> Result<ChildSlot, StartError> {
        let all_in_use = match children.try_reserve() {
            Ok(slot) => return Ok(slot),
            Err(error) => error,
        };
        let mut deadline = Instant::now() + ROOM_WITHIN;
        let mut has_stopped = false;
        loop {
            let mut until = deadline;
            if !has_stopped {
                has_stopped = self.stop_longest_idle(server).await;
                if has_stopped {
                    deadline += spec.limits.stop_grace + spec.limits.terminate_grace;
                    until = deadline;
                } else {
                    until = until.min(Instant::now() + LOOK_FOR_ROOM_EVERY);
                }
            }
            match timeout_at(until, children.reserve()).await {
                Ok(reserved) => return reserved,
                Err(_) if until >= deadline => return Err(all_in_use),
                Err(_) => {}
            }
        }
    }

    async fn stop_longest_idle(&self, server: &ServerName) -> bool {
        let mut idle: Vec<(Duration, ConnectionKey, OwnedConnection)> =
            (self.owned_connections().table.all().into_iter())
                .filter(|(connection_key, _)| connection_key.server == *server)
                .filter_map(|(connection_key, held)| Some((idle_for(&held)?, connection_key, held)))
                .filter(|(idle, ..)| *idle >= YIELDS_AFTER)
                .collect();
        idle.sort_by_key(|(idle, ..)| std::cmp::Reverse(*idle));
        for (_, connection_key, held) in &idle {
            // It may have been used in the meantime; then try another.
            let limits = IdleLimits::all(YIELDS_AFTER);
            if self
                .stop(connection_key, held, limits, "children_max")
                .await
            {
                return true;
            }
        }
        false
    }

    /// Stops a server that has been idle for as long as `limits` allow. Returns whether it did.
    pub(super) async fn stop(
        &self,
        connection_key: &ConnectionKey,
        held: &OwnedConnection,
        limits: IdleLimits,
        cause: &'static str,
    ) -> bool {
        let Some(stopped) = held.connection.stop_if_idle(limits).await else {
            return false;
        };
        tracing::info!(
            session = %connection_key.key.digest(),
            server = %connection_key.server,
            epoch = held.epoch,
            cause,
            is_used = stopped == StoppedServer::Used,
            "stopped an idle server process"
        );
        let (session, server) = (connection_key.key.digest(), &connection_key.server);
        self.note_owner(
            &session,
            server,
            held.epoch,
            OwnerChange::Closed,
            Some(cause),
        );
        if stopped == StoppedServer::Unused
            && let Err(error) = self.unbind_unused(connection_key, held.epoch).await
        {
            tracing::debug!(session = %connection_key.key.digest(), %error, "failed to undo the binding of an unused process");
        }
        true
    }

    /// Undoes the binding of a process that was never called. One that was moved before has a loss to report.
    async fn unbind_unused(
        &self,
        connection_key: &ConnectionKey,
        epoch: u64,
    ) -> Result<(), StoreError> {
        let record = self.store().get(&connection_key.key).await?;
        let is_first = record.bindings.iter().any(|binding| {
            binding.server == connection_key.server
                && binding.epoch == epoch
                && binding.rebinds == 0
        });
        if !is_first {
            return Ok(());
        }
        let request = UnbindRequest {
            principal: record.principal,
            server: connection_key.server.clone(),
            epoch,
            token: None,
        };
        self.delegations()
            .recall(&connection_key.key, &connection_key.server);
        self.store().unbind(&connection_key.key, &request).await?;
        self.owned_connections().close(connection_key, epoch);
        Ok(())
    }
}

fn idle_for(held: &OwnedConnection) -> Option<Duration> {
    match held.connection.activity() {
        Activity::Idle { since } => Some(since.elapsed()),
        Activity::Busy | Activity::Stopped => None,
    }
}
