//! Texts that are made from a message, such as one with another id, and the memory that they take.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use mooring_protocol::held::guarded_bytes;
use mooring_protocol::rewrite::into_bytes;
use mooring_usage::{MemoryShare, NoRoom, SHORT_BYTES_MAX};

/// The text as bytes. Those of a long one take memory, as the message itself does, unless they are the message's own.
///
/// # Errors
/// [`NoRoom`].
pub(crate) fn into_held(
    text: Cow<'_, str>,
    body: &Bytes,
    memory: &Arc<MemoryShare>,
) -> Result<Bytes, NoRoom> {
    if text.len() <= SHORT_BYTES_MAX || matches!(text, Cow::Borrowed(_)) {
        return Ok(into_bytes(text, body));
    }
    let mut held = Arc::clone(memory).hold();
    held.try_grow(text.len())?;
    Ok(guarded_bytes(into_bytes(text, body), held))
}
