//! The connection to Redis: one multiplexed connection, and the task that makes it anew.
//!
//! Invariants: no caller waits longer than the command time-out, reconnecting included; while the server is known to
//! be away, callers are told so at once; a connection is used only after the module was found behind it; a command is
//! sent a second time at most once, and only where the rules answer a repetition as they did the first time.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::dial::Dialer;
use super::prefixes::{self, NotCovered};
use crate::error::{OpenError, StoreError, UnavailableReason};

/// The first wait after a failed attempt to connect; each further one is twice as long.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// The longest wait between attempts to connect, and so about the longest time until a return is noticed.
const BACKOFF_MAX: Duration = Duration::from_millis(250);
/// How often an open connection is tried while nobody may be using it.
const PING_EVERY: Duration = Duration::from_secs(1);

/// Whether a command is sent again after the connection was lost before its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resend {
    /// Once, within the command's time.
    Once,
    /// Not at all: a repetition is answered differently.
    Never,
}

/// Where the connection stands.
#[derive(Clone, Debug)]
pub(crate) enum LinkState {
    /// It is open, and the module is behind it.
    Up(Connection),
    /// It was lost a moment ago, and the first attempt to make it anew is under way.
    Reconnecting,
    /// The last attempt to connect failed.
    Down(DownReason),
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DownReason {
    /// The server cannot be reached.
    Unreachable(String),
    /// The server refuses this client.
    Denied(String),
    /// The server runs without the module.
    NoModule,
    /// The server's module lacks these commands.
    OldModule(String),
}

/// An open connection, told apart from the ones before it.
#[derive(Clone)]
pub(crate) struct Connection {
    connection: MultiplexedConnection,
    number: u64,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Connection({})", self.number)
    }
}

/// The handle of the connection and of the task that keeps it, which ends with the handle.
#[derive(Debug)]
pub(super) struct Link {
    shared: Arc<Shared>,
    keeper: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    dialer: Arc<Dialer>,
    /// What the keys of this gateway's sessions start with.
    heads: Vec<String>,
    state: watch::Sender<LinkState>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Link {
    /// Tries to connect once, then keeps trying in the background.
    ///
    /// # Errors
    /// The server was reached and refuses this client, or lacks what this gateway needs.
    pub(super) async fn open(dialer: Arc<Dialer>, heads: Vec<String>) -> Result<Self, OpenError> {
        let shared = Arc::new(Shared {
            dialer,
            heads,
            state: watch::Sender::new(LinkState::Reconnecting),
        });
        let address = || shared.dialer.address.clone();
        let first = match shared.dialer.connect().await {
            Err(DownReason::NoModule) => return Err(OpenError::NoModule { address: address() }),
            Err(DownReason::OldModule(missing)) => {
                let address = address();
                return Err(OpenError::OldModule { address, missing });
            }
            Err(DownReason::Denied(problem)) => {
                let address = address();
                return Err(OpenError::Denied { address, problem });
            }
            first => first,
        };
        if let Ok(connection) = &first
            && let Some(NotCovered { head, prefixes }) = shared.not_covered(connection).await
        {
            return Err(OpenError::NotIndexed {
                address: address(),
                head,
                prefixes,
            });
        }
        let first = shared.note(first, 1);
        let keeper = tokio::spawn(Arc::clone(&shared).keep(first));
        Ok(Self { shared, keeper })
    }

    pub(super) fn address(&self) -> &str {
        &self.shared.dialer.address
    }

    pub(super) fn watch(&self) -> watch::Receiver<LinkState> {
        self.shared.state.subscribe()
    }

    /// Sends a command and waits for its reply, for the command time-out at most. An error answer of the server is a
    /// reply.
    pub(super) async fn send(&self, command: &Cmd, resend: Resend) -> Result<Value, StoreError> {
        let deadline = Instant::now() + self.shared.dialer.command_timeout;
        match self.shared.attempt(command, deadline).await {
            Err(StoreError::Away(UnavailableReason::Dropped)) if resend == Resend::Once => {
                self.shared.attempt(command, deadline).await
            }
            result => result,
        }
    }
}

impl Shared {
    async fn attempt(&self, command: &Cmd, deadline: Instant) -> Result<Value, StoreError> {
        let Connection {
            mut connection,
            number,
        } = self.connection(deadline).await?;
        let away = match timeout_at(deadline, connection.send_packed_command(command)).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => match error.into_server_errors() {
                Some(errors) if !errors.is_empty() => {
                    let first = errors.first().map(|(_, error)| error.clone());
                    return Ok(first.map_or(Value::Nil, Value::ServerError));
                }
                _ => UnavailableReason::Dropped,
            },
            Err(_) => UnavailableReason::TimedOut,
        };
        // What could not be read in time may be read by nobody else's command: the connection is not trusted again.
        self.lose(number);
        Err(StoreError::Away(away))
    }

    /// The open connection; waits only while the first attempt after a loss is under way.
    async fn connection(&self, deadline: Instant) -> Result<Connection, StoreError> {
        let of = |state: &LinkState| match state {
            LinkState::Up(connection) => Some(Ok(connection.clone())),
            LinkState::Reconnecting => None,
            LinkState::Down(DownReason::NoModule | DownReason::OldModule(_)) => {
                Some(Err(StoreError::NoModule))
            }
            LinkState::Down(_) => Some(Err(StoreError::Away(UnavailableReason::Disconnected))),
        };
        if let Some(known) = of(&self.state.borrow()) {
            return known;
        }
        let mut changes = self.state.subscribe();
        let settled = timeout_at(deadline, changes.wait_for(|state| of(state).is_some())).await;
        match settled {
            Ok(Ok(state)) => {
                of(&state).unwrap_or(Err(StoreError::Away(UnavailableReason::Disconnected)))
            }
            _ => Err(StoreError::Away(UnavailableReason::Disconnected)),
        }
    }

    /// Gives up a connection, unless a later one has taken its place.
    fn lose(&self, number: u64) {
        self.state.send_if_modified(|state| {
            let is_current =
                matches!(state, LinkState::Up(connection) if connection.number == number);
            if is_current {
                *state = LinkState::Reconnecting;
            }
            is_current
        });
    }

    /// Keeps a connection for as long as the store lives.
    async fn keep(self: Arc<Self>, mut last: Result<u64, ()>) {
        let mut number = 1;
        let mut wait = BACKOFF_MIN;
        loop {
            match last {
                Ok(open) => {
                    wait = BACKOFF_MIN;
                    self.until_lost(open).await;
                }
                Err(()) => {
                    tokio::time::sleep(wait.mul_f64(rand::random_range(0.5..1.0))).await;
                    wait = BACKOFF_MAX.min(wait * 2);
                }
            }
            number += 1;
            let attempt = self.dialer.connect().await;
            // A fleet that runs is not stopped for it: its sessions are routed all the same.
            if let Ok(connection) = &attempt
                && let Some(NotCovered { head, prefixes }) = self.not_covered(connection).await
            {
                tracing::error!(
                    %head,
                    %prefixes,
                    "mooring.prefixes of redis does not cover keys of sessions: they are neither counted nor cleaned up"
                );
            }
            last = self.note(attempt, number);
        }
    }

    /// What the server's prefixes do not cover of this gateway's keys.
    async fn not_covered(&self, connection: &MultiplexedConnection) -> Option<NotCovered> {
        let mut connection = connection.clone();
        prefixes::not_covering(&mut connection, &self.heads, self.dialer.command_timeout).await
    }

    /// Returns when the connection is lost, and finds that out by itself where nobody uses it.
    async fn until_lost(&self, number: u64) {
        let mut changes = self.state.subscribe();
        let ping = redis::cmd("PING");
        loop {
            let lost = changes.wait_for(
                |state| !matches!(state, LinkState::Up(connection) if connection.number == number),
            );
            if timeout(PING_EVERY, lost).await.is_ok() {
                return;
            }
            let deadline = Instant::now() + self.dialer.command_timeout;
            // A failure has given up the connection already, which the next look at the state finds.
            drop(self.attempt(&ping, deadline).await);
        }
    }

    /// Notes and logs the outcome of an attempt to connect.
    fn note(
        &self,
        attempt: Result<MultiplexedConnection, DownReason>,
        number: u64,
    ) -> Result<u64, ()> {
        let address = &self.dialer.address;
        match attempt {
            Ok(connection) => {
                tracing::info!(%address, "connected to redis");
                self.state
                    .send_replace(LinkState::Up(Connection { connection, number }));
                Ok(number)
            }
            Err(down) => {
                let is_new = !matches!(&*self.state.borrow(), LinkState::Down(old) if *old == down);
                if is_new {
                    tracing::warn!(%address, problem = ?down, "redis is away");
                    self.state.send_replace(LinkState::Down(down));
                }
                Err(())
            }
        }
    }
}
