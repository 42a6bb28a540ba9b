//! Random operations over few names, so that they meet each other.

use proptest::prelude::*;

/// One operation, its names as small numbers.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(super) kind: Kind,
    pub(super) session: u8,
    pub(super) principal: u8,
    pub(super) server: u8,
    pub(super) worker: u8,
    pub(super) token: u8,
    pub(super) instance: u8,
    /// Options of the kind, bit by bit.
    pub(super) flags: u8,
}

impl Operation {
    /// How much time passes, in milliseconds: from within a turn's lease to past the end of a tombstone.
    pub(crate) fn waits_ms(&self) -> u64 {
        let waits = [500, 1_000, 31_000, 300_000, 3_700_000, 9_000_000];
        let wait = waits.get(usize::from(self.flags) % waits.len()).copied();
        wait.filter(|_| self.kind == Kind::Wait).unwrap_or(0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Create,
    Touch,
    Get,
    End,
    Route,
    Bind,
    Confirm,
    Rebind,
    Unbind,
    Claim,
    Forget,
    Enter,
    Leave,
    Withdraw,
    News,
    List,
    Reap,
    Rate,
    Beat,
    Gone,
    Workers,
    Wait,
}

/// Sequences of operations; those that build something up come more often than those that tear it down.
pub(crate) fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let kind = prop_oneof![
        5 => Just(Kind::Create),
        1 => Just(Kind::Touch),
        1 => Just(Kind::Get),
        1 => Just(Kind::End),
        4 => Just(Kind::Route),
        4 => Just(Kind::Bind),
        3 => Just(Kind::Confirm),
        3 => Just(Kind::Rebind),
        1 => Just(Kind::Unbind),
        1 => Just(Kind::Claim),
        1 => Just(Kind::Forget),
        3 => Just(Kind::Enter),
        2 => Just(Kind::Leave),
        2 => Just(Kind::Withdraw),
        2 => Just(Kind::News),
        2 => Just(Kind::List),
        1 => Just(Kind::Reap),
        1 => Just(Kind::Rate),
        2 => Just(Kind::Beat),
        1 => Just(Kind::Gone),
        1 => Just(Kind::Workers),
        3 => Just(Kind::Wait),
    ];
    // One principal in eight is a stranger.
    let names = (0..3_u8, 0..8_u8, 0..2_u8, 0..3_u8, 0..3_u8, 0..2_u8);
    let operation = (kind, names, any::<u8>()).prop_map(|(kind, names, flags)| {
        let (session, principal, server, worker, token, instance) = names;
        Operation {
            kind,
            session,
            principal,
            server,
            worker,
            token,
            instance,
            flags,
        }
    });
    proptest::collection::vec(operation, 1..60)
}
