//! stdin and stdout, each with its own thread: reads and writes may block indefinitely, and a blocked thread must not
//! keep the process from exiting.
//!
//! Invariant: each line is written whole and immediately, in order.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::{mpsc, watch};

use mooring_protocol::CutMessage;
use mooring_upstream::stdio::{Lines, LongLinePolicy};

/// Size of one read.
const READ_BYTES: usize = 64 * 1024;
/// Interval of checks whether stdout still has a reader.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A line of input.
#[derive(Debug)]
pub(super) enum Line {
    /// A line, without its terminator.
    Whole(Bytes),
    /// A line beyond the limit; it was skipped.
    TooLong(CutMessage),
}

/// The state of stdout.
pub(super) struct Output {
    is_over: watch::Receiver<bool>,
}

/// Reads stdin until it is closed, in lines of at most `bytes_max` bytes.
///
/// # Errors
/// The thread could not be started.
pub(super) fn read(lines: mpsc::Sender<Line>, bytes_max: usize) -> io::Result<()> {
    std::thread::Builder::new()
        .name("mooring-stdin".to_owned())
        .spawn(move || {
            if let Err(error) = read_all(&lines, bytes_max) {
                tracing::error!(%error, "stdin could not be read");
            }
        })
        .map(drop)
}

fn read_all(to: &mpsc::Sender<Line>, bytes_max: usize) -> io::Result<()> {
    let mut input = io::stdin().lock();
    let mut lines = Lines::new(bytes_max, LongLinePolicy::Report);
    let mut chunk = vec![0; READ_BYTES];
    loop {
        let length = match input.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        lines
            .buffer()
            .extend_from_slice(chunk.get(..length).unwrap_or_default());
        loop {
            let line = match lines.next_line() {
                Ok(Some(line)) => Line::Whole(line),
                Ok(None) => break,
                Err(line) => Line::TooLong(line),
            };
            if to.blocking_send(line).is_err() {
                return Ok(());
            }
        }
    }
    if let Some(rest) = lines.rest() {
        // The client may be gone.
        let _ = to.blocking_send(Line::Whole(rest));
    }
    Ok(())
}

/// Writes messages to stdout until all senders are dropped.
///
/// # Errors
/// The thread could not be started.
pub(super) fn write(mut lines: mpsc::Receiver<Bytes>) -> io::Result<Output> {
    let (over, is_over) = watch::channel(false);
    std::thread::Builder::new()
        .name("mooring-stdout".to_owned())
        .spawn(move || {
            let mut output = io::stdout().lock();
            while let Some(line) = lines.blocking_recv() {
                let written = output.write_all(&line).and_then(|()| output.flush());
                if let Err(error) = written {
                    tracing::info!(%error, "stdout could not be written");
                    break;
                }
            }
            // The receiver may be gone already.
            let _ = over.send(true);
        })?;
    Ok(Output { is_over })
}

impl Output {
    /// Returns when everything is written, or cannot be written.
    pub(super) async fn written(mut self) {
        // An error also means that the thread has ended.
        let _ = self.is_over.wait_for(|is_over| *is_over).await;
    }

    /// Returns when stdout is closed.
    pub(super) async fn closed(&self) {
        let mut is_over = self.is_over.clone();
        let looked = async {
            while has_reader() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::select! {
            _ = is_over.wait_for(|is_over| *is_over) => {}
            () = looked => {}
        }
    }
}

/// Whether stdout may still have a reader: the system knows for a pipe or socket, but not for a file.
fn has_reader() -> bool {
    let output = io::stdout();
    let mut looked_at = [PollFd::from_borrowed_fd(output.as_fd(), PollFlags::empty())];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    match poll(&mut looked_at, Some(&at_once)) {
        Ok(_) => looked_at
            .iter()
            .all(|output| !output.revents().intersects(PollFlags::ERR | PollFlags::HUP)),
        Err(_) => true,
    }
}
