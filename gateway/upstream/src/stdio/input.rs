//! Writes messages to a child, one per line.

use std::io;

use bytes::{Buf as _, Bytes};
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use crate::connection::link::one_line;

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
