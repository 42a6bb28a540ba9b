//! Stopping the processes of servers that are idle: after their idle time-out, and, where as many run as may, the one that
//! was idle for longest in favor of a session that needs one.
//!
//! Invariant: a process that has a request in flight is not stopped: its connection decides, between two messages. The
//! session stays bound; its next message starts a new process and is marked, as after every loss.

use std::time::Duration;

use mooring_session::names::ServerName;
use tokio::time::{Instant, sleep, timeout_at};

use super::connection_table::{ConnectionKey, OwnedConnection};
use super::{Connector, OwnedConnections, SessionRouter};
use mooring_upstream::connection::Activity;
use mooring_upstream::stdio::{ChildSlot, ChildSpec, Children, StartError};

/// Between two looks for processes that were idle for too long, and between two for one that can be stopped.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// See [`LOOK_EVERY`].
const LOOK_FOR_ROOM_EVERY: Duration = Duration::from_millis(100);
/// How long a process must have been idle before it is stopped in favor of another session: sessions that begin at the
/// same moment must not take each other's process before the first call.
const YIELDS_AFTER: Duration = Duration::from_secs(1);
/// How long a session waits for a process that can be stopped.
const ROOM_WITHIN: Duration = Duration::from_secs(3);

/// Stops processes that were idle for longer than their server's time-out, until it is stopped itself.
pub async fn stop_idle_processes(router: SessionRouter) {
    loop {
        sleep(LOOK_EVERY).await;
        router.owned_connections().stop_timed_out().await;
    }
}

impl OwnedConnections {
    async fn stop_timed_out(&self) {
        for (place, held) in self.table.all() {
            let Some(Connector::Stdio {
                idle_timeout: Some(limit),
                ..
            }) = self.dials.get(&place.server)
            else {
                continue;
            };
            if idle_for(&held).is_some_and(|idle| idle >= *limit) {
                stop(&place, &held, *limit, "idle time-out").await;
            }
        }
    }

    /// A place for one more process of this server. Where there is none, the process that was idle for longest is stopped,
    /// and its end waited for.
    ///
    /// # Errors
    /// `AllInUse`: every process has a request in flight.
    pub(super) async fn make_room(
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
            (self.table.all().into_iter())
                .filter(|(place, _)| place.server == *server)
                .filter_map(|(place, held)| Some((idle_for(&held)?, place, held)))
                .filter(|(idle, ..)| *idle >= YIELDS_AFTER)
                .collect();
        idle.sort_by_key(|(idle, ..)| std::cmp::Reverse(*idle));
        for (_, place, held) in &idle {
            // One that is used just now is passed over.
            if stop(place, held, YIELDS_AFTER, "children_max").await {
                return true;
            }
        }
        false
    }
}

fn idle_for(held: &OwnedConnection) -> Option<Duration> {
    match held.connection.activity() {
        Activity::Idle { since } => Some(since.elapsed()),
        Activity::Busy | Activity::Stopped => None,
    }
}

async fn stop(
    place: &ConnectionKey,
    held: &OwnedConnection,
    idle_for: Duration,
    cause: &'static str,
) -> bool {
    let is_stopped = held.connection.stop_if_idle(idle_for).await;
    if is_stopped {
        tracing::info!(
            session = %place.key.digest(),
            server = %place.server,
            epoch = held.epoch,
            cause,
            "an idle server process was stopped"
        );
    }
    is_stopped
}
