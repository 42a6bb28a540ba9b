//! One user of a session: it calls through one gateway for a while and then through another, and holds each reply against
//! what it saw before and what the upstream saw.
//!
//! A session has one user that calls nearly without a pause, or a second one that makes a few calls now and then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;
use mooring_tests::client::HttpClient;
use mooring_tests::session::McpSession;
use mooring_tests::wait;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use super::aim::{Aim, Moment};
use super::ledger::CallName;
use super::witness::{Lives, Witness};
use crate::recovery::{Answered, OUTCOME_UNKNOWN, answered, record_key};

/// How long a client waits for a reply: longer than any that a gateway owes.
const REPLY_WITHIN: Duration = Duration::from_secs(90);
/// After the last fault every session has to answer within this time.
const GOOD_WITHIN: Duration = Duration::from_secs(60);
/// After a reply that is not a result.
const PAUSE_AFTER_ERROR_MS: u64 = 30;
/// How a reply says that state was lost.
const MARK: &str = "mooring/rebound";

/// How much a user calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Diligence {
    /// Call after call.
    Constant,
    /// A few calls now and then.
    Occasional,
}

/// What a reply says of its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It ran, and this is its result.
    Ran,
    /// It has not run.
    HasNotRun,
    /// It may have run.
    MayHaveRun,
}

/// What the users of one session share.
#[derive(Debug, Default)]
pub(super) struct SharedSession {
    losses_told: AtomicU64,
    /// The gateway that is frozen in a call of this session: others call meanwhile, and as it continues.
    frozen_at: watch::Sender<Option<usize>>,
}

impl SharedSession {
    pub(super) fn set_frozen_at(&self, gateway: Option<usize>) {
        self.frozen_at.send_replace(gateway);
    }
}

/// See the module.
pub(super) struct User {
    number: usize,
    diligence: Diligence,
    /// The session at each gateway.
    sessions: Vec<McpSession>,
    shared: Arc<SharedSession>,
    lives: Lives,
    aim: Arc<Aim>,
    random: fastrand::Rng,
    calls: u64,
    at: usize,
    /// The upstream session and the count of the last result, and the losses that were told before.
    last: Option<(Value, u64, u64)>,
    /// The life in which each gateway has answered last.
    answered_in: Vec<u64>,
    outcomes: Vec<Outcome>,
    violations: Vec<String>,
}

/// What a user is made of.
pub(super) struct Role<'a> {
    pub(super) number: usize,
    pub(super) diligence: Diligence,
    pub(super) session: &'a McpSession,
    pub(super) shared: Arc<SharedSession>,
}

impl User {
    pub(super) fn new(
        role: Role<'_>,
        endpoints: &[String],
        lives: &Lives,
        aim: &Arc<Aim>,
        seed: u64,
    ) -> Self {
        let client = HttpClient::new(REPLY_WITHIN);
        let at = |endpoint: &String| role.session.fork(&client, std::slice::from_ref(endpoint));
        Self {
            number: role.number,
            diligence: role.diligence,
            sessions: endpoints.iter().map(at).collect(),
            shared: role.shared,
            lives: Arc::clone(lives),
            aim: Arc::clone(aim),
            random: fastrand::Rng::with_seed(seed),
            calls: 0,
            at: role.number % endpoints.len(),
            last: None,
            answered_in: vec![0; endpoints.len()],
            outcomes: Vec::new(),
            violations: Vec::new(),
        }
    }

    pub(super) fn is_constant(&self) -> bool {
        self.diligence == Diligence::Constant
    }

    /// Calls until it is told to stop.
    pub(super) async fn run(&mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            let calls = match self.diligence {
                Diligence::Constant => self.random.u64(1..80),
                Diligence::Occasional => self.random.u64(1..8),
            };
            for _ in 0..calls {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let outcome = self.call().await;
                self.pause_between(outcome).await;
            }
            if self.diligence == Diligence::Occasional {
                self.pause_until_frozen().await;
            }
            self.move_on();
        }
    }

    /// A pause that ends if another user is at a gateway that is frozen.
    async fn pause_until_frozen(&mut self) {
        let pause = Duration::from_millis(self.random.u64(20..1_200));
        let mut frozen_at = self.shared.frozen_at.subscribe();
        let _ = timeout(pause, frozen_at.wait_for(Option::is_some)).await;
    }

    /// To any gateway, but not to one that is known to be frozen.
    fn move_on(&mut self) {
        self.at = self.random.usize(..self.sessions.len());
        if *self.shared.frozen_at.borrow() == Some(self.at) {
            self.at = (self.at + 1) % self.sessions.len();
        }
    }

    /// Calls through one gateway until this many have results; how many it made. On a busy machine Redis may take too long.
    pub(super) async fn call_undisturbed(&mut self, results: usize) -> anyhow::Result<u64> {
        let (before, mut ran) = (self.calls, 0);
        wait::until_true("calls of a quiet fleet", GOOD_WITHIN, async || {
            while ran < results && self.call().await == Outcome::Ran {
                ran += 1;
            }
            Ok(ran == results)
        })
        .await?;
        Ok(self.calls - before)
    }

    /// After the last fault the session has to answer again.
    pub(super) async fn call_until_good(&mut self) -> anyhow::Result<()> {
        let what = format!("user {} to be answered after the last fault", self.number);
        wait::until_true(&what, GOOD_WITHIN, async || {
            self.at = (self.at + 1) % self.sessions.len();
            Ok(self.call().await == Outcome::Ran)
        })
        .await
    }

    pub(super) fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// Every reply was true, and told of losses.
    pub(super) fn check(&self, witness: &Witness) -> Vec<String> {
        let names = (1..=self.calls).map(|number| CallName {
            user: self.number,
            number,
        });
        let begun = witness.times_begun(names);
        let mut violations = self.violations.clone();
        for (index, (times, outcome)) in begun.iter().zip(&self.outcomes).enumerate() {
            let is_true = match outcome {
                Outcome::Ran => *times == 1,
                Outcome::HasNotRun => *times == 0,
                Outcome::MayHaveRun => *times <= 1,
            };
            if !is_true {
                let call = format!("call {}/{}", self.number, index + 1);
                violations.push(format!("{call}: {outcome:?}, and it ran {times} times"));
            }
        }
        violations
    }

    async fn pause_between(&mut self, outcome: Outcome) {
        if outcome != Outcome::Ran {
            self.move_on();
            return self.pause_ms(1..PAUSE_AFTER_ERROR_MS).await;
        }
        match self.random.u8(..100) {
            0..70 => {}
            70..95 => self.pause_ms(1..20).await,
            // Long enough for an unused turn to be given back, or nearly.
            _ => {
                self.aim.is_at(self.at, Moment::Idle, &self.shared);
                self.pause_ms(40..700).await;
            }
        }
    }

    async fn pause_ms(&mut self, range: std::ops::Range<u64>) {
        tokio::time::sleep(Duration::from_millis(self.random.u64(range))).await;
    }

    async fn call(&mut self) -> Outcome {
        self.calls += 1;
        let gateway = self.at;
        let life = self.life_of(gateway);
        let ms = match self.random.u8(..10) {
            0..5 => 0,
            5..8 => self.random.u64(1..10),
            _ => self.random.u64(10..50),
        };
        let arguments = json!({"user": self.number, "number": self.calls, "gateway": gateway, "life": life, "ms": ms});
        let request = json!({
            "jsonrpc": "2.0",
            // Users of one session must not use one id.
            "id": format!("{}-{}", self.number, self.calls),
            "method": "tools/call",
            "params": {"name": "count", "arguments": arguments},
        });
        self.aim.is_at(gateway, Moment::Call, &self.shared);
        let replied = post(&mut self.sessions[gateway], &request).await;
        let outcome = match replied {
            Ok(reply) => {
                self.answered_in[gateway] = life;
                self.read(gateway, &reply)
            }
            Err(error) => {
                let has_died = life % 2 == 1
                    || self.life_of(gateway) != life
                    || self.answered_in[gateway] != life;
                if !has_died {
                    self.violate(&format!(
                        "no reply of gateway {gateway}, which lives: {error:#}"
                    ));
                }
                Outcome::MayHaveRun
            }
        };
        self.outcomes.push(outcome);
        outcome
    }

    /// What the reply says; it has to be one of those that say what is known.
    fn read(&mut self, gateway: usize, reply: &Answered) -> Outcome {
        if is_told_of_loss(reply) {
            self.shared.losses_told.fetch_add(1, Ordering::SeqCst);
        }
        let response = reply.exchange.as_ref().map(|exchange| &exchange.response);
        let structured =
            response.and_then(|response| response.pointer("/result/structuredContent"));
        if let Some(structured) = structured {
            self.note(
                &structured["session"],
                structured["count"].as_u64().unwrap_or(0),
            );
            return Outcome::Ran;
        }
        let error = response.unwrap_or(&reply.error);
        match (reply.status, error["error"]["code"].as_i64()) {
            (StatusCode::OK, Some(OUTCOME_UNKNOWN)) => Outcome::MayHaveRun,
            (StatusCode::SERVICE_UNAVAILABLE, Some(_)) if reply.retry_after.is_some() => {
                Outcome::HasNotRun
            }
            _ => {
                self.violate(&format!("reply of gateway {gateway}: {reply:?}"));
                Outcome::MayHaveRun
            }
        }
    }

    /// A result: of the same upstream session, and with a higher count, unless somebody was told of a loss.
    fn note(&mut self, session: &Value, count: u64) {
        let told = self.shared.losses_told.load(Ordering::SeqCst);
        if let Some((last_session, last_count, told_before)) = &self.last {
            let is_continued = session == last_session && count > *last_count;
            if !is_continued && told == *told_before {
                let violation = format!(
                    "{session} {count} after {last_session} {last_count}, and nobody was told of a loss"
                );
                self.violate(&violation);
            }
        }
        self.last = Some((session.clone(), count, told));
    }

    fn violate(&mut self, violation: &str) {
        let session = record_key(&self.sessions[0]).unwrap_or_default();
        let call = format!("call {}/{} of {session}", self.number, self.calls);
        self.violations.push(format!("{call}: {violation}"));
    }

    fn life_of(&self, gateway: usize) -> u64 {
        self.lives[gateway].load(Ordering::SeqCst)
    }
}

async fn post(session: &mut McpSession, request: &Value) -> anyhow::Result<Answered> {
    let reply = session.post(request).await?;
    answered(reply, request).await
}

fn is_told_of_loss(reply: &Answered) -> bool {
    let has_mark = |value: &Value| value.to_string().contains(MARK);
    let of_exchange = reply.exchange.as_ref().is_some_and(|exchange| {
        has_mark(&exchange.response) || exchange.before.iter().any(has_mark)
    });
    of_exchange || has_mark(&reply.error)
}
