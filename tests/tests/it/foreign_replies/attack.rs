//! Sessions of two users that call while replies are spoiled, and what they must never get.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use mooring_tests::client::{HttpClient, Reply};
use mooring_tests::code::USER;
use mooring_tests::session::{McpSession, Opening};
use serde_json::json;
use tokio::task::JoinSet;

/// How long an attack lasts in the suite.
pub(super) const SHORT: Duration = Duration::from_millis(1_500);
/// How long it lasts as a soak test.
pub(super) const LONG: Duration = Duration::from_secs(60);
/// Sessions at each server.
pub(super) const SESSIONS: usize = 8;
/// An attack lasts until so many replies were spoiled and every session got an answer ...
const SPOILED_MIN: usize = 5;
/// ... or for so much longer.
const LONGER_MAX: Duration = Duration::from_secs(60);
/// A server with a fault may spoil handshakes too.
const HANDSHAKES_MAX: usize = 20;
/// Calls for each notification.
const NOTIFICATION_EVERY: usize = 4;
const USERS: [&str; 2] = ["ann", "bob"];

/// How many replies were spoiled so far.
type SpoiledCount = Arc<dyn Fn() -> usize + Send + Sync>;

/// An attack on one server.
#[derive(Clone)]
pub(super) struct Attack {
    /// For messages.
    name: Arc<str>,
    began: Instant,
    lasts: Duration,
    spoiled: SpoiledCount,
    spoiled_before: usize,
}

impl Attack {
    /// One that begins now.
    pub(super) fn begin(
        name: impl fmt::Display,
        lasts: Duration,
        spoiled: impl Fn() -> usize + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.to_string().into(),
            began: Instant::now(),
            lasts,
            spoiled_before: spoiled(),
            spoiled: Arc::new(spoiled),
        }
    }

    fn spoiled(&self) -> usize {
        (self.spoiled)().saturating_sub(self.spoiled_before)
    }

    /// Whether a session that got so many answers makes no more calls.
    pub(super) fn is_over(&self, answered: usize) -> bool {
        let is_enough = answered > 0 && self.spoiled() >= SPOILED_MIN;
        let (elapsed, latest) = (self.began.elapsed(), self.lasts + LONGER_MAX);
        elapsed >= latest || (elapsed >= self.lasts && is_enough)
    }

    /// Runs the sessions of both users: `call` makes the calls of one, by the user's name and a number, and returns how
    /// many were answered.
    #[expect(
        clippy::print_stderr,
        reason = "how many replies were spoiled is a figure, and no assertion"
    )]
    pub(super) async fn run<F>(&self, call: impl Fn(&'static str, usize) -> F) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<usize>> + Send + 'static,
    {
        let mut sessions = JoinSet::new();
        let mut own = 0;
        for (number, user) in USERS.into_iter().cycle().take(SESSIONS).enumerate() {
            sessions.spawn(call(user, number));
        }
        while let Some(answered) = sessions.join_next().await {
            let answered = answered?.with_context(|| self.name.to_string())?;
            assert!(answered > 0, "{}: a session got no answer", self.name);
            own += answered;
        }
        let spoiled = self.spoiled();
        eprintln!("{}: {own} answers, {spoiled} spoiled", self.name);
        assert!(spoiled >= SPOILED_MIN, "{}: {spoiled} spoiled", self.name);
        Ok(())
    }

    /// The same for sessions at this endpoint, whose `tool` returns its text.
    pub(super) async fn call_at(&self, endpoint: &str, tool: &'static str) -> anyhow::Result<()> {
        self.run(|user, number| {
            let (attack, endpoint) = (self.clone(), endpoint.to_owned());
            async move {
                let client = HttpClient::default();
                let session = open(&client, &endpoint, user).await?;
                call_repeatedly(session, tool, Texts::new(user, number), &attack).await
            }
        })
        .await
    }
}

/// Opens a session.
pub(super) async fn open(
    client: &HttpClient,
    endpoint: &str,
    user: &str,
) -> anyhow::Result<McpSession> {
    let mut attempts_left = HANDSHAKES_MAX;
    loop {
        let opening = Opening::default().header(USER, user)?;
        match McpSession::open_with(client, &[endpoint.to_owned()], opening).await {
            Ok(session) => return Ok(session),
            Err(error) if attempts_left == 0 => return Err(error),
            Err(_) => attempts_left -= 1,
        }
    }
}

/// The texts of one session: no two calls have the same.
#[derive(Debug)]
pub(super) struct Texts {
    prefix: String,
    count: usize,
}

impl Texts {
    pub(super) fn new(user: &str, number: usize) -> Self {
        let random = u128::from(fastrand::u64(..)) << 64 | u128::from(fastrand::u64(..));
        Self {
            prefix: format!("{user}-{number}-{random:032x}-"),
            count: 0,
        }
    }

    pub(super) fn next(&mut self) -> String {
        self.count += 1;
        format!("{}{:06}", self.prefix, self.count)
    }
}

/// Calls of one session until the attack is over; how many were answered. Errors are allowed, foreign texts are not. All
/// users number their requests in the same way.
pub(super) async fn call_repeatedly(
    mut session: McpSession,
    tool: &str,
    mut texts: Texts,
    attack: &Attack,
) -> anyhow::Result<usize> {
    let (mut calls, mut answered) = (0, 0);
    while !attack.is_over(answered) {
        calls += 1;
        if calls % NOTIFICATION_EVERY == 0 {
            let changed = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
            session.post(&changed).await?.bytes().await?;
        }
        let own = texts.next();
        let params = json!({"name": tool, "arguments": {"text": own}});
        let body = session.request_body("tools/call", params);
        let reply = session.post(&body).await?;
        let is_served = reply.status.is_success();
        let text = read_whole(reply).await?;
        answered += usize::from(is_own(&own, &text)? && is_served);
    }
    Ok(answered)
}

/// What is in a reply. The end of a stream that broke is left out: its client would resume it.
async fn read_whole(mut reply: Reply) -> anyhow::Result<String> {
    if !reply.is_event_stream() {
        return reply.text().await;
    }
    let mut text = String::new();
    while let Ok(Some(message)) = reply.next_message().await {
        text += &message.to_string();
    }
    Ok(text)
}

/// Whether a reply to the call with this text answers it; an error if it has something of another call.
pub(super) fn is_own(own: &str, reply: &str) -> anyhow::Result<bool> {
    let rest = reply.replace(own, "");
    let is_foreign = USERS.iter().any(|user| rest.contains(&format!("{user}-")));
    ensure!(!is_foreign, "the call {own} got {reply}");
    Ok(reply.contains(own) && reply.contains("\"result\""))
}
