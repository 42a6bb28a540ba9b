//! What ran at the upstream, and when: two calls of one session at once are an overlap. Pure: it is tested by itself.
//!
//! Invariant: a call counts as over when the upstream has answered it, or when its connection was closed by the death of
//! its gateway. A gateway that lives and closes the connection ends nothing: its server may still work on the call.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

/// A call: its user and the number that the user gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct CallName {
    pub(super) user: usize,
    pub(super) number: u64,
}

/// The gateway process that a call was sent to. The number of its life changes as it is killed and as it is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GatewayLife {
    pub(super) gateway: usize,
    pub(super) life: u64,
}

/// A call that runs.
#[derive(Clone, Debug)]
pub(super) struct RunningCall<C> {
    pub(super) name: CallName,
    pub(super) through: GatewayLife,
    /// Since the upstream was started.
    pub(super) began: Duration,
    pub(super) connection: C,
}

/// Two calls of one session that ran at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Overlap {
    pub(super) session: String,
    pub(super) earlier: (CallName, GatewayLife, Duration),
    pub(super) later: (CallName, GatewayLife, Duration),
}

impl fmt::Display for Overlap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (earlier, through, began) = self.earlier;
        let (later, later_through, later_began) = self.later;
        write!(
            formatter,
            "{}: call {}/{} through gateway {} has run since {:.1} ms as call {}/{} through gateway {} began at {:.1} ms, \
             {:.1} ms later",
            self.session,
            earlier.user,
            earlier.number,
            through.gateway,
            began.as_secs_f64() * 1e3,
            later.user,
            later.number,
            later_through.gateway,
            later_began.as_secs_f64() * 1e3,
            (later_began.saturating_sub(began)).as_secs_f64() * 1e3,
        )
    }
}

/// Everything that ran. `C` is what tells whether a connection is closed.
#[derive(Debug)]
pub(super) struct Ledger<C> {
    sessions: HashMap<String, SessionCalls<C>>,
    begun: HashMap<CallName, u32>,
    overlaps: Vec<Overlap>,
}

#[derive(Debug)]
struct SessionCalls<C> {
    count: u64,
    running: Vec<RunningCall<C>>,
}

impl<C> Default for Ledger<C> {
    fn default() -> Self {
        Self {
            sessions: HashMap::new(),
            begun: HashMap::new(),
            overlaps: Vec::new(),
        }
    }
}

impl<C> Ledger<C> {
    /// Opens a session; its id.
    pub(super) fn open(&mut self) -> String {
        let id = format!("witness-{}", self.sessions.len());
        let calls = SessionCalls {
            count: 0,
            running: Vec::new(),
        };
        self.sessions.insert(id.clone(), calls);
        id
    }

    /// A call begins; its count, unless there is no such session. `is_over` tells of a running one whether its gateway has
    /// died and its connection is closed.
    pub(super) fn begin(
        &mut self,
        session: &str,
        call: RunningCall<C>,
        is_over: impl Fn(&RunningCall<C>) -> bool,
    ) -> Option<u64> {
        let calls = self.sessions.get_mut(session)?;
        calls.running.retain(|running| !is_over(running));
        let of = |call: &RunningCall<C>| (call.name, call.through, call.began);
        let overlaps = calls.running.iter().map(|running| Overlap {
            session: session.to_owned(),
            earlier: of(running),
            later: of(&call),
        });
        self.overlaps.extend(overlaps);
        *self.begun.entry(call.name).or_default() += 1;
        calls.running.push(call);
        calls.count += 1;
        Some(calls.count)
    }

    /// A call was answered.
    pub(super) fn end(&mut self, session: &str, name: CallName) {
        if let Some(calls) = self.sessions.get_mut(session) {
            calls.running.retain(|running| running.name != name);
        }
    }

    pub(super) fn overlaps(&self) -> &[Overlap] {
        &self.overlaps
    }

    /// How often a call has begun.
    pub(super) fn times_begun(&self, name: CallName) -> u32 {
        self.begun.get(&name).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call of a user at a time in milliseconds; its connection is open until this is false.
    fn call(user: usize, began_ms: u64, is_closed: bool) -> RunningCall<bool> {
        RunningCall {
            name: CallName { user, number: 1 },
            through: GatewayLife {
                gateway: user,
                life: 0,
            },
            began: Duration::from_millis(began_ms),
            connection: is_closed,
        }
    }

    #[test]
    fn a_call_that_begins_before_the_one_before_it_is_over_is_an_overlap() {
        let mut ledger = Ledger::default();
        let session = ledger.open();
        let is_over = |running: &RunningCall<bool>| running.connection;
        assert_eq!(ledger.begin(&session, call(1, 10, false), is_over), Some(1));
        ledger.end(&session, CallName { user: 1, number: 1 });
        assert_eq!(ledger.begin(&session, call(2, 20, true), is_over), Some(2));
        // The gateway of the second one has died.
        assert_eq!(ledger.begin(&session, call(3, 30, false), is_over), Some(3));
        assert_eq!(ledger.overlaps(), &[]);
        assert_eq!(ledger.begin(&session, call(4, 40, false), is_over), Some(4));
        let [overlap] = ledger.overlaps() else {
            panic!("one overlap: {:?}", ledger.overlaps());
        };
        assert_eq!((overlap.earlier.0.user, overlap.later.0.user), (3, 4));
    }

    #[test]
    fn sessions_are_apart_and_calls_are_counted_by_name() {
        let mut ledger = Ledger::default();
        let sessions = [ledger.open(), ledger.open()];
        for session in &sessions {
            assert_eq!(ledger.begin(session, call(1, 0, false), |_| false), Some(1));
        }
        assert_eq!(ledger.overlaps(), &[]);
        assert_eq!(ledger.times_begun(CallName { user: 1, number: 1 }), 2);
        assert_eq!(ledger.times_begun(CallName { user: 1, number: 2 }), 0);
        assert_eq!(ledger.begin("another", call(1, 0, false), |_| false), None);
    }
}
