//! The multiplexed connections to Redis, one for each thread that sends commands, and the task that reconnects.
//!
//! Whether Redis is there is one state for the process: the first connection decides, and a connection of any thread
//! that is lost counts as all of them.
//!
//! Invariants: no caller waits longer than the command timeout, reconnecting included; while the server is known to be
//! away, callers fail at once; a connection is used only after the module was checked; a command is sent at most twice,
//! and a second time only if a repetition changes nothing more and is not refused. Its reply then has the same record or
//! binding, but not what only the change itself reports: `created` and `revived` of CREATE, `ended_now` of END, and
//! `worker_lost` of ROUTE.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::BoxFuture;
use mooring_settings::{ModuleUse, RedisEndpoint};
use redis::{Cmd, Value};
use thread_local::ThreadLocal;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::backoff::Backoff;
use super::command_connection::{CommandConnection, ReplyCallback};
use super::dial::{Dialer, ServerConnection, way_word};
use super::down_reason::{DownReason, timed_out};
use super::link_entry::LinkEntry;
use super::link_state::{Connection, LinkState, Resend, SlotState};
use super::prefixes::{self, NotCovered};
use crate::error::{NotReady, OpenError, StoreError, UnavailableReason};
use crate::lock::lock;
use crate::status::RedisServerView;

/// Interval of pings on a connection that may be unused.
const PING_EVERY: Duration = Duration::from_secs(1);
/// The connection of a single URL to a server that has become a replica is kept for this long, so that a fleet whose only
/// server is one does not reconnect for every command. Where a primary is looked for, none is opened to a replica.
const REPLICA_KEPT_FOR: Duration = Duration::from_secs(1);
/// Pause between attempts to open a connection of a thread's own while the first one is open.
const DIAL_OWN_EVERY: Duration = Duration::from_secs(5);

/// The number of the next connection of any link.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// Handle of the connection and of the task that maintains it, which ends with the handle.
#[derive(Debug)]
pub(super) struct Link {
    shared: Arc<Shared>,
    keeper: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    dialer: Arc<Dialer>,
    entry: LinkEntry,
    state: watch::Sender<LinkState>,
    /// The connection that each thread sends over. A connection is driven by the thread that opened it, and a reply
    /// that crosses threads costs a wake-up.
    by_thread: ThreadLocal<Mutex<ThreadConnection>>,
}

/// The connection of one thread, of the number that was open when the thread sent its last command. None while it is
/// being opened, and on the thread that opened the first connection, which has that one: the first serves meanwhile.
#[derive(Debug, Default)]
struct ThreadConnection {
    number: u64,
    own: Option<Connection>,
}

/// What becomes of a thread without a connection of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WithoutOwn {
    /// It gets one.
    Dial,
    /// It shares the open one, since it may serve nothing: it may run code.
    Share,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.keeper.abort();
        // Ends the pings of all threads.
        self.shared.state.send_replace(LinkState::Reconnecting);
    }
}

impl Link {
    /// Tries to connect once, then retries in the background.
    ///
    /// # Errors
    /// The server is reachable but refuses this client, or lacks what this gateway needs.
    pub(super) async fn open(dialer: Arc<Dialer>, entry: LinkEntry) -> Result<Self, OpenError> {
        let shared = Shared::new(dialer, entry);
        let address = &shared.dialer.address;
        let first = match shared.admitted(shared.dialer.connect().await).await {
            Err(down @ DownReason::Unreachable(_)) => Err(down),
            first => Ok(first.map_err(|down| down.at(address))?),
        };
        if let Ok(opened) = &first
            && let Some(not_covered) = shared.not_covered(&opened.connection).await
        {
            return Err(not_covered.at(address));
        }
        let number = next_number();
        let first = shared.note(first, number);
        let keeper = tokio::spawn(Arc::clone(&shared).keep(first, number));
        Ok(Self { shared, keeper })
    }

    /// Connects in the background only. Until the first attempt has ended, commands wait for it.
    pub(super) fn start(dialer: Arc<Dialer>, entry: LinkEntry) -> Self {
        let shared = Shared::new(dialer, entry);
        let keeping = Arc::clone(&shared);
        let keeper = tokio::spawn(async move {
            let first = keeping.admitted(keeping.dialer.connect().await).await;
            if let Ok(opened) = &first {
                keeping.report_not_covered(&opened.connection).await;
            }
            let number = next_number();
            let first = keeping.note(first, number);
            keeping.keep(first, number).await;
        });
        Self { shared, keeper }
    }

    pub(super) fn address(&self) -> &str {
        &self.shared.dialer.address
    }

    pub(super) fn server(&self) -> RedisServerView {
        let (address, problem) = match &*self.shared.state.borrow() {
            LinkState::Up(open) => (
                Some(open.server.address.to_string()),
                self.shared.dialer.successor_problem(),
            ),
            LinkState::Reconnecting => (None, None),
            LinkState::Down(down) => (None, Some(down.problem())),
        };
        RedisServerView {
            discovery: self.shared.dialer.discovery(),
            way: way_word(self.shared.dialer.module()),
            address,
            problem,
            primaries: Vec::new(),
        }
    }

    pub(super) fn watch(&self) -> watch::Receiver<LinkState> {
        self.shared.state.subscribe()
    }

    /// How long a command may take.
    pub(super) fn command_timeout(&self) -> Duration {
        self.shared.dialer.command_timeout
    }

    /// A connection to the server in use that no other command shares, for those that mean something only together. It is
    /// closed when it is dropped.
    pub(super) async fn dial_separate(&self) -> Result<CommandConnection, StoreError> {
        let open = (self.shared)
            .connection(Instant::now() + self.command_timeout())
            .await?;
        let opened = self.shared.dialer.connect_to(&open.server).await;
        opened
            .map(|opened| opened.connection)
            .map_err(|down| StoreError::NotReady(NotReady::Answered(down.problem().into())))
    }

    /// The number of the open connection; 0 without one.
    pub(super) fn number(&self) -> u64 {
        match &*self.shared.state.borrow() {
            LinkState::Up(connection) => connection.number,
            LinkState::Reconnecting | LinkState::Down(_) => 0,
        }
    }

    /// Sends a command and waits for its reply, at most for the command timeout. An error from the server is a reply.
    pub(super) async fn send(&self, command: &Cmd, resend: Resend) -> Result<Value, StoreError> {
        let deadline = Instant::now() + self.shared.dialer.command_timeout;
        match self.shared.attempt(command, deadline).await {
            Err(StoreError::Away(UnavailableReason::Dropped)) if resend == Resend::Once => {
                self.shared.attempt(command, deadline).await
            }
            result => result,
        }
    }

    /// Sends a command once, within the time until `deadline`. An error from the server is a reply.
    pub(super) async fn send_once(
        &self,
        command: &Cmd,
        slot: SlotState,
        deadline: Instant,
    ) -> Result<Value, StoreError> {
        self.shared.attempt_at(command, slot, deadline).await
    }

    /// Sends a command whose reply no caller waits for, if there is a connection. Its time limit is that of the
    /// pings, which give up a connection without replies.
    pub(super) fn send_unawaited(&self, command: &Cmd, on_reply: ReplyCallback) {
        let open = match &*self.shared.state.borrow() {
            LinkState::Up(connection) => Some(connection.clone()),
            LinkState::Reconnecting | LinkState::Down(_) => None,
        };
        match open.map(|open| self.shared.of_this_thread(open, WithoutOwn::Share)) {
            Some(Connection { connection, .. }) => {
                connection.send_unawaited(command, on_reply);
            }
            None => on_reply(None),
        }
    }
}

fn next_number() -> u64 {
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

impl Shared {
    fn new(dialer: Arc<Dialer>, entry: LinkEntry) -> Arc<Self> {
        Arc::new(Self {
            dialer,
            entry,
            state: watch::Sender::new(LinkState::Reconnecting),
            by_thread: ThreadLocal::new(),
        })
    }

    async fn attempt(
        self: &Arc<Self>,
        command: &Cmd,
        deadline: Instant,
    ) -> Result<Value, StoreError> {
        self.attempt_at(command, SlotState::Served, deadline).await
    }

    async fn attempt_at(
        self: &Arc<Self>,
        command: &Cmd,
        slot: SlotState,
        deadline: Instant,
    ) -> Result<Value, StoreError> {
        let Connection {
            connection,
            number,
            opened_at,
            ..
        } = self.of_this_thread(self.connection(deadline).await?, WithoutOwn::Dial);
        let answer = async {
            match slot {
                SlotState::Served => connection.send(command).await,
                SlotState::Importing => connection.send_asking(command).await,
            }
        };
        let away = match timeout_at(deadline, answer).await {
            Ok(Ok(reply)) => {
                // After a failover the address leads to another server, and this connection to the former primary.
                if is_from_replica(&reply)
                    && (self.dialer.needs_primary() || opened_at.elapsed() >= REPLICA_KEPT_FOR)
                {
                    self.lose(number);
                }
                return Ok(reply);
            }
            Ok(Err(_)) => UnavailableReason::Dropped,
            Err(_) => UnavailableReason::TimedOut,
        };
        // A late reply must not be taken for that of a later command, so the connection is not reused.
        self.lose(number);
        Err(StoreError::Away(away))
    }

    /// This thread's connection of the same number as the open one, or that one while there is none: no command waits
    /// for a second connection.
    fn of_this_thread(self: &Arc<Self>, open: Connection, without_own: WithoutOwn) -> Connection {
        let mut thread = self.thread();
        if thread.number != open.number {
            if without_own == WithoutOwn::Share {
                return open;
            }
            *thread = ThreadConnection {
                number: open.number,
                own: None,
            };
            let server = Arc::clone(&open.server);
            tokio::spawn(Arc::clone(self).keep_own(open.number, server));
        }
        thread.own.clone().unwrap_or(open)
    }

    fn thread(&self) -> MutexGuard<'_, ThreadConnection> {
        lock(self.by_thread.get_or_default())
    }

    /// Maintains this thread's own connection until the open one of this number is lost. A failure to open it, as at
    /// the server's limit of clients, is no loss: the thread shares the open one, and tries again.
    async fn keep_own(self: Arc<Self>, number: u64, server: Arc<RedisEndpoint>) {
        let mut changes = self.state.subscribe();
        let mut is_known = false;
        loop {
            match self.dialer.connect_to(&server).await {
                Ok(opened) => {
                    let own = Connection::new(opened, number);
                    self.set_own(number, Some(own));
                    return Arc::clone(&self).until_lost(number).await;
                }
                Err(problem) if !is_known => {
                    tracing::warn!(?problem, "a thread has no connection to redis of its own");
                    is_known = true;
                }
                Err(_) => {}
            }
            let lost = changes.wait_for(|state| !state.is_up(number));
            if timeout(DIAL_OWN_EVERY, lost).await.is_ok() {
                return;
            }
        }
    }

    /// Does nothing where the thread has turned to another number.
    fn set_own(&self, number: u64, own: Option<Connection>) {
        let mut thread = self.thread();
        if thread.number == number {
            thread.own = own;
        }
    }

    /// The open connection; waits only during the first attempt after a loss.
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

    /// Gives up a connection, unless a later one has replaced it.
    fn lose(&self, number: u64) {
        self.state.send_if_modified(|state| {
            let is_current = state.is_up(number);
            if is_current {
                *state = LinkState::Reconnecting;
            }
            is_current
        });
    }

    /// Maintains the connection for as long as the store exists.
    async fn keep(self: Arc<Self>, mut last: Result<Arc<RedisEndpoint>, ()>, mut number: u64) {
        let mut backoff = Backoff::default();
        loop {
            let mut successor = None;
            let pause = match last {
                Ok(server) => {
                    let opened_at = Instant::now();
                    tokio::select! {
                        () = Arc::clone(&self).until_lost(number) => {}
                        found = self.dialer.find_successor(&server) => successor = Some(found),
                    }
                    backoff.after_loss(opened_at.elapsed())
                }
                Err(()) => backoff.after_failure(),
            };
            let attempt = match successor {
                // The connection to it is open, and the one to the former primary serves until it is replaced.
                Some(found) => Ok(found),
                None => {
                    if !pause.is_zero() {
                        tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
                    }
                    self.dialer.connect().await
                }
            };
            let attempt = self.admitted(attempt).await;
            number = next_number();
            if let Ok(opened) = &attempt {
                self.report_not_covered(&opened.connection).await;
            }
            last = self.note(attempt, number);
        }
    }

    /// The connection, if the fleet uses its server as this gateway does.
    async fn admitted(
        &self,
        attempt: Result<ServerConnection, DownReason>,
    ) -> Result<ServerConnection, DownReason> {
        let opened = attempt?;
        let admitting = async {
            for check in &self.entry.checks {
                check.check(&opened.connection).await?;
            }
            Ok(())
        };
        let admitted = timeout(self.dialer.command_timeout, admitting).await;
        admitted.unwrap_or_else(|_| Err(timed_out()))?;
        Ok(opened)
    }

    /// A running fleet is not stopped for this: its sessions are still routed.
    async fn report_not_covered(&self, connection: &CommandConnection) {
        if let Some(NotCovered { head, prefixes }) = self.not_covered(connection).await {
            tracing::error!(
                %head,
                %prefixes,
                "mooring.prefixes of redis does not cover this gateway's keys: its sessions are neither counted nor cleaned up"
            );
        }
    }

    /// This gateway's keys that the server's prefixes do not cover.
    async fn not_covered(&self, connection: &CommandConnection) -> Option<NotCovered> {
        if self.dialer.module() == ModuleUse::Unused {
            return None;
        }
        let heads = &self.entry.heads;
        prefixes::not_covering(connection, heads, self.dialer.command_timeout).await
    }

    /// Returns when the connection of this number is lost, which pings detect if this thread does not use it. The
    /// thread's own is closed then.
    fn until_lost(self: Arc<Self>, number: u64) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut changes = self.state.subscribe();
            let ping = redis::cmd("PING");
            let is_lost = |state: &LinkState| !state.is_up(number);
            while timeout(PING_EVERY, changes.wait_for(is_lost))
                .await
                .is_err()
            {
                let deadline = Instant::now() + self.dialer.command_timeout;
                // A failed ping has given up the connection already; the next check of the state sees that.
                drop(self.attempt(&ping, deadline).await);
            }
            self.set_own(number, None);
        })
    }

    /// Stores and logs the outcome of an attempt to connect.
    fn note(
        &self,
        attempt: Result<ServerConnection, DownReason>,
        number: u64,
    ) -> Result<Arc<RedisEndpoint>, ()> {
        match attempt {
            Ok(opened) => {
                let server = Arc::clone(&opened.server);
                let discovery = self.dialer.discovery();
                let way = way_word(self.dialer.module());
                tracing::info!(address = %server.address, discovery, way, "connected to redis");
                let connection = Connection::new(opened, number);
                // This thread has it for its own.
                *self.thread() = ThreadConnection { number, own: None };
                self.state.send_replace(LinkState::Up(connection));
                Ok(server)
            }
            Err(down) => {
                let address = &self.dialer.address;
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

/// Whether the server refused the command because it is a replica.
fn is_from_replica(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "READONLY")
}
