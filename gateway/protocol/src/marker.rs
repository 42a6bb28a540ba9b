//! Marks the ids of server-to-client requests on their way to a client.

use std::fmt;
use std::sync::Arc;

use super::ids::{Epoch, Id, Owner, RequestTag, Seal};

/// Makes the seal of a server's id, for a request over the binding of an epoch.
pub type Sealer = dyn Fn(Epoch, &str) -> Seal + Send + Sync;

/// Marks the requests that come over one binding.
#[derive(Clone)]
pub struct Marker {
    epoch: Epoch,
    sealer: Option<Arc<Sealer>>,
}

impl Marker {
    /// Marks with the epoch only.
    #[must_use]
    pub const fn of(epoch: Epoch) -> Self {
        Self {
            epoch,
            sealer: None,
        }
    }

    /// Marks with the epoch and a seal.
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

/// The owner of the ids that a rewrite replaces.
#[derive(Clone, Copy, Debug)]
pub(super) enum IdScope<'a> {
    /// A client's.
    Client(Option<RequestTag>),
    /// A server's.
    Server(&'a Marker),
}

impl IdScope<'_> {
    /// The owner data to write with one of these ids.
    pub(super) fn owner(self, id: Id<'_>) -> Owner {
        match self {
            Self::Client(tag) => Owner::Client(tag),
            Self::Server(Marker { epoch, sealer }) => {
                let seal = sealer.as_ref().map(|sealer| sealer(*epoch, id.as_json()));
                Owner::Server(*epoch, seal)
            }
        }
    }
}
