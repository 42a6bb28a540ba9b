//! WORKER.WAIT: the one blocking command, on its own connection.
//!
//! Invariants: an event that the server delivered reaches a caller, even if the one that sent the wait goes away before
//! the reply, because the wait runs in a task and the next caller takes its result; there is at most one wait per
//! worker at a time, and when the shared link leads to another server it goes on there; a caller that retries immediately
//! after a failure does not spin; a wait that cannot end with events any more has no [`EventPath`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mooring_session::limits::{WAIT_TIMEOUT_MAX, WAIT_TIMEOUT_MIN};
use mooring_session::names::{ServerName, Token, WorkerId};
use mooring_session::time::Millis;
use redis::{Cmd, Value};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::dial::Dialer;
use super::failure::{self, invalid_reply};
use super::link_state::{Connection, LinkState};
use super::reply::{Fields, Problem, text};
use super::scripted::ScriptedStore;
use crate::error::{StoreError, UnavailableReason};
use crate::events::{EventPath, WorkerEvent};
use crate::lock::lock;

/// The number of the next path.
static PATHS: AtomicU64 = AtomicU64::new(EventPath::IN_PROCESS.0 + 1);
const COMMAND: &str = "WORKER.WAIT";

/// A path that is not equal to any before.
pub(super) fn new_path() -> EventPath {
    EventPath(PATHS.fetch_add(1, Ordering::Relaxed))
}

/// How long a failure is delayed, so that immediate retries are harmless.
const FAILURE_AFTER: Duration = Duration::from_millis(100);

/// The connections of workers that wait: one, unless one process runs several workers.
#[derive(Debug)]
pub(super) struct EventConnections {
    source: Source,
    lines: Mutex<HashMap<WorkerId, Arc<EventLine>>>,
}

/// One worker's way to its events.
#[derive(Debug, Default)]
struct EventLine {
    /// The number of the path over which they arrive; 0 while they do not.
    path: AtomicU64,
    connection: tokio::sync::Mutex<WaitConnection>,
}

/// What a wait needs to connect.
#[derive(Clone, Debug)]
struct Source {
    scripted: Option<Arc<ScriptedStore>>,
    dialer: Arc<Dialer>,
    link: watch::Receiver<LinkState>,
    prefix: Arc<str>,
}

/// One worker's connection, and the current wait on it.
#[derive(Default)]
struct WaitConnection {
    connection: Option<EventConnection>,
    wait: Option<JoinHandle<WaitResult>>,
}

/// A connection for waits.
struct EventConnection {
    connection: Connection,
    path: EventPath,
}

impl EventConnection {
    /// The number of the link's connection when this one was opened.
    const fn number(&self) -> u64 {
        self.connection.number
    }
}

/// The result of a wait, and its connection if it is reusable.
struct WaitResult {
    connection: Option<EventConnection>,
    result: Result<Vec<WorkerEvent>, StoreError>,
}

impl std::fmt::Debug for WaitConnection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "WaitConnection(waiting: {})",
            self.wait.is_some()
        )
    }
}

impl Drop for WaitConnection {
    fn drop(&mut self) {
        if let Some(wait) = &self.wait {
            wait.abort();
        }
    }
}

impl EventConnections {
    pub(super) fn new(
        dialer: Arc<Dialer>,
        link: watch::Receiver<LinkState>,
        prefix: &str,
        scripted: Option<Arc<ScriptedStore>>,
    ) -> Self {
        Self {
            source: Source {
                scripted,
                dialer,
                link,
                prefix: prefix.into(),
            },
            lines: Mutex::default(),
        }
    }

    pub(super) async fn wait(
        &self,
        worker: &WorkerId,
        wait: Duration,
    ) -> Result<Vec<WorkerEvent>, StoreError> {
        let wait = wait.clamp(duration(WAIT_TIMEOUT_MIN), duration(WAIT_TIMEOUT_MAX));
        let events = self.line(worker);
        // The task has its own timeout. Only a wait that an earlier caller started may take longer than this one.
        let deadline = Instant::now() + wait + self.source.dialer.command_timeout;
        let Ok(mut line) = timeout_at(deadline, events.connection.lock()).await else {
            return Ok(Vec::new());
        };
        if line.wait.is_none() {
            let connection = line.connection.take();
            let (source, events) = (self.source.clone(), Arc::clone(&events));
            let work = source.run(events, connection, worker.clone(), wait);
            line.wait = Some(tokio::spawn(work));
        }
        let Some(under_way) = &mut line.wait else {
            return Ok(Vec::new());
        };
        let Ok(waited) = timeout_at(deadline, under_way).await else {
            return Ok(Vec::new());
        };
        line.wait = None;
        let Ok(WaitResult { connection, result }) = waited else {
            return Err(StoreError::Away(UnavailableReason::Dropped));
        };
        line.connection = connection;
        result
    }

    pub(super) fn path(&self, worker: &WorkerId) -> Option<EventPath> {
        let number = lock(&self.lines).get(worker)?.path.load(Ordering::Acquire);
        (number != 0).then_some(EventPath(number))
    }

    fn line(&self, worker: &WorkerId) -> Arc<EventLine> {
        let mut lines = lock(&self.lines);
        Arc::clone(lines.entry(worker.clone()).or_default())
    }
}

impl Source {
    async fn run(
        mut self,
        events: Arc<EventLine>,
        connection: Option<EventConnection>,
        worker: WorkerId,
        wait: Duration,
    ) -> WaitResult {
        let sent_at = Instant::now();
        let waited = self.send_wait(&events, connection, &worker, wait).await;
        if waited.result.is_err() {
            events.path.store(0, Ordering::Release);
            sleep_until(sent_at + wait.min(FAILURE_AFTER)).await;
        }
        waited
    }

    async fn send_wait(
        &mut self,
        events: &EventLine,
        mut connection: Option<EventConnection>,
        worker: &WorkerId,
        wait: Duration,
    ) -> WaitResult {
        let failed = |error| WaitResult {
            connection: None,
            result: Err(error),
        };
        let deadline = Instant::now() + wait;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // After the link's connection was lost, the address may lead to another server.
            let is_up = |known: &EventConnection| self.link.borrow().is_up(known.number());
            let used = match connection.take().filter(is_up) {
                Some(known) => known,
                None => {
                    events.path.store(0, Ordering::Release);
                    match self.connect(left).await {
                        Ok(connection) => connection,
                        Err(error) => return failed(error),
                    }
                }
            };
            let command = self.wait_command(worker, left);
            let answer = used.connection.connection.send(&command);
            events.path.store(used.path.0, Ordering::Release);
            let link_lost = async {
                drop(
                    self.link
                        .wait_for(|state| !state.is_up(used.number()))
                        .await,
                );
                events.path.store(0, Ordering::Release);
                // What is already on its way comes first.
                sleep(FAILURE_AFTER).await;
            };
            let answered = tokio::select! {
                biased;
                answered = timeout(left + self.dialer.command_timeout, answer) => answered,
                () = link_lost => continue,
            };
            let error = match answered {
                Ok(Ok(Value::ServerError(error))) => failure::of_reply(COMMAND, &error),
                Ok(Ok(value)) => {
                    return WaitResult {
                        connection: Some(used),
                        result: self.parse(value).map_err(invalid_reply(COMMAND)),
                    };
                }
                Ok(Err(_)) => StoreError::Away(UnavailableReason::Dropped),
                Err(_) => StoreError::Away(UnavailableReason::TimedOut),
            };
            return failed(error);
        }
    }

    fn wait_command(&self, worker: &WorkerId, left: Duration) -> Cmd {
        if let Some(scripted) = &self.scripted {
            return scripted.wait_command(worker, left);
        }
        let mut command = redis::cmd(COMMAND);
        command
            .arg(worker.as_str())
            .arg("TIMEOUT")
            .arg(Millis::from(left).max(WAIT_TIMEOUT_MIN).get());
        command
    }

    fn parse(&self, value: Value) -> Result<Vec<WorkerEvent>, Problem> {
        match &self.scripted {
            Some(scripted) => scripted.parse_events(value),
            None => parse_events(&self.prefix, value),
        }
    }

    /// Connects once the shared link is up, whose task decides when to retry.
    async fn connect(&mut self, wait: Duration) -> Result<EventConnection, StoreError> {
        let away = || StoreError::Away(UnavailableReason::Disconnected);
        let is_up = |state: &LinkState| matches!(state, LinkState::Up(_));
        let opened = timeout(wait, self.link.wait_for(is_up)).await;
        let (server, number) = match opened.ok().and_then(Result::ok).as_deref() {
            Some(LinkState::Up(open)) => (Arc::clone(&open.server), open.number),
            _ => return Err(away()),
        };
        let connected = self.dialer.connect_to(&server).await.map_err(|_| away())?;
        Ok(EventConnection {
            connection: Connection::new(connected, number),
            path: new_path(),
        })
    }
}

fn duration(millis: Millis) -> Duration {
    Duration::from_millis(millis.get())
}

/// Parses the reply of WORKER.WAIT. Items for sessions outside this gateway's prefix, and unknown events of a newer
/// module, are skipped.
pub(super) fn parse_events(prefix: &str, value: Value) -> Result<Vec<WorkerEvent>, Problem> {
    let items = match value {
        Value::Nil => return Ok(Vec::new()),
        value => value
            .into_sequence()
            .map_err(|_| "it is not a list".to_owned())?,
    };
    let read = items.into_iter().map(|value| item(prefix, value));
    read.filter_map(Result::transpose).collect()
}

fn item(prefix: &str, value: Value) -> Result<Option<WorkerEvent>, Problem> {
    let mut fields = Fields::of(value)?;
    let event = fields.take("event").ok_or("the field event is missing")?;
    let Some(key) = fields.key(prefix)? else {
        return Ok(None);
    };
    let server = fields.name("server", ServerName::parse)?;
    Ok(match text(&event) {
        Some("turn") => Some(WorkerEvent::Turn {
            key,
            server,
            ticket: fields.name("ticket", Token::parse)?,
            turn: fields.number("turn")?,
        }),
        Some("withdrawn") => Some(WorkerEvent::Withdrawn {
            key,
            server,
            ticket: fields.name("ticket", Token::parse)?,
        }),
        Some("settled") => Some(WorkerEvent::Settled { key, server }),
        _ => None,
    })
}
