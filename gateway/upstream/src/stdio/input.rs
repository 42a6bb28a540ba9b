//! Writes messages to a child, one per line.

use std::io;

use bytes::{Buf as _, Bytes};
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

/// Writes every message until all senders are dropped. Returning closes the child's stdin.
///
/// # Errors
/// The child no longer reads.
pub(super) async fn write(
    mut input: pipe::Sender,
    outgoing: &mut mpsc::Receiver<Bytes>,
) -> io::Result<()> {
    while let Some(message) = outgoing.recv().await {
        let mut line = one_line(message).chain(&b"\n"[..]);
        input.write_all_buf(&mut line).await?;
    }
    Ok(())
}

/// A message without raw newlines. In JSON these occur only between tokens, where a space is equivalent.
fn one_line(message: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &message).is_none() {
        return message;
    }
    let blank = |byte: &u8| match byte {
        b'\n' | b'\r' => b' ',
        other => *other,
    };
    message.iter().map(blank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newlines_between_tokens_become_spaces() {
        let message = Bytes::from_static(b"{\r\n\"a\":\n\"b\\n\"}");
        assert_eq!(one_line(message), &b"{  \"a\": \"b\\n\"}"[..]);
        let message = Bytes::from_static(b"{\"a\":1}");
        assert_eq!(one_line(message.clone()).as_ptr(), message.as_ptr());
    }
}
