//! Whether a message may still be sent.
//!
//! A call has the turn of its session for a limited time, and may have to wait for a connection or a credential first.
//! Invariant: the permit is checked right before the first byte of each attempt is written, or handed to the task or the
//! connection between gateways that writes it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// What decides whether a message may be sent now. It is asked before every attempt, so it must be cheap.
pub trait PermitSource: fmt::Debug + Send + Sync {
    /// Whether it may. If so, it may have been sent from now on.
    fn permit_sending(&self) -> bool;
}

/// The permit of a message. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SendPermit(Arc<dyn PermitSource>);

impl SendPermit {
    /// A permit by `source`.
    #[must_use]
    pub fn new(source: Arc<dyn PermitSource>) -> Self {
        Self(source)
    }
}

impl Deref for SendPermit {
    type Target = dyn PermitSource;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}
