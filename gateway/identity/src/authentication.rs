//! How far a request's sender is known.

use std::sync::Arc;

use crate::dpop::BoundToken;
use crate::identity::Identity;

/// How far the headers of a request authenticate its sender.
#[derive(Debug)]
pub enum Authentication {
    /// Who it is from.
    Complete(Arc<Identity>),
    /// The same, if the request proves that it has the token's key.
    NeedsProof(BoundToken),
}
