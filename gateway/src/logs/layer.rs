//! Events become lines: counted by their kind, formatted where they happen, then queued for the thread that writes.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::stdio::stderr;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use mooring_admin::AUDIT_TARGET;
use mooring_metrics as metrics;
use mooring_traces::TraceScope;

use super::line::{LineFields, LineFormat, SERVER_FIELD, USER_FIELD};
use super::queue::{LineBatch, LineQueue};
use super::repeats::{Admission, LineKind, RepeatedLine, Repeats};
use super::value::escape_value;

/// How often counted lines are reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The subscriber's layer. Clones are the same log.
#[derive(Clone, Debug)]
pub(super) struct LogLayer(Arc<Log>);

#[derive(Debug)]
struct Log {
    format: LineFormat,
    /// The target whose lines are all written; none if there is no such.
    unlimited: Option<&'static str>,
    repeats: Mutex<Repeats>,
    queue: LineQueue,
}

impl LogLayer {
    /// A log that nothing writes yet. Lines of the target `unlimited` are written however many there are.
    pub(super) fn new(format: LineFormat, unlimited: Option<&'static str>) -> Self {
        Self(Arc::new(Log {
            format,
            unlimited,
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
    fn repeats(&self) -> MutexGuard<'_, Repeats> {
        self.repeats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An act is never without its audit line.
    fn is_unlimited(&self, target: &str) -> bool {
        target == AUDIT_TARGET || self.unlimited == Some(target)
    }

    fn queue_counted(&self) {
        let counted = self.repeats().take_counted(Instant::now());
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
            // If stderr cannot be written, there is nowhere to report it.
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
        let spans = || context.event_scope(event).into_iter().flatten();
        let mut subject = LineSubject::default();
        event.record(&mut subject);
        let of_span = || {
            spans().find_map(|span| {
                let extensions = span.extensions();
                let fields = extensions.get::<LineFields>()?;
                fields.server().map(str::to_owned)
            })
        };
        let metadata = event.metadata();
        let mut kind = LineKind {
            callsite: metadata.callsite(),
            server: subject.server.or_else(of_span),
            user: subject.user,
        };
        let admission = match self.0.is_unlimited(metadata.target()) {
            true => Admission::Written,
            false => self.0.repeats().admit(&mut kind, Instant::now()),
        };
        if admission != Admission::Written {
            metrics::log_line_lost(metrics::LogLoss::Repeated);
        }
        if admission == Admission::Counted {
            return;
        }
        let mut fields = LineFields::new(self.0.format);
        event.record(&mut fields);
        for span in spans() {
            if let Some(of_span) = span.extensions().get::<LineFields>() {
                fields.append(of_span);
            }
        }
        if let Some((trace, span)) = TraceScope::current().and_then(|scope| scope.log_ids()) {
            fields.push_text("trace_id", &trace);
            fields.push_text("span_id", &span);
        }
        let (level, target) = (*metadata.level(), metadata.target());
        if target == AUDIT_TARGET {
            return self.0.queue.push_always(&fields.to_line(level, target));
        }
        if admission == Admission::Written {
            return self.0.queue.push(&fields.to_line(level, target));
        }
        let line = RepeatedLine {
            level,
            target,
            fields,
            count: 0,
        };
        self.0.repeats().describe(&kind, line);
    }
}

/// The subject of an event.
#[derive(Default)]
struct LineSubject {
    server: Option<String>,
    user: Option<String>,
}

impl Visit for LineSubject {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let subject = match field.name() {
            SERVER_FIELD => &mut self.server,
            USER_FIELD => &mut self.user,
            _ => return,
        };
        *subject = Some(escape_value(field.name(), format_args!("{value:?}")));
    }
}
