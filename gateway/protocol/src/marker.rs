//! What the ids of a server's requests are marked with on their way to a client.

use std::fmt;
use std::sync::Arc;

use super::ids::{Epoch, Id, Lane, Owner, Seal};

/// Makes the seal of an id that a server chose, of a request over the binding of an epoch.
pub type Sealer = dyn Fn(Epoch, &str) -> Seal + Send + Sync;

/// Marks the requests that come over one binding.
#[derive(Clone)]
pub struct Marker {
    epoch: Epoch,
    sealer: Option<Arc<Sealer>>,
}

impl Marker {
    /// Marks with the epoch alone.
    #[must_use]
    pub const fn of(epoch: Epoch) -> Self {
        Self {
            epoch,
            sealer: None,
        }
    }

    /// Seals what it marks.
    #[must_use]
    pub fn sealing(epoch: Epoch, sealer: Arc<Sealer>) -> Self {
        Self {
            epoch,
            sealer: Some(sealer),
        }
    }
}

impl fmt::Debug for Marker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seals = self.sealer.is_some();
        write!(formatter, "Marker({}, seals: {seals})", self.epoch.0)
    }
}

/// Whose ids a rewrite replaces.
#[derive(Clone, Copy, Debug)]
pub(super) enum IdScope<'a> {
    /// A client's.
    Client(Option<Lane>),
    /// A server's.
    Server(&'a Marker),
}

impl IdScope<'_> {
    /// What one of these ids is hidden behind.
    pub(super) fn owner(self, id: Id<'_>) -> Owner {
        match self {
            Self::Client(lane) => Owner::Client(lane),
            Self::Server(Marker { epoch, sealer }) => {
                let seal = sealer.as_ref().map(|sealer| sealer(*epoch, id.as_json()));
                Owner::Server(*epoch, seal)
            }
        }
    }
}
