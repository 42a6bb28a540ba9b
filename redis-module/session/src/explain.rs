//! A session in sentences, for people: its state and ages, each binding, its turns, what was lost, and what happens
//! next.
//!
//! Invariants: every statement agrees with the decision of the rules. No line shows a token, a session id or an
//! upstream session: it shows digests of the ids.

use std::fmt::Write as _;

use crate::context::Context;
use crate::names::{ServerName, WorkerId};
use crate::record::{Binding, Cleaning, Phase, Record, SessionLifetime, SessionState};
use crate::time::{Millis, Timestamp};
use crate::turns::QueueView;
use crate::view::BindingState;

/// Explains the record under a key at the context's moment, one line for each fact. `session` is the digest of the
/// session in logs, `queues` are its turns on this node, and `digest` shortens a secret to its digest in logs.
#[must_use]
pub fn explain(
    record: &Record,
    session: &str,
    queues: &[QueueView],
    digest: &dyn Fn(&[u8]) -> String,
    context: &Context<'_>,
) -> Vec<String> {
    let mut explanation = Explanation {
        digest,
        context,
        lines: Vec::new(),
        next: None,
    };
    explanation.session(record, session);
    for (server, binding) in &record.bindings {
        explanation.binding(server, binding, record.lifetime.state(context.now));
        let own = queues.iter().filter(|queue| queue.server == *server);
        own.for_each(|queue| explanation.queue(queue));
    }
    for queue in queues {
        if !record.bindings.contains_key(&queue.server) {
            explanation.line(format!("{}: not bound", queue.server));
            explanation.queue(queue);
        }
    }
    explanation.finish()
}

struct Explanation<'a> {
    digest: &'a dyn Fn(&[u8]) -> String,
    context: &'a Context<'a>,
    lines: Vec<String>,
    /// The earliest change that needs no request, and the time until then.
    next: Option<(Millis, String)>,
}

impl Explanation<'_> {
    fn line(&mut self, line: String) {
        self.lines.push(line);
    }

    fn ago(&self, then: Timestamp) -> String {
        format!("{} ago", span(between(then, self.context.now)))
    }

    /// When it was last used, as exactly as the record tells.
    fn last_use(&self, lifetime: &SessionLifetime) -> String {
        let Context { now, tuning, .. } = *self.context;
        let bounds = lifetime.last_use_bounds(now, tuning);
        let [earliest, latest] = bounds.map(|bound| span(between(bound, now)));
        match bounds {
            [first, last] if first < last && last == now => format!("within the last {earliest}"),
            _ if latest == earliest => format!("{earliest} ago"),
            _ => format!("{latest} to {earliest} ago"),
        }
    }

    fn left(&self, until: Timestamp) -> Millis {
        between(self.context.now, until)
    }

    /// Notes a change that needs no request and happens in `left`.
    fn expect(&mut self, left: Millis, what: String) {
        if self.next.as_ref().is_none_or(|(first, _)| left < *first) {
            self.next = Some((left, what));
        }
    }

    fn session(&mut self, record: &Record, digest: &str) {
        let now = self.context.now;
        let lifetime = &record.lifetime;
        let session_state = lifetime.state(now);
        let (principal, generation) = (record.principal.as_str(), record.generation);
        let state = session_state.as_str();
        self.line(format!(
            "session {digest} (digest) of {principal} is {state}, generation {generation}"
        ));
        let (created, used) = (self.ago(lifetime.created_at), self.last_use(lifetime));
        let expiry = lifetime.reported_expiry(now);
        let end = match session_state {
            SessionState::Active => {
                let left = self.left(expiry);
                self.expect(left, "the session expires unless it is used".to_owned());
                format!("expires in {} unless it is used", span(left))
            }
            SessionState::Expired | SessionState::Ended => format!("{state} {}", self.ago(expiry)),
        };
        self.line(format!("created {created}, last used {used}, {end}"));
        if session_state != SessionState::Active {
            self.tombstone(record);
        }
    }

    fn tombstone(&mut self, record: &Record) {
        let ends_at = record.tombstone_ends_at(self.context.tuning);
        let left = self.left(ends_at);
        self.expect(left, "the key is dropped".to_owned());
        let live = record.cleaning.as_ref();
        let line = match live.filter(|cleaning| cleaning.is_live(self.context.now)) {
            Some(Cleaning {
                worker,
                lease_until,
            }) => {
                let left = self.left(*lease_until);
                self.expect(left, "another worker may clean it up".to_owned());
                let worker = worker.as_ref().map_or("the caller of END", |w| w.as_str());
                format!("{worker} cleans it up, for at most {}", span(left))
            }
            None if record.bindings.is_empty() => "nothing is left to clean up".to_owned(),
            None => "waits for a worker that cleans it up".to_owned(),
        };
        self.line(line);
    }

    fn binding(&mut self, server: &ServerName, binding: &Binding, session_state: SessionState) {
        let instance = &binding.instance;
        let (phase, owner) = (binding.phase, binding.owner.as_ref());
        let state = BindingState::of(
            phase,
            binding.bound_at,
            owner.map(WorkerId::as_str),
            self.context,
        );
        let head = match (state, phase) {
            (BindingState::Claimed, Phase::Claimed { lease_until }) => {
                let left = self.left(lease_until);
                self.expect(left, format!("the claim on {server} lapses"));
                let (driver, since) = (&binding.driver, self.ago(binding.bound_at));
                let left = span(left);
                format!("claimed by {driver} for {instance} {since}, lapses in {left}")
            }
            (BindingState::Orphaned, Phase::Claimed { .. }) => {
                let driver = &binding.driver;
                format!("orphaned: {driver} did not initialize {instance} within its lease")
            }
            (BindingState::Orphaned, Phase::Bound) => {
                format!("orphaned at {instance}: its owner is dead")
            }
            (BindingState::Bound | BindingState::Claimed, _) => {
                let age = span(between(binding.bound_at, self.context.now));
                format!("bound to {instance} for {age}")
            }
        };
        self.line(format!("{server}: {head}, epoch {}", binding.epoch));
        if state == BindingState::Orphaned && session_state == SessionState::Active {
            self.line("    the next request to it rebinds it".to_owned());
        }
        self.driver(binding, state);
        self.losses(binding);
    }

    fn driver(&mut self, binding: &Binding, state: BindingState) {
        let line = match &binding.owner {
            None if state != BindingState::Bound => None,
            None => Some(format!(
                "    any worker may call it; {} did last",
                binding.driver
            )),
            Some(owner) => {
                let workers = self.context.workers;
                let state = match workers.is_alive(owner) {
                    true if workers.is_draining(owner) => "draining; only it can call the instance",
                    true => "alive; only it can call the instance",
                    false => "dead",
                };
                let address = workers.address(owner);
                let address = address.map_or_else(String::new, |at| format!(" at {at}"));
                Some(format!("    owner {owner}{address} is {state}"))
            }
        };
        self.lines.extend(line);
        if let Some(upstream_session) = &binding.upstream_session {
            let digest = (self.digest)(upstream_session.as_str().as_bytes());
            self.line(format!("    upstream session {digest} (digest)"));
        }
    }

    fn losses(&mut self, binding: &Binding) {
        if binding.rebinds > 0 {
            let mut line = format!(
                "    rebinds: {}, the last {}",
                binding.rebinds,
                self.ago(binding.bound_at)
            );
            if let Some(reason) = &binding.last_reason {
                let _ = write!(line, ": {reason}");
            }
            self.line(line);
        }
        if let Some(previous) = &binding.previous {
            let digest = (self.digest)(previous.as_str().as_bytes());
            self.line(format!(
                "    upstream session {digest} (digest) was left behind"
            ));
        }
        if let Some(instance) = &binding.unreported_loss {
            self.line(format!(
                "    the state at {instance} was lost; the next reply tells the client"
            ));
        }
    }

    fn queue(&mut self, queue: &QueueView) {
        let server = &queue.server;
        if let Some(holder) = &queue.holder {
            let (worker, left) = (&holder.worker, span(holder.left));
            let state = match (holder.is_offered, holder.is_delegated) {
                (true, _) => "offered to",
                (false, true) => "delegated to all calls of",
                (false, false) => "held by",
            };
            let number = holder.number;
            self.line(format!(
                "    turn {number} is {state} {worker}, lapses in {left} unless it is renewed"
            ));
            let next = queue.next.first();
            let what = match next {
                Some(next) => {
                    let next = &next.worker;
                    format!("the turn at {server} lapses and passes to {next}")
                }
                None => format!("the turn at {server} lapses"),
            };
            self.expect(holder.left, what);
        }
        if queue.waiting > 0 {
            let names = queue.next.iter().map(|waiter| waiter.worker.as_str());
            let names: Vec<&str> = names.collect();
            let more = queue.waiting.saturating_sub(names.len());
            let more = match more {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let (waiting, names) = (queue.waiting, names.join(", "));
            self.line(format!("    {waiting} wait for the turn: {names}{more}"));
        }
    }

    fn finish(mut self) -> Vec<String> {
        if let Some((left, what)) = self.next.take() {
            self.line(format!("next, in {}: {what}", span(left)));
        }
        self.lines
    }
}

/// The time from one moment to a later one; zero if the clock stepped back.
fn between(from: Timestamp, to: Timestamp) -> Millis {
    Millis::new(to.unix_ms().saturating_sub(from.unix_ms()))
}

/// A duration for people: in the largest unit of which there are at least two.
fn span(length: Millis) -> String {
    const UNITS: [(u64, &str); 4] = [
        (86_400_000, "days"),
        (3_600_000, "h"),
        (60_000, "min"),
        (1_000, "s"),
    ];
    let ms = length.get();
    let unit = UNITS.iter().find(|(unit, _)| ms >= 2 * unit);
    unit.map_or_else(
        || format!("{ms} ms"),
        |(unit, name)| format!("{} {name}", ms / unit),
    )
}
