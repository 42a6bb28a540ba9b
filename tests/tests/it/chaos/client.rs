//! One client of chaos: it calls in turn through every gateway, and holds each reply against what it saw before.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use http::StatusCode;
use mooring_tests::client::HttpClient;
use mooring_tests::code::USER;
use mooring_tests::session::{McpSession, Opening};
use mooring_tests::wait;
use serde_json::{Value, json};

use super::history::{CounterHistory, Observation};
use crate::recovery::{Answered, answered, mark_of};

/// How long a client waits for a reply: longer than any that a gateway owes.
const REPLY_WITHIN: Duration = Duration::from_secs(30);
/// Between two calls, in milliseconds at most.
const PAUSE_MS_MAX: u64 = 100;
/// The longest call, in milliseconds.
const SLOW_MS_MAX: u64 = 60;
/// Of this many calls one is slow, and noted upstream by a token of its own.
const SLOW_EVERY: u64 = 4;
/// After the last fault every session has to answer within this time.
const GOOD_WITHIN: Duration = Duration::from_secs(60);
/// The key of the mark in an error's data.
const MARK: &str = "mooring/rebound";

/// Counts up in a file of the code session.
const COUNT_IN_FILE: &str = "import os
path = '/scratch/count'
count = int(open(path).read()) + 1 if os.path.exists(path) else 1
open(path, 'w').write(str(count))
print(count)";

/// What a client is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientKind {
    /// An upstream over Streamable HTTP, with two instances.
    Http,
    /// A program that one gateway runs.
    Stdio,
    /// The sandbox.
    Code,
}

/// Every kind, in the order of the recovery table.
pub(super) const CLIENT_KINDS: [ClientKind; 3] =
    [ClientKind::Http, ClientKind::Stdio, ClientKind::Code];

/// A session, its user, and everything that it saw.
pub(super) struct ChaosClient {
    pub(super) kind: ClientKind,
    name: String,
    session: McpSession,
    random: fastrand::Rng,
    history: CounterHistory,
    good_at: Vec<Instant>,
    answered_tokens: Vec<String>,
    violations: Vec<String>,
}

impl ChaosClient {
    pub(super) async fn open(
        kind: ClientKind,
        number: usize,
        endpoints: &[String],
        seed: u64,
    ) -> anyhow::Result<Self> {
        let name = format!("{kind:?}-{number}");
        let opening = Opening::default().header(USER, &format!("{name}@example.org"))?;
        let client = HttpClient::new(REPLY_WITHIN);
        Ok(Self {
            kind,
            name,
            session: McpSession::open_with(&client, endpoints, opening).await?,
            random: fastrand::Rng::with_seed(seed),
            history: CounterHistory::default(),
            good_at: Vec::new(),
            answered_tokens: Vec::new(),
            violations: Vec::new(),
        })
    }

    /// Calls until it is told to stop.
    pub(super) async fn run(&mut self, is_over: &AtomicBool) {
        for number in 0_u64.. {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            if self.kind != ClientKind::Code && number % SLOW_EVERY == 0 {
                self.call_slowly(number).await;
            } else {
                self.count().await;
            }
            let pause = Duration::from_millis(self.random.u64(..PAUSE_MS_MAX));
            tokio::time::sleep(pause).await;
        }
    }

    /// After the last fault the session has to answer again.
    pub(super) async fn call_until_good(&mut self) -> anyhow::Result<()> {
        let what = format!("{} to be answered after the last fault", self.name);
        let before = self.good_at.len();
        wait::until_true(&what, GOOD_WITHIN, async || {
            self.count().await;
            Ok(self.good_at.len() > before)
        })
        .await
    }

    /// Ends the session as a client should. A code server has none to end.
    pub(super) async fn end(mut self) -> anyhow::Result<()> {
        if self.kind == ClientKind::Code {
            return Ok(());
        }
        let status = self.session.delete().await?.status;
        ensure!(
            status == StatusCode::NO_CONTENT,
            "{}: DELETE: {status}",
            self.name
        );
        Ok(())
    }

    pub(super) fn good_calls(&self) -> usize {
        self.good_at.len()
    }

    pub(super) fn good_at(&self) -> &[Instant] {
        &self.good_at
    }

    pub(super) fn unread_losses(&self) -> u64 {
        self.history.unread_losses()
    }

    pub(super) fn violations(&self) -> &[String] {
        &self.violations
    }

    pub(super) fn answered_tokens(&self) -> &[String] {
        &self.answered_tokens
    }

    async fn count(&mut self) {
        let (tool, arguments) = match self.kind {
            ClientKind::Http | ClientKind::Stdio => ("increment", json!({})),
            ClientKind::Code => {
                let arguments = json!({"code": COUNT_IN_FILE, "language": "python"});
                ("shell_exec", arguments)
            }
        };
        let observation = match self.call(tool, arguments).await {
            Err(_) => Observation::NoReply,
            Ok(reply) => self.observe(&reply, count_of(&reply)),
        };
        self.note(observation);
    }

    async fn call_slowly(&mut self, number: u64) {
        let token = format!("{}-{number}", self.name);
        let ms = self.random.u64(..SLOW_MS_MAX);
        let called = self.call("slow", json!({"ms": ms, "token": token})).await;
        let Ok(reply) = called else {
            // It counts nothing, but the loss that its reply may have told of was not read.
            return self.note(Observation::NoReply);
        };
        let answer = result_of(&reply)
            .and_then(|result| result.pointer("/structuredContent/token"))
            .and_then(Value::as_str);
        match answer {
            Some(answer) if answer == token => {
                self.good_at.push(Instant::now());
                self.answered_tokens.push(token);
            }
            Some(answer) => {
                let foreign = format!("{token} was answered with {answer}");
                self.violations.push(foreign);
            }
            None => {}
        }
        if tells_of_loss(&reply) {
            self.note(Observation::StateLost);
        } else {
            self.check_status(&reply);
        }
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> anyhow::Result<Answered> {
        let params = json!({"name": tool, "arguments": arguments});
        let request = self.session.request_body("tools/call", params);
        let reply = self.session.post(&request).await?;
        answered(reply, &request).await.context("read the reply")
    }

    fn observe(&mut self, reply: &Answered, count: Option<u64>) -> Observation {
        let state_lost = tells_of_loss(reply);
        match count {
            Some(count) if state_lost => Observation::CountedAfterLoss(count),
            Some(count) => {
                self.good_at.push(Instant::now());
                Observation::Counted(count)
            }
            None if state_lost => Observation::StateLost,
            None => {
                self.check_status(reply);
                Observation::ErrorReply
            }
        }
    }

    /// Of all errors only those that ask the client to come again, or say that a call may have run, have a cause here.
    fn check_status(&mut self, reply: &Answered) {
        let has_cause = matches!(
            reply.status,
            StatusCode::OK
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::BAD_GATEWAY
                | StatusCode::GATEWAY_TIMEOUT
        );
        if !has_cause {
            self.violations.push(format!("{}: {reply:?}", self.name));
        }
    }

    fn note(&mut self, observation: Observation) {
        if let Err(violation) = self.history.note(observation) {
            self.violations.push(format!("{}: {violation}", self.name));
        }
    }
}

fn result_of(reply: &Answered) -> Option<&Value> {
    reply.exchange.as_ref()?.response.get("result")
}

fn count_of(reply: &Answered) -> Option<u64> {
    let structured = result_of(reply)?.get("structuredContent")?;
    let printed = || structured.get("output")?.as_str()?.trim().parse().ok();
    structured
        .get("count")
        .and_then(Value::as_u64)
        .or_else(printed)
}

/// Whether a reply, an error reply included, says that state was lost.
fn tells_of_loss(reply: &Answered) -> bool {
    let in_error = |body: &Value| {
        body.pointer("/error/data")
            .is_some_and(|data| data.get(MARK).is_some())
    };
    let exchange = reply.exchange.as_ref();
    exchange.is_some_and(|exchange| mark_of(exchange).is_some() || in_error(&exchange.response))
        || in_error(&reply.error)
}
