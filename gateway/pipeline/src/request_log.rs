//! The request log: one line and one span for a request, when its reply has ended; and who sends most.
//!
//! Invariant: no line and no figure names a user or a session but by digest. Lines of one server and one user are limited
//! in rate like all lines, except where every request is to be logged.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mooring_session::names::{Principal, ServerName};

use super::refusals::{LatestRefusals, RefusalCause, RefusalView};
use super::request_facts::{EndedRequest, RequestKind};
use super::top_senders::{SenderFigures, TopSenders, TopSession, TopUser};
use mooring_metrics::{self as metrics, ExchangeOutcome};
use mooring_peers::fleet::UserDigests;
use mooring_protocol::ResponseOutcome;
use mooring_settings::{LogSettings, LoggedRequests};
use mooring_traces::{Tracer, enter_scope};
use mooring_usage::{Busiest, CallFigures};

/// The target of lines about requests.
pub const REQUESTS_TARGET: &str = "mooring_gateway::requests";
/// Most users and sessions that `/top` shows.
const SHOWN_MAX: usize = 100;

/// Logs and counts requests.
#[derive(Debug)]
pub struct RequestLog {
    logged: LoggedRequests,
    slow: Duration,
    users: UserDigests,
    tracer: Option<Tracer>,
    busiest: Mutex<BusiestSenders>,
    refusals: LatestRefusals,
}

#[derive(Debug)]
struct BusiestSenders {
    users: Busiest<Principal>,
    sessions: Busiest<BusySession>,
}

/// The key of a session that sends requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BusySession {
    digest: Arc<str>,
    user: Principal,
    server: ServerName,
}

/// How a request is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogDecision {
    /// It is to be logged.
    Logged,
    /// Only if everything is.
    Detail,
    /// Not at all.
    Unlogged,
}

impl RequestLog {
    /// A log as the settings say. Requests are traced by `tracer`, if there is one.
    #[must_use]
    pub fn new(settings: &LogSettings, users: UserDigests, tracer: Option<Tracer>) -> Self {
        let now = Instant::now();
        Self {
            logged: settings.requests,
            slow: settings.slow_request,
            users,
            tracer,
            busiest: Mutex::new(BusiestSenders {
                users: Busiest::new(now),
                sessions: Busiest::new(now),
            }),
            refusals: LatestRefusals::default(),
        }
    }

    /// Begins the traces of requests; none if they are not traced.
    #[must_use]
    pub const fn tracer(&self) -> Option<&Tracer> {
        self.tracer.as_ref()
    }

    /// The digest of this user in the log.
    #[must_use]
    pub fn user_digest(&self, user: &Principal) -> Box<str> {
        self.users.of(user)
    }

    /// From how long a request is logged as slow.
    #[must_use]
    pub const fn slow_request(&self) -> Duration {
        self.slow
    }

    /// Notes that a request of the user with this digest was refused.
    pub fn note_refusal(&self, user: &str, cause: RefusalCause) {
        self.refusals.note(user, cause);
    }

    /// The latest refusals of the user with this digest at this gateway, the last one first.
    #[must_use]
    pub fn refusals_of(&self, user: &str) -> Vec<RefusalView> {
        self.refusals.of(user)
    }

    /// Logs and counts a request.
    pub(crate) fn note(&self, request: EndedRequest<'_>) {
        if let Some(limit) = request.reply.refused_by {
            metrics::requests_refused(limit);
            if let Some(user) = &request.facts.user {
                let server = request.facts.server.as_ref();
                let cause = RefusalCause {
                    server: server.map(|server| server.as_str().into()),
                    tool: None,
                    reason: limit.into(),
                };
                self.note_refusal(&self.users.of(user), cause);
            }
        }
        match self.decide(&request) {
            LogDecision::Logged => self.write(&request, true),
            LogDecision::Detail if tracing::enabled!(target: REQUESTS_TARGET, tracing::Level::DEBUG) =>
            {
                self.write(&request, false);
            }
            LogDecision::Detail | LogDecision::Unlogged => {}
        }
        self.count(request);
    }

    fn decide(&self, request: &EndedRequest<'_>) -> LogDecision {
        let kind = request.facts.kind;
        let is_error = match request.outcome {
            ExchangeOutcome::Ok => false,
            // Its client ends a stream.
            ExchangeOutcome::Abandoned => kind != RequestKind::Stream,
            _ => true,
        };
        let is_slow = kind != RequestKind::Stream && request.took >= self.slow;
        let is_logged = match self.logged {
            LoggedRequests::Off => return LogDecision::Unlogged,
            LoggedRequests::Errors => is_error,
            LoggedRequests::Slow => is_error || is_slow,
            LoggedRequests::All => true,
        };
        match is_logged {
            true => LogDecision::Logged,
            false => LogDecision::Detail,
        }
    }

    /// Writes its line, with the ids of its span.
    fn write(&self, request: &EndedRequest<'_>, is_logged: bool) {
        let scope = request.facts.span.scope();
        enter_scope(scope, || self.write_line(request, is_logged));
    }

    fn write_line(&self, request: &EndedRequest<'_>, is_logged: bool) {
        let EndedRequest {
            id,
            facts,
            reply,
            outcome,
            ..
        } = request;
        let user = facts.user.as_ref().map(|user| self.users.of(user));
        let code = match reply.outcome {
            Some(ResponseOutcome::Error(code)) => code,
            _ => None,
        };
        macro_rules! write_line {
            ($level:ident) => {
                tracing::event!(
                    target: REQUESTS_TARGET,
                    tracing::Level::$level,
                    outcome = <&'static str>::from(*outcome),
                    status = reply.status.as_u16(),
                    code,
                    limit = reply.refused_by,
                    user = user.as_deref(),
                    server = facts.server.as_ref().map(|name| name.as_str()),
                    instance = facts.instance.as_ref().map(|name| name.as_str()),
                    session = facts.session.as_deref(),
                    method = facts.kind.label(),
                    tool = facts.tool.as_deref(),
                    ms = precise_milliseconds(request.took),
                    first_byte_ms = request.first_byte.map(precise_milliseconds),
                    bytes_in = facts.bytes,
                    bytes_out = reply.bytes,
                    request_id = *id,
                    "request"
                )
            };
        }
        match is_logged {
            true => write_line!(INFO),
            false => write_line!(DEBUG),
        }
    }

    /// Counts it for its user and its session.
    fn count(&self, request: EndedRequest<'_>) {
        let EndedRequest { facts, reply, .. } = request;
        let Some(user) = facts.user else {
            return;
        };
        // Its messages are counted.
        if facts.kind == RequestKind::Batch {
            return;
        }
        let bytes = facts.bytes.saturating_add(reply.bytes);
        let is_refused = reply.status.is_client_error() || reply.status.is_server_error();
        let now = Instant::now();
        let mut busiest = self.busiest.lock().unwrap_or_else(PoisonError::into_inner);
        busiest.users.add(&user, bytes, is_refused, now);
        if let (Some(digest), Some(server)) = (facts.session, facts.server) {
            let session = BusySession {
                digest,
                user,
                server,
            };
            busiest.sessions.add(&session, bytes, is_refused, now);
        }
    }

    /// The busiest users and sessions of the last one to two minutes.
    #[must_use]
    pub fn top(&self) -> TopSenders {
        let now = Instant::now();
        let (users, sessions, covered) = {
            let mut busiest = self.busiest.lock().unwrap_or_else(PoisonError::into_inner);
            let (users, covered) = busiest.users.figures(now);
            (users, busiest.sessions.figures(now).0, covered)
        };
        let users = users.iter().take(SHOWN_MAX).map(|(user, figures)| TopUser {
            user: self.users.of(user).into(),
            figures: sender_figures(figures, now),
        });
        let sessions = sessions.iter().take(SHOWN_MAX);
        let sessions = sessions.map(|(session, figures)| TopSession {
            session: (&*session.digest).into(),
            user: self.users.of(&session.user).into(),
            server: session.server.as_str().to_owned(),
            figures: sender_figures(figures, now),
        });
        TopSenders {
            seconds: covered.as_secs(),
            users: users.collect(),
            sessions: sessions.collect(),
        }
    }
}

fn sender_figures(figures: &CallFigures, now: Instant) -> SenderFigures {
    let idle = figures.last_at.map(|at| now.saturating_duration_since(at));
    SenderFigures {
        calls: figures.calls,
        refused: figures.refused,
        bytes: figures.bytes,
        overcount: figures.overcount,
        idle_ms: idle.map(milliseconds),
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds to the tenth.
fn precise_milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 10_000.0).round() / 10.0
}
