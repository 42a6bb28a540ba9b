//! The reader of Redis' replies.

#[path = "../../store/src/redis/reply_reader.rs"]
mod reply_reader;

use std::io;

use redis::Value;
use reply_reader::ReplyReader;

/// The first reply in these bytes, which arrive in pieces of so many bytes; none if it is not there as a whole.
///
/// # Errors
/// They are no reply.
pub fn read(bytes: &[u8], piece_bytes: usize) -> io::Result<Option<Value>> {
    let mut reader = ReplyReader::default();
    for piece in bytes.chunks(piece_bytes.max(1)) {
        reader.buffer().extend_from_slice(piece);
        if let Some(reply) = reader.next_reply()? {
            return Ok(Some(reply));
        }
    }
    Ok(None)
}
