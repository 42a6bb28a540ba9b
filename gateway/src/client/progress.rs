//! Progress of long work on stderr, and its interruption.

use std::io::{IsTerminal, Write};
use std::time::Duration;

/// A person has pressed Ctrl-C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interruption;

/// One line that is written over; nothing where stderr is no terminal.
#[derive(Debug, Default)]
pub(super) struct Progress {
    is_shown: bool,
}

impl Progress {
    /// Shows the text in place of the last one.
    pub(super) fn show(&mut self, text: &str) {
        let mut stderr = std::io::stderr();
        if stderr.is_terminal() {
            self.is_shown = true;
            // A terminal that cannot be written to shows no progress.
            let _ = write!(stderr, "\r\x1b[K{text}");
            let _ = stderr.flush();
        }
    }

    /// Ends the line.
    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = writeln!(std::io::stderr());
        }
    }

    /// Waits for so long.
    ///
    /// # Errors
    /// A person has pressed Ctrl-C meanwhile; the line is ended.
    pub(super) async fn pause(&mut self, time: Duration) -> Result<(), Interruption> {
        self.unless_interrupted(tokio::time::sleep(time)).await
    }

    /// Waits for the work.
    ///
    /// # Errors
    /// A person has pressed Ctrl-C meanwhile; the line is ended.
    pub(super) async fn unless_interrupted<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> Result<T, Interruption> {
        tokio::select! {
            done = work => Ok(done),
            // Without a handler Ctrl-C ends the process, which is an interruption too.
            Ok(()) = tokio::signal::ctrl_c() => {
                self.end();
                Err(Interruption)
            }
        }
    }
}
