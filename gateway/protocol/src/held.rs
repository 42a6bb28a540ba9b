//! Bytes that count as held memory for as long as they exist.
//!
//! Invariant: the memory is given back when the last reference to the bytes is dropped, wherever they have gone.

use std::sync::Arc;

use bytes::Bytes;

use mooring_usage::HeldMemory;

/// Bytes, and what lasts as long as they do.
struct GuardedBytes<G> {
    bytes: Bytes,
    _guard: G,
}

impl<G> AsRef<[u8]> for GuardedBytes<G> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The same bytes, which keep `held` until the last reference to them is dropped.
#[must_use]
pub fn held_bytes(bytes: Bytes, held: Option<&Arc<HeldMemory>>) -> Bytes {
    match held {
        Some(held) => guarded_bytes(bytes, Arc::clone(held)),
        None => bytes,
    }
}

/// The same bytes; `guard` is dropped with the last reference to them.
#[must_use]
pub fn guarded_bytes(bytes: Bytes, guard: impl Send + 'static) -> Bytes {
    Bytes::from_owner(GuardedBytes {
        bytes,
        _guard: guard,
    })
}
