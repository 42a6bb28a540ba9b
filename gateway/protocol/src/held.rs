//! Bytes that are counted as held memory for as long as they are there.
//!
//! Invariant: the memory is given back when the last reference to the bytes is dropped, wherever they have gone.

use std::sync::Arc;

use bytes::Bytes;

use mooring_usage::HeldMemory;

/// Bytes, and the memory that they take.
struct HeldBytes {
    bytes: Bytes,
    _held: Arc<HeldMemory>,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The same bytes, which keep `held` until the last reference to them is dropped.
#[must_use]
pub fn held_bytes(bytes: Bytes, held: Option<&Arc<HeldMemory>>) -> Bytes {
    match held {
        Some(held) => Bytes::from_owner(HeldBytes {
            bytes,
            _held: Arc::clone(held),
        }),
        None => bytes,
    }
}
