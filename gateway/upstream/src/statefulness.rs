//! Whether a server is stateful: whether its instances assign session ids (`Mcp-Session-Id`) in the handshake.
//!
//! Each gateway asks at start, and updates the result with every later handshake. Invariant: a server counts as
//! stateless only after all its instances were initialized and none assigned an id.

use std::sync::atomic::{AtomicU8, Ordering};

/// Whether a server, or an instance of it, is stateful.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::FromRepr)]
#[repr(u8)]
pub enum Statefulness {
    /// Not initialized yet.
    Unknown,
    /// It assigns no session ids.
    Stateless,
    /// It assigns session ids.
    Stateful,
}

impl Statefulness {
    /// The statefulness of a server with these instances: one stateful instance decides, and an unknown one may be
    /// stateful.
    pub fn of_all(instances: impl Iterator<Item = Self>) -> Self {
        let mut all = Self::Stateless;
        for instance in instances {
            match instance {
                Self::Stateful => return Self::Stateful,
                Self::Unknown => all = Self::Unknown,
                Self::Stateless => {}
            }
        }
        all
    }
}

/// The statefulness in an instance's last handshake.
#[derive(Debug, Default)]
pub struct StatefulnessSeen(AtomicU8);

impl StatefulnessSeen {
    /// The recorded statefulness; `Unknown` before the first handshake.
    pub fn get(&self) -> Statefulness {
        let seen = Statefulness::from_repr(self.0.load(Ordering::Relaxed));
        seen.unwrap_or(Statefulness::Unknown)
    }

    /// Records the statefulness.
    pub fn set(&self, seen: Statefulness) {
        self.0.store(seen as u8, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stateful_instance_decides_and_one_unknown_instance_leaves_it_open() {
        use Statefulness::{Stateful, Stateless, Unknown};
        for (instances, server) in [
            (&[Stateless, Stateless][..], Stateless),
            (&[Stateless, Unknown], Unknown),
            (&[Unknown, Unknown], Unknown),
            (&[Stateless, Stateful], Stateful),
            (&[Unknown, Stateful, Stateless], Stateful),
        ] {
            let seen = instances.iter().copied();
            assert_eq!(Statefulness::of_all(seen), server, "{instances:?}");
        }
    }

    #[test]
    fn an_instance_is_unknown_until_it_has_answered() {
        let seen = StatefulnessSeen::default();
        assert_eq!(seen.get(), Statefulness::Unknown);
        for said in [Statefulness::Stateless, Statefulness::Stateful] {
            seen.set(said);
            assert_eq!(seen.get(), said);
        }
    }
}
