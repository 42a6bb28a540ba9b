//! The turns of one session as text, for a store that keeps them beside its records instead of in memory.
//!
//! A caller restores the session, runs one step, and stores it again only if the stored text is still the one that it
//! read. Each line is one fact, in words without spaces: `h` the highest number, `q` a queue, `o` its holder, `w` a
//! waiter, `s` a streak, `v` who watches a binding. Invariant: what is stored and restored decides as what it was, except
//! that a full queue is searched for waiters of dead workers at every question, not once a second.

use std::fmt::Write as _;

use super::Turns;
use super::queue::{HoldScope, HoldState, Holder, Queue, Waiter};
use super::request::Line;
use crate::events::EventMailboxes;
use crate::names::{ServerName, Token, WorkerId};
use crate::place::SessionPlace;
use crate::time::{Millis, Monotonic};

/// Stored turns that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unreadable turns of a session")]
pub struct CorruptTurns;

impl Turns {
    /// The turns of a session and the watches of its bindings as text; empty if there is nothing to remember.
    #[must_use]
    pub fn store_session(&self, session: &SessionPlace, events: &EventMailboxes) -> String {
        let mut text = String::new();
        if self.highest > 0 {
            line(&mut text, format_args!("h {}", self.highest));
        }
        for id in self.queues.of_session(session) {
            if let Some(spot) = self.queues.get(id) {
                store_queue(&mut text, &spot.server, &spot.value);
            }
        }
        for (server, worker, turns, until) in self.streaks.of_session(session) {
            line(
                &mut text,
                format_args!("s {server} {worker} {turns} {}", until.ms()),
            );
        }
        for (server, worker, until) in events.watches_of(session) {
            line(
                &mut text,
                format_args!("v {server} {worker} {}", until.ms()),
            );
        }
        text
    }

    /// Adds the session that the text describes. Nothing of it may be known yet.
    ///
    /// # Errors
    /// The text is not that of [`store_session`](Self::store_session); then a part may have been added.
    pub fn restore_session(
        &mut self,
        session: &SessionPlace,
        text: &str,
        events: &mut EventMailboxes,
    ) -> Result<(), CorruptTurns> {
        for line in text.lines() {
            let mut words = Words(line.split(' '));
            match words.text()? {
                "h" => self.highest = words.number()?,
                "q" => {
                    let server = words.server()?;
                    let mut queue = Queue::opened(self.created.contains(session));
                    queue.highest = words.number()?;
                    queue.quiet_until = words.moment()?;
                    queue.restore_arrivals(words.number()?);
                    self.queues.insert(session, &server, queue);
                }
                "o" => self.restore_holder(session, &mut words)?,
                "w" => self.restore_waiter(session, &mut words)?,
                "s" => {
                    let (server, worker) = (words.server()?, words.worker()?);
                    let turns = u8::try_from(words.number()?).map_err(|_| CorruptTurns)?;
                    let until = words.moment()?;
                    self.streaks.restore(session, &server, worker, turns, until);
                }
                "v" => {
                    let (server, worker) = (words.server()?, words.worker()?);
                    events.watch(&worker, session, &server, words.moment()?);
                }
                _ => return Err(CorruptTurns),
            }
        }
        self.set_restored_deadlines(session);
        Ok(())
    }

    /// Whether a caller waits for a turn of this session.
    #[must_use]
    pub fn has_waiters(&self, session: &SessionPlace) -> bool {
        let mut queues = self.queues.of_session(session).into_iter();
        queues.any(|id| (self.queues.get(id)).is_some_and(|queue| queue.value.waiting() > 0))
    }

    fn restore_holder(
        &mut self,
        session: &SessionPlace,
        words: &mut Words<'_>,
    ) -> Result<(), CorruptTurns> {
        let (server, worker) = (words.server()?, words.worker()?);
        let holder = Holder {
            worker,
            ticket: words.ticket()?,
            number: words.number()?,
            lease: Millis::new(words.number()?),
            since: words.moment()?,
            state: match (words.text()?, words.moment()?) {
                ("offered", until) => HoldState::Offered { until },
                ("held", until) => HoldState::Held { until },
                _ => return Err(CorruptTurns),
            },
            scope: match words.text()? {
                "call" => HoldScope::Call,
                "delegated" => HoldScope::Delegation { is_recalled: false },
                "recalled" => HoldScope::Delegation { is_recalled: true },
                "former" => HoldScope::FormerDelegation,
                _ => return Err(CorruptTurns),
            },
            ends: match words.number()? {
                0 => None,
                ends => Some(Monotonic::from_ms(ends)),
            },
        };
        let id = self.queues.find(session, &server).ok_or(CorruptTurns)?;
        self.list(&holder.worker, id);
        let queue = self.queues.get_mut(id).ok_or(CorruptTurns)?;
        queue.value.holder = Some(holder);
        Ok(())
    }

    fn restore_waiter(
        &mut self,
        session: &SessionPlace,
        words: &mut Words<'_>,
    ) -> Result<(), CorruptTurns> {
        let server = words.server()?;
        let line = match words.text()? {
            "first" => Line::First,
            "last" => Line::Last,
            _ => return Err(CorruptTurns),
        };
        let arrival = words.number()?;
        let waiter = Waiter {
            worker: words.worker()?,
            ticket: words.ticket()?,
            lease: Millis::new(words.number()?),
            since: words.moment()?,
        };
        let id = self.queues.find(session, &server).ok_or(CorruptTurns)?;
        let queue = self.queues.get_mut(id).ok_or(CorruptTurns)?;
        queue.value.restore_waiter((line, arrival), waiter);
        self.waiting = self.waiting.saturating_add(1);
        Ok(())
    }

    /// A queue is due when its holder's time is over, or while nobody holds it, when its quiet time is.
    fn set_restored_deadlines(&mut self, session: &SessionPlace) {
        for id in self.queues.of_session(session) {
            let Some(queue) = self.queues.get(id) else {
                continue;
            };
            let due = match &queue.value.holder {
                Some(holder) => holder.until(),
                None => self.quiet_until_of(&queue.value),
            };
            self.queues.set_deadline(id, Some(due));
        }
    }
}

fn store_queue(text: &mut String, server: &ServerName, queue: &Queue) {
    line(
        text,
        format_args!(
            "q {server} {} {} {}",
            queue.highest,
            queue.quiet_until.ms(),
            queue.arrivals()
        ),
    );
    if let Some(holder) = &queue.holder {
        let (state, until) = match holder.state {
            HoldState::Offered { until } => ("offered", until),
            HoldState::Held { until } => ("held", until),
        };
        let scope = match holder.scope {
            HoldScope::Call => "call",
            HoldScope::Delegation { is_recalled: false } => "delegated",
            HoldScope::Delegation { is_recalled: true } => "recalled",
            HoldScope::FormerDelegation => "former",
        };
        let ends = holder.ends.map_or(0, Monotonic::ms);
        let (worker, ticket) = (&holder.worker, holder.ticket.as_str());
        let (lease, since, until) = (holder.lease.get(), holder.since.ms(), until.ms());
        line(
            text,
            format_args!(
                "o {server} {worker} {ticket} {} {lease} {since} {state} {until} {scope} {ends}",
                holder.number
            ),
        );
    }
    for ((in_line, arrival), waiter) in queue.places() {
        let in_line = match in_line {
            Line::First => "first",
            Line::Last => "last",
        };
        let (worker, ticket) = (&waiter.worker, waiter.ticket.as_str());
        let (lease, since) = (waiter.lease.get(), waiter.since.ms());
        line(
            text,
            format_args!("w {server} {in_line} {arrival} {worker} {ticket} {lease} {since}"),
        );
    }
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    if !text.is_empty() {
        text.push('\n');
    }
    // Writing to a string does not fail.
    let _ = text.write_fmt(words);
}

/// The words of a line.
struct Words<'a>(std::str::Split<'a, char>);

impl<'a> Words<'a> {
    fn text(&mut self) -> Result<&'a str, CorruptTurns> {
        self.0.next().ok_or(CorruptTurns)
    }

    fn number(&mut self) -> Result<u64, CorruptTurns> {
        self.text()?.parse().map_err(|_| CorruptTurns)
    }

    fn moment(&mut self) -> Result<Monotonic, CorruptTurns> {
        self.number().map(Monotonic::from_ms)
    }

    fn server(&mut self) -> Result<ServerName, CorruptTurns> {
        ServerName::parse(self.text()?.as_bytes()).map_err(|_| CorruptTurns)
    }

    fn worker(&mut self) -> Result<WorkerId, CorruptTurns> {
        WorkerId::parse(self.text()?.as_bytes()).map_err(|_| CorruptTurns)
    }

    fn ticket(&mut self) -> Result<Token, CorruptTurns> {
        Token::parse(self.text()?.as_bytes()).map_err(|_| CorruptTurns)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use crate::time::Timestamp;
    use crate::turns::{TurnContext, TurnLimits, TurnRequest, TurnScope};
    use crate::workers::Workers;

    const NOW_MS: u64 = 1_700_000_000_000;

    /// Works on the turns at a moment at which every worker is alive.
    fn at<R>(
        events: &mut EventMailboxes,
        mono: Monotonic,
        work: impl FnOnce(&mut TurnContext<'_>) -> R,
    ) -> R {
        let workers = Workers::new(Monotonic::default(), Millis::new(u64::MAX));
        work(&mut TurnContext {
            now: Timestamp::from_unix_ms(NOW_MS),
            mono,
            limits: TurnLimits {
                queue_max: 8,
                lease_max: Millis::new(5_000),
            },
            workers: &workers.at(mono),
            events,
        })
    }

    fn request(ticket: &str, line: Line, scope: TurnScope) -> TurnRequest {
        TurnRequest {
            worker: WorkerId::parse(b"w:1").unwrap(),
            ticket: Token::parse(ticket.as_bytes()).unwrap(),
            lease: Millis::new(2_000),
            line,
            scope,
            held: None,
        }
    }

    #[test]
    fn what_is_restored_is_what_was_stored_and_goes_on_in_order() {
        let (session, mono) = (SessionPlace::new(0, b"s"), Monotonic::from_ms(NOW_MS));
        let [tools, other] =
            ["tools", "other"].map(|name| ServerName::parse(name.as_bytes()).unwrap());
        let (mut turns, mut events) = (Turns::new(mono, Millis::new(0)), EventMailboxes::new());
        at(&mut events, mono, |context| {
            for (ticket, line) in [("a", Line::Last), ("b", Line::Last), ("c", Line::First)] {
                let asks = request(ticket, line, TurnScope::Call);
                turns.enter(&session, &tools, &asks, context).unwrap();
            }
            for ticket in ["d", "e", "f", "g"] {
                let wishes = request(ticket, Line::Last, TurnScope::Delegation);
                turns.enter(&session, &other, &wishes, context).unwrap();
                if ticket != "g" && ticket != "f" {
                    turns.leave(&session, &other, ticket, context).unwrap();
                }
            }
        });
        let text = turns.store_session(&session, &events);
        for part in [
            "h ",
            "q tools",
            "o tools",
            "w tools first",
            "w tools last",
            "v other",
        ] {
            assert!(
                text.lines().any(|line| line.starts_with(part)),
                "{part}: {text}"
            );
        }
        let restored = |text: &str| {
            let (mut turns, mut events) = (Turns::new(mono, Millis::new(0)), EventMailboxes::new());
            let restored = turns.restore_session(&session, text, &mut events);
            restored.map(|()| (turns, events))
        };
        let (mut again, mut events) = restored(&text).unwrap();
        assert_eq!(again.store_session(&session, &events), text);
        assert_eq!(
            again.of_session(&session, mono),
            turns.of_session(&session, mono)
        );
        assert!(again.has_waiters(&session));
        for next in ["c", "b"] {
            at(&mut events, mono, |context| {
                let held = again.of_session(&session, mono);
                let holder = held.iter().find(|queue| queue.server == tools).unwrap();
                let ticket = holder.holder.as_ref().unwrap().ticket.clone();
                again.leave(&session, &tools, &ticket, context).unwrap();
            });
            let text = again.store_session(&session, &events);
            assert!(
                text.contains(&format!("o tools w:1 {next} ")),
                "{next}: {text}"
            );
            (again, events) = restored(&text).unwrap();
        }
        for corrupt in [
            "x",
            "h",
            "h many",
            "q tools 1",
            "o tools w:1 a 1 2 3 held 4 call 0",
            "s tools w:1 999 0",
        ] {
            assert!(restored(corrupt).is_err(), "{corrupt}");
        }
    }
}
