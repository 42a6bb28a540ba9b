//! What calls of a session may wait for: who has the turns and who waits for them, claims, and cleaning up.
//!
//! Invariant: no ticket, session id or upstream session is in it, only digests.

use std::fmt::Write as _;

use mooring_session::names::WorkerId;
use mooring_session::time::Millis;
use mooring_session::turns::QueueView;
use mooring_session::view::{BindingState, RecordView};
use serde::Serialize;

/// What calls of a session may wait for, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionBlockers {
    /// The record.
    pub record: RecordView,
    /// Who cleans up after the session, if it is over and somebody does.
    pub cleaning: Option<CleaningView>,
    /// Its turns; none if they are in the memory of another process.
    pub turns: Option<Vec<TurnQueueView>>,
}

/// A cleaning up in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CleaningView {
    /// The gateway; none for the one that ended the session.
    pub gateway: Option<Box<str>>,
    /// After how many milliseconds another may take over.
    pub left_ms: u64,
}

/// The turn of a session at one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TurnQueueView {
    /// The server.
    pub server: Box<str>,
    /// Who has the turn.
    pub holder: Option<TurnHolderView>,
    /// How many calls wait.
    pub waiting: u64,
    /// The first of them, in order.
    pub next: Vec<WaitingCallView>,
}

/// The call or the gateway that has a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TurnHolderView {
    /// The gateway.
    pub gateway: Box<str>,
    /// The digest of the call's ticket.
    pub call: Box<str>,
    /// For how many milliseconds it has had it.
    pub held_ms: u64,
    /// After how many milliseconds it lapses unless it is renewed.
    pub left_ms: u64,
    /// Whether its gateway does not know of it yet.
    pub is_offered: bool,
    /// Whether the gateway may give it to any of its calls.
    pub is_delegated: bool,
}

/// A call that waits for a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaitingCallView {
    /// The gateway.
    pub gateway: Box<str>,
    /// The digest of the call's ticket.
    pub call: Box<str>,
    /// For how many milliseconds it has waited.
    pub waited_ms: u64,
}

impl TurnQueueView {
    pub(crate) fn of(queue: &QueueView) -> Self {
        let gateway = |worker: &WorkerId| worker.as_str().into();
        let call = |ticket: &str| mooring_secrets::digest::short(ticket);
        Self {
            server: queue.server.as_str().into(),
            holder: queue.holder.as_ref().map(|holder| TurnHolderView {
                gateway: gateway(&holder.worker),
                call: call(holder.ticket.as_str()),
                held_ms: holder.held.get(),
                left_ms: holder.left.get(),
                is_offered: holder.is_offered,
                is_delegated: holder.is_delegated,
            }),
            waiting: u64::try_from(queue.waiting).unwrap_or(u64::MAX),
            next: (queue.next.iter())
                .map(|waiter| WaitingCallView {
                    gateway: gateway(&waiter.worker),
                    call: call(waiter.ticket.as_str()),
                    waited_ms: waiter.waited.get(),
                })
                .collect(),
        }
    }

    fn sentences(&self, lines: &mut Vec<String>) {
        let server = &self.server;
        match &self.holder {
            None => lines.push(format!("{server}: nobody has the turn")),
            Some(holder) => {
                let TurnHolderView { gateway, call, .. } = holder;
                let (held, left) = (length(holder.held_ms), length(holder.left_ms));
                let has = match (holder.is_offered, holder.is_delegated) {
                    (true, _) => format!("{gateway} was offered the turn {held} ago (call {call})"),
                    (false, true) => format!(
                        "the turn has been delegated to all calls at {gateway} for {held}; the next call elsewhere \
                         recalls it"
                    ),
                    (false, false) => {
                        format!("a call at {gateway} has had the turn for {held} (call {call})")
                    }
                };
                lines.push(format!(
                    "{server}: {has}; it lapses in {left} unless it is renewed"
                ));
            }
        }
        if self.waiting == 0 {
            return;
        }
        let mut line = format!("{server}: {} wait for the turn:", self.waiting);
        for (place, waiter) in (1..).zip(&self.next) {
            let WaitingCallView { gateway, call, .. } = waiter;
            let waited = length(waiter.waited_ms);
            let comma = if place > 1 { "," } else { "" };
            let _ = write!(
                line,
                "{comma} {place}. at {gateway} for {waited} (call {call})"
            );
        }
        let named = u64::try_from(self.next.len()).unwrap_or(u64::MAX);
        if self.waiting > named {
            let _ = write!(line, " and {} more", self.waiting - named);
        }
        lines.push(line);
    }
}

impl SessionBlockers {
    /// What calls may wait for, a line for each fact. `now_ms` is the time in milliseconds since 1970.
    #[must_use]
    pub fn sentences(&self, now_ms: u64) -> Vec<String> {
        let mut lines = Vec::new();
        let state = self.record.state.as_str();
        if state != "active" {
            lines.push(format!("the session is {state}: calls are refused"));
        }
        if let Some(cleaning) = &self.cleaning {
            let gateway = cleaning
                .gateway
                .as_deref()
                .unwrap_or("the gateway that ended it");
            let left = length(cleaning.left_ms);
            lines.push(format!(
                "{gateway} cleans up after it; another gateway takes over after {left}"
            ));
        }
        for binding in &self.record.bindings {
            let (server, driver, instance) = (&binding.server, &binding.driver, &binding.instance);
            let since = length(now_ms.saturating_sub(binding.bound_at.unix_ms()));
            match binding.state {
                BindingState::Claimed => lines.push(format!(
                    "{server}: {driver} has been initializing {instance} for {since}; calls wait for that"
                )),
                BindingState::Orphaned => lines.push(format!(
                    "{server}: the binding to {instance} is orphaned; the next call moves it"
                )),
                BindingState::Bound => {}
            }
        }
        match &self.turns {
            Some(turns) => turns.iter().for_each(|queue| queue.sentences(&mut lines)),
            None => lines.push(
                "the turns of its calls are not known here: a gateway without Redis has them in its memory, and an older \
                 module does not tell them"
                    .to_owned(),
            ),
        }
        if lines.is_empty() {
            lines.push("nothing in the store makes a call of the session wait".to_owned());
        }
        lines
    }
}

impl CleaningView {
    pub(crate) fn new(worker: Option<&WorkerId>, left: Millis) -> Self {
        Self {
            gateway: worker.map(|worker| worker.as_str().into()),
            left_ms: left.get(),
        }
    }
}

/// A time in milliseconds, or in seconds to the tenth.
pub(crate) fn length(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        _ => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
    }
}
