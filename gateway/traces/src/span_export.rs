//! The queue from the requests to the collector, and the task that empties it.
//!
//! Invariants: a request never waits for the queue, nor for the collector; what is dropped is counted, and logged at most
//! once in [`LOGGED_EVERY`]. The queue and one batch are all that is held.

use std::time::Duration;

use mooring_metrics::{self as metrics, SpanLoss};
use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter, SpanProcessor};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

/// Most spans that wait: a second of 500 calls a second.
const WAITING_MAX: usize = 4096;
/// Most spans that are sent at once.
const BATCH_MAX: usize = 512;
/// How long a span waits for others to be sent with.
const BATCH_WITHIN: Duration = Duration::from_millis(500);
/// Least time between two log lines about spans that were dropped.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

/// Takes the spans of requests.
#[derive(Clone, Debug)]
pub struct SpanQueue(mpsc::Sender<SpanData>);

/// Sends the spans of a queue with an exporter.
#[derive(Debug)]
pub struct SpanExport<E> {
    waiting: mpsc::Receiver<SpanData>,
    flushes: mpsc::Receiver<oneshot::Sender<()>>,
    exporter: E,
    losses: Losses,
}

/// Asks for what waits to be sent.
#[derive(Clone, Debug)]
pub struct ExportOutlet(mpsc::Sender<oneshot::Sender<()>>);

#[derive(Debug, Default)]
struct Losses {
    spans: usize,
    logged_at: Option<Instant>,
}

impl SpanQueue {
    /// A queue, and what sends its spans with `exporter`.
    pub fn new<E: SpanExporter>(exporter: E) -> (Self, SpanExport<E>, ExportOutlet) {
        let (queue, waiting) = mpsc::channel(WAITING_MAX);
        let (outlet, flushes) = mpsc::channel(1);
        let export = SpanExport {
            waiting,
            flushes,
            exporter,
            losses: Losses::default(),
        };
        (Self(queue), export, ExportOutlet(outlet))
    }
}

impl SpanProcessor for SpanQueue {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.0.try_send(span).is_err() {
            metrics::spans_dropped(SpanLoss::QueueFull, 1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl ExportOutlet {
    /// Waits, at most so long, until what was queued before is sent or dropped.
    pub async fn flush(&self, within: Duration) {
        let (done, flushed) = oneshot::channel();
        let flushing = async {
            if self.0.send(done).await.is_ok() {
                let _ = flushed.await;
            }
        };
        let _ = timeout(within, flushing).await;
    }
}

impl<E: SpanExporter> SpanExport<E> {
    /// Sends spans until its queue is gone.
    pub async fn run(mut self, resource: Resource) {
        self.exporter.set_resource(&resource);
        let mut batch = Vec::new();
        loop {
            let first = tokio::select! {
                received = self.waiting.recv_many(&mut batch, BATCH_MAX) => received,
                Some(done) = self.flushes.recv() => {
                    self.flush(done).await;
                    continue;
                }
            };
            if first == 0 {
                return;
            }
            let until = Instant::now() + BATCH_WITHIN;
            let asked = self.fill(&mut batch, until).await;
            self.export(std::mem::take(&mut batch)).await;
            if let Some(done) = asked {
                self.flush(done).await;
            }
        }
    }

    /// Adds what arrives until then. Returns early if the batch is full, or if it is asked to send what there is.
    async fn fill(
        &mut self,
        batch: &mut Vec<SpanData>,
        until: Instant,
    ) -> Option<oneshot::Sender<()>> {
        while batch.len() < BATCH_MAX {
            let room = BATCH_MAX.saturating_sub(batch.len());
            tokio::select! {
                received = self.waiting.recv_many(batch, room) => if received == 0 {
                    return None;
                },
                Some(done) = self.flushes.recv() => return Some(done),
                () = sleep_until(until) => return None,
            }
        }
        None
    }

    async fn flush(&mut self, done: oneshot::Sender<()>) {
        let mut left = self.waiting.len();
        while left > 0 {
            let mut batch = Vec::new();
            let sent = self
                .waiting
                .recv_many(&mut batch, left.min(BATCH_MAX))
                .await;
            left = left.saturating_sub(sent.max(1));
            self.export(batch).await;
        }
        let _ = done.send(());
    }

    async fn export(&mut self, batch: Vec<SpanData>) {
        let count = batch.len();
        match self.exporter.export(batch).await {
            Ok(()) => metrics::spans_exported(count),
            Err(error) => {
                metrics::spans_dropped(SpanLoss::ExportFailed, count);
                self.losses.note(count, &error);
            }
        }
    }
}

impl Losses {
    fn note(&mut self, count: usize, error: &dyn std::error::Error) {
        self.spans = self.spans.saturating_add(count);
        let is_due = |at: Instant| at.elapsed() >= LOGGED_EVERY;
        if self.logged_at.is_none_or(is_due) {
            self.logged_at = Some(Instant::now());
            let spans = std::mem::take(&mut self.spans);
            tracing::warn!(spans, %error, "spans not exported and dropped");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::sync::{Arc, Mutex};
    use std::time::SystemTime;

    use opentelemetry_sdk::error::OTelSdkError;

    use super::*;
    use crate::Tracer;

    /// Notes the size of each batch; it fails if it is to.
    #[derive(Clone, Debug, Default)]
    struct NotingExporter {
        batches: Arc<Mutex<Vec<usize>>>,
        fails: bool,
    }

    impl SpanExporter for NotingExporter {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.batches.lock().unwrap().push(batch.len());
            match self.fails {
                true => Err(OTelSdkError::InternalFailure("away".to_owned())),
                false => Ok(()),
            }
        }
    }

    fn record(tracer: &Tracer, count: usize) {
        for _ in 0..count {
            drop(tracer.begin_request(None, "test", SystemTime::now()));
        }
    }

    #[tokio::test]
    async fn spans_beyond_the_queue_are_dropped_and_the_others_are_sent() {
        for fails in [false, true] {
            let exporter = NotingExporter {
                fails,
                ..NotingExporter::default()
            };
            let batches = Arc::clone(&exporter.batches);
            let (queue, export, outlet) = SpanQueue::new(exporter);
            let tracer = Tracer::new(queue, 1.0, Resource::builder_empty().build());
            record(&tracer, WAITING_MAX + 10);
            assert_eq!(export.waiting.len(), WAITING_MAX);
            tokio::spawn(export.run(Resource::builder_empty().build()));
            outlet.flush(Duration::from_secs(60)).await;
            let sent: usize = batches.lock().unwrap().iter().sum();
            assert_eq!(sent, WAITING_MAX);
            assert!(
                batches
                    .lock()
                    .unwrap()
                    .iter()
                    .all(|batch| *batch <= BATCH_MAX)
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_span_waits_for_others_and_a_stop_for_nothing_that_hangs() {
        let exporter = NotingExporter::default();
        let batches = Arc::clone(&exporter.batches);
        let (queue, export, outlet) = SpanQueue::new(exporter);
        let tracer = Tracer::new(queue, 1.0, Resource::builder_empty().build());
        let running = tokio::spawn(export.run(Resource::builder_empty().build()));
        record(&tracer, 1);
        tokio::time::sleep(BATCH_WITHIN / 2).await;
        record(&tracer, 2);
        assert_eq!(*batches.lock().unwrap(), [0_usize; 0]);
        tokio::time::sleep(BATCH_WITHIN).await;
        assert_eq!(*batches.lock().unwrap(), [3]);
        running.abort();
        let _ = running.await;
        outlet.flush(Duration::from_secs(1)).await;
    }
}
