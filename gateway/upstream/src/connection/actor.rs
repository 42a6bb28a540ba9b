//! The task that holds one connection: it alone touches the connection's state.
//!
//! It waits for the client's requests, for messages of the server, for room to write to it, and for the next deadline, and
//! never for one of them alone, so that no two of them can wait for each other.
//!
//! Readers that are slow: what a stream's reader has not taken waits in its outbox. While more than [`BACKLOG_EVENTS_MAX`]
//! events or `message_bytes_max` bytes wait on all streams together, nothing more is read from the server, which then
//! waits itself; that evens out bursts. After [`SLOW_FOR`] the slowest reader is cut: its stream ends after an event with
//! an id, and the client finds what it missed in the log when it resumes. So one reader holds up the others of its session
//! for a moment, once, and nobody else; and memory is bounded whatever the server says.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::activity::Activity;
use super::calls::InFlightCalls;
use super::event_id::StreamName;
use super::key::Key;
use super::link::{Link, LinkEnd};
use super::log::{EventLog, EventPart};
use super::negotiated::NegotiatedCapabilities;
use super::open_questions::{OpenQuestions, QuestionOrigin};
use super::outbox::{Backlog, End};
use super::pending_messages::PendingMessages;
use super::refusal::Refusal;
use super::sending::{ReplyTo, SendQueue};
use super::stream::Stream;
use super::{ConnectionOptions, ConnectionRequest, QUESTIONS_MAX, REQUESTS_MAX};
use crate::SendError;
use crate::complaints::Complaints;
use mooring_protocol::call;

/// Most events that wait for readers before the server has to wait.
pub(super) const BACKLOG_EVENTS_MAX: usize = 1024;
/// How long readers may make the server wait.
pub(super) const SLOW_FOR: Duration = Duration::from_secs(2);
/// How long a question to the client waits for a stream on which it can be asked: a client whose stream broke comes back
/// within seconds.
pub(super) const LISTENER_WAIT: Duration = Duration::from_secs(30);
/// What is told of a message that comes after the server was stopped.
pub(super) const STOPPED: &str = "it was idle, and the gateway stopped it";
/// How far away a deadline is that cannot be reckoned.
const FAR: Duration = Duration::from_secs(30 * 24 * 3600);

/// What is asked of the task.
#[derive(Debug)]
pub(super) enum Command {
    /// To serve a client.
    Serve {
        /// What it asks.
        ask: ConnectionRequest,
        /// Where the reply goes.
        reply: ReplyTo,
    },
    /// To stop a server that is idle.
    StopIfIdle {
        /// For how long it must have been.
        idle_for: Duration,
        /// Whether it was stopped.
        reply: oneshot::Sender<bool>,
    },
}

/// What a connection tells those who look at it.
#[derive(Debug)]
pub(super) struct StatusSenders {
    /// How many requests of the client wait for an answer.
    pub(super) calls_open: watch::Sender<usize>,
    /// Whether the server is in use.
    pub(super) activity: watch::Sender<Activity>,
    /// Why it has ended.
    pub(super) end: watch::Sender<Option<LinkEnd>>,
}

/// Why a server is driven no more.
enum DriveEnd {
    /// The link is down, or the connection is closed.
    Ended,
    /// It was idle.
    Idle,
}

/// The state of one connection.
#[derive(Debug)]
pub(super) struct Actor {
    pub(super) options: ConnectionOptions,
    pub(super) negotiated: NegotiatedCapabilities,
    pub(super) calls: InFlightCalls,
    pub(super) open_questions: OpenQuestions,
    pub(super) pending_messages: PendingMessages,
    /// The stream of what belongs to no call.
    pub(super) general: Stream,
    pub(super) log: EventLog,
    pub(super) backlog: Arc<Backlog>,
    pub(super) sending: SendQueue,
    pub(super) complaints: Complaints,
    /// When the server was used last.
    pub(super) used_at: Instant,
    congested_since: Option<Instant>,
    status: StatusSenders,
}

/// What an actor waits for, besides its link.
#[derive(Debug)]
pub(super) struct Mailbox {
    /// Closed when the last handle to the connection is gone.
    pub(super) commands: mpsc::Receiver<Command>,
    /// Cancelled when the connection is to be closed.
    pub(super) closing: CancellationToken,
}

impl Actor {
    pub(super) fn new(options: ConnectionOptions, status: StatusSenders) -> Self {
        let mut log = EventLog::new(options.epoch, options.events_max, options.event_bytes_max);
        let general = Stream::new(Some(log.begin(StreamName::General)));
        Self {
            negotiated: NegotiatedCapabilities::default(),
            calls: InFlightCalls::new(REQUESTS_MAX),
            open_questions: OpenQuestions::new(QUESTIONS_MAX),
            pending_messages: PendingMessages::default(),
            general,
            log,
            backlog: Arc::default(),
            sending: SendQueue::new(options.message_bytes_max),
            complaints: Complaints::default(),
            used_at: Instant::now(),
            congested_since: None,
            status,
            options,
        }
    }

    /// Runs until the link is down or the connection is closed. A server that is stopped because it was idle ends the link
    /// alone.
    pub(super) async fn run(mut self, mut link: Link, mut mailbox: Mailbox) {
        match self.drive(&mut link, &mut mailbox).await {
            DriveEnd::Ended => {
                let told = link.end.borrow().clone();
                drop(link);
                self.finish(told.unwrap_or(LinkEnd::Closed));
            }
            DriveEnd::Idle => {
                drop(link);
                self.rest(&mut mailbox).await;
                self.finish(LinkEnd::Closed);
            }
        }
    }

    async fn drive(&mut self, link: &mut Link, mailbox: &mut Mailbox) -> DriveEnd {
        let backlog = Arc::clone(&self.backlog);
        let mut is_writable = true;
        loop {
            let deadline = self.settle(Instant::now());
            tokio::select! {
                () = mailbox.closing.cancelled() => return DriveEnd::Ended,
                permit = link.to_server.reserve(), if is_writable && !self.sending.is_empty() => match permit {
                    Ok(permit) => if let Some(letter) = self.sending.next() {
                        permit.send(letter.text);
                        if let Some(receipt) = letter.receipt {
                            receipt.give();
                        }
                    },
                    // What the server said before it went is still to be read.
                    Err(_) => is_writable = false,
                },
                command = mailbox.commands.recv() => match command {
                    Some(Command::Serve { ask, reply }) => self.serve(ask, reply),
                    Some(Command::StopIfIdle { idle_for, reply }) => {
                        let stops = self.is_idle_for(idle_for);
                        let _ = reply.send(stops);
                        if stops {
                            return DriveEnd::Idle;
                        }
                    }
                    None => return DriveEnd::Ended,
                },
                message = link.from_server.recv(), if self.congested_since.is_none() => match message {
                    Some(message) => self.hear(&message),
                    None => return DriveEnd::Ended,
                },
                () = backlog.relieved(), if self.congested_since.is_some() => {}
                () = sleep_until(deadline) => {}
            }
        }
    }

    /// Keeps the streams of a client whose server was stopped, until the connection is closed: the client must not have to
    /// open them again, which would start a server that nobody uses.
    async fn rest(&mut self, mailbox: &mut Mailbox) {
        self.refuse_unsent(STOPPED);
        // Those of requests that were cancelled.
        self.calls.end(&End::Whole);
        self.status.activity.send_replace(Activity::Stopped);
        loop {
            let command = tokio::select! {
                () = mailbox.closing.cancelled() => return,
                command = mailbox.commands.recv() => command,
            };
            match command {
                Some(Command::Serve { ask, reply }) => self.serve_stopped(ask, reply),
                Some(Command::StopIfIdle { reply, .. }) => drop(reply.send(false)),
                None => return,
            }
        }
    }

    fn is_busy(&self) -> bool {
        self.calls.clients() > 0 || !self.open_questions.is_empty()
    }

    fn is_idle_for(&self, idle_for: Duration) -> bool {
        !self.is_busy() && self.used_at.elapsed() >= idle_for
    }

    /// Does what is due, and says when to do so next.
    fn settle(&mut self, now: Instant) -> Instant {
        for (key, place) in self.open_questions.expired(now) {
            self.give_up(&key, place);
        }
        for mut call in self.calls.expired(now) {
            call.stream.end(End::Whole);
        }
        let congested_until = self.relieve(now);
        self.status.calls_open.send_if_modified(|open| {
            let count = self.calls.clients();
            std::mem::replace(open, count) != count
        });
        let activity = match self.is_busy() {
            true => Activity::Busy,
            false => Activity::Idle {
                since: self.used_at,
            },
        };
        self.status
            .activity
            .send_if_modified(|told| std::mem::replace(told, activity) != activity);
        [
            self.open_questions.next_deadline(),
            self.calls.next_deadline(),
            congested_until,
        ]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(now + FAR)
    }

    /// The client did not answer a question of the server in time.
    fn give_up(&mut self, key: &Key, place: QuestionOrigin) {
        if place == QuestionOrigin::Waiting {
            self.pending_messages.remove(key);
            self.refuse(key, Refusal::NobodyListens);
            return;
        }
        self.refuse(key, Refusal::TimedOut);
        self.say(
            place,
            call::cancelled(&key.to_json(), "it was not answered in time"),
        );
    }

    /// Cuts readers that have made the server wait for too long. Returns when to look again, while it waits.
    fn relieve(&mut self, now: Instant) -> Option<Instant> {
        if !self.is_congested() {
            self.congested_since = None;
            return None;
        }
        let until = *self.congested_since.get_or_insert(now) + SLOW_FOR;
        if now < until {
            return Some(until);
        }
        while self.is_congested() {
            let by_events = self.backlog.events() > BACKLOG_EVENTS_MAX;
            let measure = |stream: &Stream| {
                let (events, bytes) = stream.waiting();
                if by_events { events } else { bytes }
            };
            let slowest = match self.calls.slowest(measure) {
                Some(stream) if measure(stream) > measure(&self.general) => stream,
                _ => &mut self.general,
            };
            if slowest.waiting().0 == 0 {
                // Its reader took everything just now.
                break;
            }
            tracing::info!("a reader of a connection's stream is too slow; its stream is cut");
            slowest.cut();
        }
        self.congested_since = None;
        None
    }

    fn is_congested(&self) -> bool {
        self.backlog.events() > BACKLOG_EVENTS_MAX
            || self.backlog.bytes() > self.options.message_bytes_max
    }

    /// Puts a message of the gateway's own, or one that belongs with an earlier one, where that went; nowhere if nobody
    /// would read it there.
    pub(super) fn say(&mut self, place: QuestionOrigin, text: impl Into<Bytes>) {
        let stream = match place {
            QuestionOrigin::Call(number) => self.calls.numbered(number),
            QuestionOrigin::General | QuestionOrigin::Waiting => None,
        };
        match stream {
            Some(stream) => stream.say(&mut self.log, EventPart::Middle, text.into()),
            None if self.general.is_read() => {
                self.general
                    .say(&mut self.log, EventPart::Middle, text.into());
            }
            None => {}
        }
    }

    /// Answers a question of the server in the client's place.
    pub(super) fn refuse(&mut self, key: &Key, refusal: Refusal) {
        tracing::debug!(
            ?refusal,
            "a request of the server is answered for the client"
        );
        self.answer(refusal.answering(key));
    }

    /// Sends an answer of the gateway's own to the server.
    pub(super) fn answer(&mut self, text: Bytes) {
        if !self.sending.add_own(text) {
            let why = "the server reads too slowly";
            self.complaints
                .add("an answer to the server is dropped", why);
        }
    }

    /// When a question that is asked now is given up.
    pub(super) fn answer_deadline(&self, place: QuestionOrigin) -> Instant {
        let limit = self.options.client_answer_timeout;
        let limit = match place {
            QuestionOrigin::Waiting => limit.min(LISTENER_WAIT),
            QuestionOrigin::General | QuestionOrigin::Call(_) => limit,
        };
        let now = Instant::now();
        now.checked_add(limit).unwrap_or(now + FAR)
    }

    /// Tells everybody that it is over, and why.
    fn finish(mut self, end: LinkEnd) {
        let reason: Box<str> = end.to_string().into();
        tracing::debug!(%reason, "a connection to a server ended");
        self.refuse_unsent(&reason);
        let broken = End::Broken(reason);
        self.calls.end(&broken);
        self.general.end(broken);
        self.status.end.send_replace(Some(end));
        self.status.activity.send_replace(Activity::Stopped);
        self.status.calls_open.send_replace(0);
    }

    /// Tells those whose messages were not sent.
    fn refuse_unsent(&mut self, reason: &str) {
        while let Some(letter) = self.sending.next() {
            if let Some(receipt) = letter.receipt {
                receipt.refuse(SendError::Ended(reason.into()));
            }
        }
    }
}
