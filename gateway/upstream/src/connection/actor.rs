//! The actor task of one connection, the only code that touches the connection's state.
//!
//! It selects over client requests, server messages, room in the link's send queue and the next deadline, so that none
//! of these can block another.
//!
//! Slow readers: unread events of a stream wait in its outbox. While more than [`BACKLOG_EVENTS_MAX`] events or
//! `message_bytes_max` bytes wait on all streams together, the actor reads nothing from the server (backpressure).
//! After [`SLOW_FOR`] it cuts the slowest reader: its stream ends after an event with an id, and the client gets the
//! missed events from the log when it resumes. So one slow reader delays the other streams of its session once and
//! briefly, and memory is bounded.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::activity::{Activity, IdleLimits, StoppedServer};
use super::calls::InFlightCalls;
use super::event_id::StreamName;
use super::key::Key;
use super::link::{Link, LinkEnd};
use super::log::{EventLog, EventPart};
use super::mailbox::{Command, Mailbox, StatusSenders};
use super::negotiated::NegotiatedCapabilities;
use super::open_questions::{OpenQuestions, QuestionOrigin};
use super::options::ConnectionOptions;
use super::outbox::{Backlog, End};
use super::pending_messages::PendingMessages;
use super::refusal::Refusal;
use super::sending::SendQueue;
use super::stream::Stream;
use crate::SendError;
use crate::dropped_message::report_dropped_message;
use mooring_protocol::call;

/// Most requests in flight to the server.
const REQUESTS_MAX: usize = 256;
/// Most server-to-client requests that wait for an answer.
pub(super) const QUESTIONS_MAX: usize = 64;
/// Unread events above which the actor stops reading from the server.
pub(super) const BACKLOG_EVENTS_MAX: usize = 1024;
/// How long slow readers may block the server.
pub(super) const SLOW_FOR: Duration = Duration::from_secs(2);
/// How long a server-to-client request waits for a stream. A client whose stream broke reconnects within seconds.
pub(super) const LISTENER_WAIT: Duration = Duration::from_secs(30);
/// The reason in errors for messages that arrive after the server was stopped for being idle.
pub(super) const STOPPED: &str = "it was idle, and the gateway stopped it";
/// Replaces a deadline that overflows.
const FAR: Duration = Duration::from_secs(30 * 24 * 3600);

/// Why [`Actor::drive`] returned.
enum DriveEnd {
    /// The link is down, or the connection is closed.
    Ended,
    /// The server was idle and is to be stopped.
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
    /// The stream for messages that belong to no call.
    pub(super) general: Stream,
    pub(super) log: EventLog,
    pub(super) backlog: Arc<Backlog>,
    pub(super) sending: SendQueue,
    /// When the server was last used.
    pub(super) used_at: Instant,
    /// Whether the client has asked for more than lists.
    pub(super) is_used: bool,
    /// When the client was last seen to listen.
    listened_at: Option<Instant>,
    congested_since: Option<Instant>,
    status: StatusSenders,
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
            used_at: Instant::now(),
            is_used: false,
            listened_at: None,
            congested_since: None,
            status,
            options,
        }
    }

    /// Runs until the link is down or the connection is closed. An idle stop ends only the link.
    pub(super) async fn run(mut self, mut link: Link, mut mailbox: Mailbox) {
        match self.drive(&mut link, &mut mailbox).await {
            DriveEnd::Ended => {
                let end = link.end.borrow().clone();
                drop(link);
                self.finish(end.unwrap_or(LinkEnd::Closed));
            }
            DriveEnd::Idle => {
                drop(link);
                self.serve_without_server(&mut mailbox).await;
                self.finish(LinkEnd::Closed);
            }
        }
    }

    async fn drive(&mut self, link: &mut Link, mailbox: &mut Mailbox) -> DriveEnd {
        let backlog = Arc::clone(&self.backlog);
        let mut is_writable = true;
        loop {
            let deadline = self.process_deadlines(Instant::now());
            tokio::select! {
                () = mailbox.closing.cancelled() => return DriveEnd::Ended,
                permit = link.to_server.reserve(), if is_writable && !self.sending.is_empty() => match permit {
                    Ok(permit) => self.send_next(permit),
                    // Messages that the server sent before it went down are still read.
                    Err(_) => is_writable = false,
                },
                command = mailbox.commands.recv() => match command {
                    Some(Command::Serve { request, reply }) => self.serve(request, reply),
                    Some(Command::StopIfIdle { limits, reply }) => {
                        let is_idle = self.is_idle(limits);
                        let _ = reply.send(is_idle.then_some(match self.is_used {
                            true => StoppedServer::Used,
                            false => StoppedServer::Unused,
                        }));
                        if is_idle {
                            return DriveEnd::Idle;
                        }
                    }
                    None => return DriveEnd::Ended,
                },
                message = link.from_server.recv(), if self.congested_since.is_none() => match message {
                    Some(message) => self.receive(&message),
                    None => return DriveEnd::Ended,
                },
                () = backlog.released(), if self.congested_since.is_some() => {}
                () = sleep_until(deadline) => {}
            }
        }
    }

    /// Gives the next queued message to the transport, and its sender the reply.
    fn send_next(&mut self, permit: mpsc::Permit<'_, Bytes>) {
        if let Some(message) = self.sending.next() {
            permit.send(message.text);
            if let Some(receipt) = message.receipt {
                receipt.confirm();
            }
        }
    }

    /// Keeps the client's streams open after an idle stop, until the connection is closed. If they broke, the client
    /// would reopen them and thereby start an unused server.
    async fn serve_without_server(&mut self, mailbox: &mut Mailbox) {
        self.refuse_unsent(STOPPED);
        // Only streams of cancelled requests are left.
        self.calls.end(&End::Whole);
        self.status.activity.send_replace(Activity::Stopped);
        loop {
            let command = tokio::select! {
                () = mailbox.closing.cancelled() => return,
                command = mailbox.commands.recv() => command,
            };
            match command {
                Some(Command::Serve { request, reply }) => self.serve_stopped(request, reply),
                Some(Command::StopIfIdle { reply, .. }) => drop(reply.send(None)),
                None => return,
            }
        }
    }

    fn is_busy(&self) -> bool {
        self.calls.client_calls() > 0 || !self.open_questions.is_empty()
    }

    fn is_idle(&mut self, limits: IdleLimits) -> bool {
        self.note_listener(Instant::now());
        let is_listened = self.general.is_read();
        let limit = match self.listened_at {
            _ if is_listened => limits.attended,
            _ if !self.is_used => limits.unused,
            Some(_) => limits.left,
            None => limits.attended,
        };
        // A client that listens may still have nothing to say for long.
        let since = match is_listened {
            true => self.used_at,
            false => self
                .listened_at
                .map_or(self.used_at, |at| at.max(self.used_at)),
        };
        !self.is_busy() && since.elapsed() >= limit
    }

    fn note_listener(&mut self, now: Instant) {
        if self.general.is_read() {
            self.listened_at = Some(now);
        }
    }

    /// Handles expired deadlines and publishes the state; returns the next deadline.
    fn process_deadlines(&mut self, now: Instant) -> Instant {
        self.note_listener(now);
        for (key, origin) in self.open_questions.expired(now) {
            self.expire_question(&key, origin);
        }
        for mut call in self.calls.expired(now) {
            call.stream.end(End::Whole);
        }
        let congested_until = self.cut_slow_readers(now);
        self.status.calls_open.send_if_modified(|open| {
            let count = self.calls.client_calls();
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
            .send_if_modified(|previous| std::mem::replace(previous, activity) != activity);
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

    /// Ends a server-to-client request that the client did not answer in time.
    fn expire_question(&mut self, key: &Key, origin: QuestionOrigin) {
        if origin == QuestionOrigin::Waiting {
            self.pending_messages.remove(key);
            self.refuse(key, Refusal::NoListener);
            return;
        }
        self.refuse(key, Refusal::TimedOut);
        self.send_to(
            origin,
            call::cancelled(&key.to_json(), "it was not answered in time"),
        );
    }

    /// Cuts readers that have blocked the server for too long. Returns when to check again while there is congestion.
    fn cut_slow_readers(&mut self, now: Instant) -> Option<Instant> {
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
                // The reader has just drained its queue.
                break;
            }
            tracing::info!("cut the stream of a slow reader");
            slowest.cut();
        }
        self.congested_since = None;
        None
    }

    fn is_congested(&self) -> bool {
        self.backlog.events() > BACKLOG_EVENTS_MAX
            || self.backlog.bytes() > self.options.message_bytes_max
    }

    /// Sends a message of the gateway, or a follow-up to an earlier message, to the stream at `origin`; to the general
    /// stream if that call has ended. Without a reader it is dropped.
    pub(super) fn send_to(&mut self, origin: QuestionOrigin, text: impl Into<Bytes>) {
        let stream = match origin {
            QuestionOrigin::Call(number) => self.calls.with_number(number),
            QuestionOrigin::General | QuestionOrigin::Waiting => None,
        };
        match stream {
            Some(stream) => stream.push(&mut self.log, EventPart::Middle, text.into()),
            None if self.general.is_read() => {
                self.general
                    .push(&mut self.log, EventPart::Middle, text.into());
            }
            None => {}
        }
    }

    /// Answers a server-to-client request with an error, in the client's place.
    pub(super) fn refuse(&mut self, key: &Key, refusal: Refusal) {
        tracing::debug!(?refusal, "refused a server-to-client request");
        self.answer(refusal.answering(key));
    }

    /// Sends an answer of the gateway to the server.
    pub(super) fn answer(&mut self, text: Bytes) {
        if !self.sending.add_internal(text) {
            let why = "the server reads too slowly";
            report_dropped_message("an answer to the server is dropped", why);
        }
    }

    /// The deadline of a server-to-client request sent now.
    pub(super) fn answer_deadline(&self, origin: QuestionOrigin) -> Instant {
        let limit = self.options.client_answer_timeout;
        let limit = match origin {
            QuestionOrigin::Waiting => limit.min(LISTENER_WAIT),
            QuestionOrigin::General | QuestionOrigin::Call(_) => limit,
        };
        let now = Instant::now();
        now.checked_add(limit).unwrap_or(now + FAR)
    }

    /// Ends all streams with the reason and publishes the end.
    fn finish(mut self, end: LinkEnd) {
        let reason: Box<str> = end.to_string().into();
        tracing::debug!(%reason, "connection to a server ended");
        self.refuse_unsent(&reason);
        let broken = End::Broken(reason);
        self.calls.end(&broken);
        self.general.end(broken);
        self.status.end.send_replace(Some(end));
        self.status.activity.send_replace(Activity::Stopped);
        self.status.calls_open.send_replace(0);
    }

    /// Fails all messages that were not sent.
    fn refuse_unsent(&mut self, reason: &str) {
        while let Some(message) = self.sending.next() {
            if let Some(receipt) = message.receipt {
                receipt.refuse(SendError::Ended(reason.into()));
            }
        }
    }
}
