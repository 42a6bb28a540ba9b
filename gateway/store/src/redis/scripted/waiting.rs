//! The events of gateways, and what is due in the queues of sessions with waiters.
//!
//! Nobody but a gateway looks whether a lease has lapsed. So each one looks at the sessions whose turns it has seen waited
//! for, when something of them is due, and for the death of a holder once a second. Invariants: events come by a blocking
//! command, not by polling; a session without waiters is not looked at; how many are looked at is bounded.

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use mooring_session::SessionPlace;
use mooring_session::events::EventMailboxes;
use mooring_session::limits::EVENTS_BATCH_MAX;
use mooring_session::names::{ServerName, Token, WorkerId};
use mooring_session::time::Monotonic;
use mooring_session::turns::Turns;
use redis::{Cmd, Value};
use tokio::time::{Instant, sleep_until};

use super::super::reply::{Problem, text};
use super::ScriptedStore;
use crate::error::StoreError;
use crate::events::WorkerEvent;
use crate::key::SessionKey;

/// How often a session is looked at while its turn is waited for: the death of a gateway has no deadline.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Shortest time between two looks at a session.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// How many sessions are looked at, or grants picked up, at the same time.
const AT_ONCE: usize = 16;
/// Most grants that one call takes from the list.
const BATCH: usize = if EVENTS_BATCH_MAX < 256 {
    EVENTS_BATCH_MAX
} else {
    256
};

impl ScriptedStore {
    /// Plans the next look at a session that was just read or written.
    pub(super) fn plan_look(
        &self,
        key: &SessionKey,
        mono: Monotonic,
        turns: &Turns,
        events: &EventMailboxes,
        place: &SessionPlace,
    ) {
        let watched = events.next_deadline();
        let waited = turns
            .has_waiters(place)
            .then(|| turns.next_deadline())
            .flatten();
        let next = [watched, waited].into_iter().flatten().min();
        let Some(due) = next else {
            self.planned_looks.forget(key);
            return;
        };
        let mut rest = Duration::from_millis(due.ms().saturating_sub(mono.ms()));
        if waited.is_some() {
            rest = rest.min(LOOK_EVERY);
        }
        self.planned_looks
            .plan(key, Instant::now() + rest.max(LOOK_PAUSE));
    }

    /// The blocking command for events of this gateway.
    pub(in super::super) fn wait_command(&self, worker: &WorkerId, wait: Duration) -> Cmd {
        let seconds = wait.max(Duration::from_millis(1)).as_secs_f64();
        let mut command = redis::cmd("BLMPOP");
        command.arg(format!("{seconds:.3}")).arg((
            1,
            self.keys.events(worker),
            "LEFT",
            "COUNT",
            BATCH,
        ));
        command
    }

    /// Parses the reply to it. Events that cannot be read, which must have been pushed by hand, are skipped.
    pub(in super::super) fn parse_events(&self, value: Value) -> Result<Vec<WorkerEvent>, Problem> {
        let lines = match value {
            Value::Nil => return Ok(Vec::new()),
            value => value
                .into_sequence()
                .map_err(|_| "it is not a list".to_owned())?,
        };
        let lines = lines
            .into_iter()
            .nth(1)
            .unwrap_or(Value::Nil)
            .into_sequence();
        let lines = lines.map_err(|_| "it has no list".to_owned())?;
        let mut events: Vec<WorkerEvent> = Vec::new();
        for line in lines.iter().filter_map(text) {
            if let Some(event) = self.parse_event(line)
                && !events.contains(&event)
            {
                events.push(event);
            }
        }
        Ok(events)
    }

    fn parse_event(&self, line: &str) -> Option<WorkerEvent> {
        let mut words = line.splitn(5, ' ');
        let name = words.next()?;
        let server = ServerName::parse(words.next()?.as_bytes()).ok()?;
        let ticket = words.next()?;
        let ticket = || Token::parse(ticket.as_bytes()).ok();
        let turn = words.next()?.parse().ok()?;
        let key = SessionKey::named(self.keys.prefix(), words.next()?.as_bytes())?;
        Some(match name {
            "turn" => WorkerEvent::Turn {
                key,
                server,
                ticket: ticket()?,
                turn,
            },
            "withdrawn" => WorkerEvent::Withdrawn {
                key,
                server,
                ticket: ticket()?,
            },
            "settled" => WorkerEvent::Settled { key, server },
            _ => return None,
        })
    }

    /// Waits for `events`, and meanwhile does what is due. Grants that have become invalid are dropped.
    pub(in super::super) async fn wait_for_events<F>(
        &self,
        timeout: Duration,
        wait: impl Fn(Duration) -> F,
    ) -> Result<Vec<WorkerEvent>, StoreError>
    where
        F: Future<Output = Result<Vec<WorkerEvent>, StoreError>>,
    {
        let deadline = Instant::now() + timeout;
        loop {
            let planned = self.planned_looks.bell().notified();
            tokio::pin!(planned);
            planned.as_mut().enable();
            self.look_at_due().await;
            let left = deadline.saturating_duration_since(Instant::now());
            let next = self
                .planned_looks
                .next()
                .map_or(deadline, |next| next.min(deadline));
            let mut waits = std::pin::pin!(wait(left));
            let events = tokio::select! {
                biased;
                events = &mut waits => self.valid(events?).await,
                () = sleep_until(next), if next < deadline => Vec::new(),
                () = planned => Vec::new(),
            };
            if !events.is_empty() || Instant::now() >= deadline {
                return Ok(events);
            }
        }
    }

    async fn look_at_due(&self) {
        let looks = stream::iter(self.planned_looks.due()).map(|key| async move {
            if let Err(error) = self.look(&key).await {
                tracing::debug!(session = %key.digest(), %error, "the turns of a session were not advanced");
                self.planned_looks.plan(&key, Instant::now() + LOOK_EVERY);
            }
        });
        looks.buffer_unordered(AT_ONCE).collect::<()>().await;
    }

    /// The events that are still valid. They are taken from the list already, so a grant that cannot be picked up now does
    /// not hold back the others: it lapses, and its session is looked at.
    async fn valid(&self, events: Vec<WorkerEvent>) -> Vec<WorkerEvent> {
        let checks = stream::iter(events).map(|event| async move {
            let is_valid = match &event {
                WorkerEvent::Turn {
                    key,
                    server,
                    ticket,
                    turn,
                } => match self.pick_up(key, server, ticket, *turn).await {
                    Ok(is_valid) => is_valid,
                    Err(StoreError::Refused(_)) => false,
                    Err(error) => {
                        tracing::debug!(session = %key.digest(), %error, "a turn was not picked up");
                        self.planned_looks.plan(key, Instant::now() + LOOK_EVERY);
                        false
                    }
                },
                WorkerEvent::Withdrawn { .. } | WorkerEvent::Settled { .. } => true,
            };
            is_valid.then_some(event)
        });
        let checked: Vec<_> = checks.buffered(AT_ONCE).collect().await;
        checked.into_iter().flatten().collect()
    }
}
