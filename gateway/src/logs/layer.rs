//! Events become lines: formatted where they happen, then counted by their kind, then queued for the thread that writes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::stdio::stderr;
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use mooring_metrics as metrics;

use super::line::{LineFields, LineFormat};
use super::queue::{LineBatch, LineQueue};
use super::repeats::{LineKind, RepeatedLine, Repeats};

/// How often counted lines are reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The subscriber's layer. Clones are the same log.
#[derive(Clone, Debug)]
pub(super) struct LogLayer(Arc<Log>);

#[derive(Debug)]
struct Log {
    format: LineFormat,
    repeats: Mutex<Repeats>,
    queue: LineQueue,
}

impl LogLayer {
    /// A log that nothing writes yet.
    pub(super) fn new(format: LineFormat) -> Self {
        Self(Arc::new(Log {
            format,
            repeats: Mutex::default(),
            queue: LineQueue::default(),
        }))
    }

    /// Starts the thread that writes to stderr.
    pub(super) fn start_writer(&self) -> std::io::Result<()> {
        let log = Arc::clone(&self.0);
        std::thread::Builder::new()
            .name("mooring-log".to_owned())
            .spawn(move || log.write_queued())
            .map(drop)
    }

    /// Writes a line that is no log line after those before it, and drops it never.
    pub(super) fn print(&self, line: &str) {
        self.0.queue.push_always(line);
    }

    /// Waits, at most so long, until all lines are written, those that were counted too.
    pub(super) fn flush(&self, within: Duration) {
        self.0.queue_counted();
        self.0.queue.wait_until_written(within);
    }
}

impl Log {
    fn record(&self, event: &Event<'_>, line: RepeatedLine) {
        let kind = LineKind {
            callsite: event.metadata().callsite(),
            server: line.fields.server().map(str::to_owned),
        };
        let mut repeats = self.repeats.lock().unwrap_or_else(PoisonError::into_inner);
        let admitted = repeats.admit(kind, line, Instant::now());
        drop(repeats);
        match admitted {
            Some(line) => self
                .queue
                .push(&line.fields.to_line(line.level, line.target)),
            None => metrics::log_line_lost(metrics::LogLoss::Repeated),
        }
    }

    fn queue_counted(&self) {
        let mut repeats = self.repeats.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = repeats.take_counted(Instant::now());
        drop(repeats);
        for mut line in counted {
            line.fields.push_number("repeated", line.count);
            self.queue
                .push(&line.fields.to_line(line.level, line.target));
        }
    }

    /// The writer's thread.
    fn write_queued(&self) {
        let mut reported_at = Instant::now();
        loop {
            let LineBatch { lines, dropped } = self.queue.take(REPORT_INTERVAL);
            // If nobody can ever read them, nothing is left to tell that to.
            let _ = write_to_stderr(lines.as_bytes());
            if dropped > 0 {
                let _ = write_to_stderr(self.dropped_line(dropped).as_bytes());
            }
            if reported_at.elapsed() >= REPORT_INTERVAL {
                reported_at = Instant::now();
                self.queue_counted();
            }
        }
    }

    fn dropped_line(&self, dropped: u64) -> String {
        let mut fields = LineFields::new(self.format);
        fields.push_message(format_args!("log lines were dropped: stderr was not read"));
        fields.push_number("dropped", dropped);
        fields.to_line(Level::WARN, module_path!())
    }
}

/// Writes everything, however long that takes.
fn write_to_stderr(mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(stderr(), bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            // Another process that shares it has made it non-blocking.
            Err(Errno::AGAIN) => {
                poll(
                    &mut [PollFd::from_borrowed_fd(stderr(), PollFlags::OUT)],
                    None,
                )?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for LogLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut fields = LineFields::new(self.0.format);
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = LineFields::new(self.0.format);
        event.record(&mut fields);
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(of_span) = span.extensions().get::<LineFields>() {
                fields.append(of_span);
            }
        }
        let metadata = event.metadata();
        self.0.record(
            event,
            RepeatedLine {
                level: *metadata.level(),
                target: metadata.target(),
                fields,
                count: 1,
            },
        );
    }
}
