//! Standard input and output, each with a thread of its own: reading and writing them may block for as long as the client
//! likes, and a thread that blocks must not keep the process from ending.
//!
//! Invariant: a line is written whole and at once, in the order in which it was handed over.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::{mpsc, watch};

use mooring_upstream::stdio::{Lines, LongLinePolicy};

/// How much is read at once.
const READ_BYTES: usize = 64 * 1024;
/// How often is looked whether somebody still reads standard output.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What was read.
#[derive(Debug)]
pub(super) enum Line {
    /// A line, without its end.
    Whole(Bytes),
    /// A line that was longer than may be; it was skipped.
    TooLong,
}

/// Standard output, as it is written.
pub(super) struct Output {
    is_over: watch::Receiver<bool>,
}

/// Reads standard input until its end, in lines of at most `bytes_max` bytes.
///
/// # Errors
/// The thread cannot be started.
pub(super) fn read(lines: mpsc::Sender<Line>, bytes_max: usize) -> io::Result<()> {
    std::thread::Builder::new()
        .name("mooring-stdin".to_owned())
        .spawn(move || {
            if let Err(error) = read_all(&lines, bytes_max) {
                tracing::error!(%error, "standard input cannot be read");
            }
        })
        .map(drop)
}

fn read_all(to: &mpsc::Sender<Line>, bytes_max: usize) -> io::Result<()> {
    let mut input = io::stdin().lock();
    // One byte more tells a line that is too long from the longest.
    let mut lines = Lines::new(bytes_max.saturating_add(1), LongLinePolicy::Cut);
    let mut chunk = vec![0; READ_BYTES];
    let pass_on = |line: Bytes| {
        let line = if line.len() > bytes_max {
            Line::TooLong
        } else {
            Line::Whole(line)
        };
        to.blocking_send(line).is_ok()
    };
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
        // No line is refused where long ones are cut.
        while let Ok(Some(line)) = lines.next_line() {
            if !pass_on(line) {
                return Ok(());
            }
        }
    }
    if let Some(rest) = lines.rest() {
        pass_on(rest);
    }
    Ok(())
}

/// Writes what it is given to standard output, until nobody is left who could give it more.
///
/// # Errors
/// The thread cannot be started.
pub(super) fn write(mut lines: mpsc::Receiver<Bytes>) -> io::Result<Output> {
    let (over, is_over) = watch::channel(false);
    std::thread::Builder::new()
        .name("mooring-stdout".to_owned())
        .spawn(move || {
            let mut output = io::stdout().lock();
            while let Some(line) = lines.blocking_recv() {
                let written = output.write_all(&line).and_then(|()| output.flush());
                if let Err(error) = written {
                    tracing::info!(%error, "standard output cannot be written to");
                    break;
                }
            }
            // Whoever waited for it may have gone.
            let _ = over.send(true);
        })?;
    Ok(Output { is_over })
}

impl Output {
    /// Returns when all was written, or cannot be.
    pub(super) async fn written(mut self) {
        // An error says the same: the thread has ended.
        let _ = self.is_over.wait_for(|is_over| *is_over).await;
    }

    /// Returns when nobody reads standard output any more.
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

/// Whether somebody may still read standard output: of a pipe and a socket the system tells, of a file nobody can.
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
