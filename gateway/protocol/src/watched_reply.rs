//! Watches a reply to its last byte: how long it is, what it says and how it ends.
//!
//! Invariant: each watched reply is reported once, also if its reader drops it. Its bytes are not changed.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use futures_core::Stream;
use http::StatusCode;

use super::event::Event;
use super::reply::{ByteStream, EventStream, Reply, ReplyBody, ReplyError};
use super::response_outcome::{OutcomeScanner, ResponseOutcome};

/// With what a reply is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompleteWith {
    /// With the response to the request. The stream may stay open after it.
    Response,
    /// With the end of the stream.
    End,
}

/// How a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// It is complete.
    Complete,
    /// It broke.
    Broken,
    /// It ended without the response: the request was cancelled, or the client is to resume the stream.
    Unanswered,
    /// Its reader dropped it before its end.
    Abandoned,
}

/// The summary of a reply that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplySummary {
    /// Its status.
    pub status: StatusCode,
    /// The outcome of its response; none if it has no response.
    pub outcome: Option<ResponseOutcome>,
    /// The limit for which the gateway refuses the request.
    pub refused_by: Option<&'static str>,
    /// How it ended.
    pub end: BodyEnd,
    /// The bytes of its messages.
    pub bytes: u64,
    /// When its first message, or a part of it, arrived; none without a body.
    pub first_byte_at: Option<Instant>,
}

impl Reply {
    /// The same reply, which is reported when it has ended.
    #[must_use]
    pub fn watched(
        self,
        complete_with: CompleteWith,
        report: impl FnOnce(&ReplySummary) + Send + 'static,
    ) -> Self {
        let mut summary = ReplySummary {
            status: self.status,
            outcome: None,
            refused_by: self.refused_by,
            end: BodyEnd::Complete,
            bytes: 0,
            first_byte_at: None,
        };
        let body = match self.body {
            body @ (ReplyBody::Empty | ReplyBody::Json(_) | ReplyBody::Text(_)) => {
                if let ReplyBody::Json(text) | ReplyBody::Text(text) = &body {
                    summary.add(text.len());
                    summary.outcome = ResponseOutcome::of_message(text);
                }
                report(&summary);
                body
            }
            ReplyBody::JsonStream(stream) => ReplyBody::JsonStream(Box::pin(WatchedBody {
                stream,
                scanner: OutcomeScanner::default(),
                watch: Watch::new(summary, complete_with, report),
            })),
            ReplyBody::Events(stream) => ReplyBody::Events(Box::pin(WatchedBody {
                stream,
                scanner: OutcomeScanner::default(),
                watch: Watch::new(summary, complete_with, report),
            })),
        };
        Self { body, ..self }
    }
}

impl ReplySummary {
    fn add(&mut self, bytes: usize) {
        self.first_byte_at.get_or_insert_with(Instant::now);
        self.bytes = self
            .bytes
            .saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }
}

/// Receives the summary of a reply.
type Report = Box<dyn FnOnce(&ReplySummary) + Send>;

/// A report that is still to be made.
struct Watch {
    summary: ReplySummary,
    complete_with: CompleteWith,
    report: Option<Report>,
}

impl Watch {
    fn new(
        summary: ReplySummary,
        complete_with: CompleteWith,
        report: impl FnOnce(&ReplySummary) + Send + 'static,
    ) -> Self {
        Self {
            summary,
            complete_with,
            report: Some(Box::new(report)),
        }
    }

    fn end(&mut self, end: BodyEnd) {
        if let Some(report) = self.report.take() {
            self.summary.end = end;
            report(&self.summary);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end(BodyEnd::Abandoned);
    }
}

/// A body, and the watch on it.
struct WatchedBody<S> {
    stream: S,
    /// Of the chunks of a JSON text.
    scanner: OutcomeScanner,
    watch: Watch,
}

impl Stream for WatchedBody<ByteStream> {
    type Item = Result<Bytes, ReplyError>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, ReplyError>>> {
        let this = &mut *self;
        let next = this.stream.as_mut().poll_next(context);
        match &next {
            Poll::Pending => {}
            Poll::Ready(Some(Ok(chunk))) => {
                this.watch.summary.add(chunk.len());
                this.scanner.push(chunk);
            }
            Poll::Ready(Some(Err(_))) => this.watch.end(BodyEnd::Broken),
            Poll::Ready(None) => {
                this.watch.summary.outcome = this.scanner.outcome();
                this.watch.end(BodyEnd::Complete);
            }
        }
        next
    }
}

impl Stream for WatchedBody<EventStream> {
    type Item = Result<Event, ReplyError>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Event, ReplyError>>> {
        let watch = &mut self.watch;
        let expects_response = watch.complete_with == CompleteWith::Response;
        let next = self.stream.as_mut().poll_next(context);
        let watch = &mut self.watch;
        match &next {
            Poll::Pending => {}
            Poll::Ready(Some(Ok(event))) => {
                if let Some(message) = event.as_message() {
                    watch.summary.add(message.len());
                    if expects_response && let Some(outcome) = ResponseOutcome::of_message(message)
                    {
                        watch.summary.outcome = Some(outcome);
                        watch.end(BodyEnd::Complete);
                    }
                }
            }
            Poll::Ready(Some(Err(_))) => watch.end(BodyEnd::Broken),
            Poll::Ready(None) if expects_response => watch.end(BodyEnd::Unanswered),
            Poll::Ready(None) => watch.end(BodyEnd::Complete),
        }
        next
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::sync::mpsc::{Receiver, channel};

    use futures_util::{StreamExt, stream};

    use super::*;

    fn watched(reply: Reply, complete_with: CompleteWith) -> (Reply, Receiver<ReplySummary>) {
        let (sender, receiver) = channel();
        let reply = reply.watched(complete_with, move |summary| sender.send(*summary).unwrap());
        (reply, receiver)
    }

    fn events(texts: &'static [&'static str]) -> Reply {
        Reply::events(stream::iter(
            texts.iter().map(|text| Ok(Event::message(*text))),
        ))
    }

    #[tokio::test]
    async fn a_whole_reply_is_reported_at_once() {
        let (_, report) = watched(
            Reply::json(StatusCode::OK, r#"{"result":{"isError":true}}"#),
            CompleteWith::Response,
        );
        let summary = report.try_recv().unwrap();
        assert_eq!(summary.outcome, Some(ResponseOutcome::ToolError));
        assert_eq!((summary.end, summary.bytes), (BodyEnd::Complete, 27));
    }

    #[tokio::test]
    async fn a_stream_is_reported_with_its_response_though_it_stays_open() {
        let texts = &[r#"{"method":"x"}"#, r#"{"id":1,"result":{}}"#, "{}"];
        let (reply, report) = watched(events(texts), CompleteWith::Response);
        let ReplyBody::Events(mut stream) = reply.body else {
            unreachable!()
        };
        stream.next().await.unwrap().unwrap();
        assert!(report.try_recv().is_err());
        stream.next().await.unwrap().unwrap();
        let summary = report.try_recv().unwrap();
        assert_eq!(summary.outcome, Some(ResponseOutcome::Result));
        assert_eq!((summary.end, summary.bytes), (BodyEnd::Complete, 34));
        assert!(stream.next().await.is_some(), "the rest is passed on");
    }

    #[tokio::test]
    async fn every_other_end_is_told_from_a_response() {
        let (reply, report) = watched(events(&["{}"]), CompleteWith::Response);
        drop(reply);
        assert_eq!(report.try_recv().unwrap().end, BodyEnd::Abandoned);

        let (reply, report) = watched(events(&["{}"]), CompleteWith::Response);
        let ReplyBody::Events(stream) = reply.body else {
            unreachable!()
        };
        assert_eq!(stream.count().await, 1);
        assert_eq!(report.try_recv().unwrap().end, BodyEnd::Unanswered);

        let (reply, report) = watched(events(&["{}"]), CompleteWith::End);
        let ReplyBody::Events(stream) = reply.body else {
            unreachable!()
        };
        assert_eq!(stream.count().await, 1);
        assert_eq!(report.try_recv().unwrap().end, BodyEnd::Complete);

        let chunks = [Ok("{\"error\":{\"co".into()), Ok("de\":-1}}".into())];
        let body = ReplyBody::JsonStream(Box::pin(stream::iter(chunks)));
        let (reply, report) = watched(Reply::new(StatusCode::OK, body), CompleteWith::Response);
        reply.read_text(100).await.unwrap();
        let summary = report.try_recv().unwrap();
        assert_eq!(summary.outcome, Some(ResponseOutcome::Error(Some(-1))));
    }
}
