//! One frame to the program.
//!
//! Invariant: an answer is no longer than the limit, and one that would be is not held in memory first. The one that says
//! so is short, and exempt from a limit that is smaller still.

use std::io::{self, Write};

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use super::incoming::LENGTH_BYTES;
use crate::calls::{CallError, CallErrorKind};

/// Longest message of an error; what comes after is cut off.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// An answer on its way.
pub(super) struct Answer {
    /// Which call it answers.
    pub(super) id: u64,
    /// The rest of the frame that is not yet written.
    pub(super) rest: Bytes,
}

#[derive(Serialize)]
struct Envelope<'a> {
    id: u64,
    #[serde(flatten)]
    outcome: Outcome<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome<'a> {
    Result(&'a Value),
    Error {
        kind: CallErrorKind,
        message: &'a str,
    },
}

impl Answer {
    /// The answer to a call.
    pub(super) fn new(id: u64, result: &Result<Value, CallError>, bytes_max: usize) -> Self {
        let outcome = match result {
            Ok(result) => Outcome::Result(result),
            Err(error) => failed(error),
        };
        let rest = frame(id, outcome, bytes_max).unwrap_or_else(|| {
            let error =
                CallErrorKind::Limit.error(format!("the result is longer than {bytes_max} bytes"));
            frame(id, failed(&error), usize::MAX).unwrap_or_default()
        });
        Self { id, rest }
    }
}

fn failed(error: &CallError) -> Outcome<'_> {
    let end = error.message.floor_char_boundary(MESSAGE_BYTES_MAX);
    Outcome::Error {
        kind: error.kind,
        message: error.message.get(..end).unwrap_or_default(),
    }
}

/// The whole frame; none where it would be too long.
fn frame(id: u64, outcome: Outcome<'_>, bytes_max: usize) -> Option<Bytes> {
    let mut frame = BoundedBuffer {
        bytes: vec![0; LENGTH_BYTES],
        most: bytes_max.saturating_add(LENGTH_BYTES),
    };
    serde_json::to_writer(&mut frame, &Envelope { id, outcome }).ok()?;
    let mut bytes = frame.bytes;
    let length = u32::try_from(bytes.len() - LENGTH_BYTES).ok()?;
    bytes
        .first_chunk_mut::<LENGTH_BYTES>()?
        .copy_from_slice(&length.to_be_bytes());
    Some(bytes.into())
}

/// A writer that fails when more than `most` bytes are written.
struct BoundedBuffer {
    bytes: Vec<u8>,
    most: usize,
}

impl Write for BoundedBuffer {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if piece.len() > self.most.saturating_sub(self.bytes.len()) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
