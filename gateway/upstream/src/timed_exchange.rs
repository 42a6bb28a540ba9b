//! Measures one exchange with an instance, and traces it, up to the last byte of its reply, whichever task reads that.

use super::message_span::note_reply;
use mooring_metrics::{ExchangeOutcome, ExchangeTimer};
use mooring_protocol::{BodyEnd, CompleteWith, Method, Reply, ReplySummary, ResponseOutcome};
use mooring_traces::{Span, SpanContext, TraceScope};

/// An exchange that has begun.
#[derive(Debug)]
#[must_use = "dropped, it was an exchange without a reply"]
pub struct TimedExchange {
    /// None once there is a reply.
    timer: Option<ExchangeTimer>,
    span: Span,
}

impl TimedExchange {
    pub(crate) fn begin(server: &str, instance: &str, method: Method, span: Span) -> Self {
        Self {
            timer: Some(ExchangeTimer::of_upstream(server, instance, method.label())),
            span,
        }
    }

    /// The scope of what is done for it; none if it is not traced.
    #[must_use]
    pub fn scope(&self) -> Option<TraceScope> {
        self.span.scope()
    }

    /// The ids of its span; none if it is not traced.
    #[must_use]
    pub fn span(&self) -> Option<SpanContext> {
        self.span.context()
    }

    /// The reply, measured to its end.
    pub fn watch(mut self, reply: Reply) -> Reply {
        let Some(timer) = self.timer.take() else {
            return reply;
        };
        let mut span = std::mem::take(&mut self.span);
        reply.watched(CompleteWith::Response, move |summary| {
            note_reply(&mut span, summary);
            let status = summary.status.as_u16();
            timer.end(summary.first_byte_at, status, exchange_outcome(summary));
        })
    }
}

/// There was no reply.
impl Drop for TimedExchange {
    fn drop(&mut self) {
        if let Some(timer) = &self.timer {
            timer.end(None, 0, ExchangeOutcome::NoReply);
            self.span
                .fail(<&'static str>::from(ExchangeOutcome::NoReply));
        }
    }
}

/// The outcome of an exchange with this reply.
#[must_use]
pub fn exchange_outcome(reply: &ReplySummary) -> ExchangeOutcome {
    match (reply.end, reply.outcome) {
        _ if reply.status.is_server_error() => ExchangeOutcome::Failed,
        _ if reply.status.is_client_error() => ExchangeOutcome::Refused,
        (BodyEnd::Broken, _) => ExchangeOutcome::Broken,
        (BodyEnd::Unanswered, _) => ExchangeOutcome::Unanswered,
        (BodyEnd::Abandoned, _) => ExchangeOutcome::Abandoned,
        (BodyEnd::Complete, Some(ResponseOutcome::ToolError)) => ExchangeOutcome::ToolError,
        (BodyEnd::Complete, Some(ResponseOutcome::Error(_))) => ExchangeOutcome::Error,
        (BodyEnd::Complete, Some(ResponseOutcome::Result) | None) => ExchangeOutcome::Ok,
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[test]
    fn a_tool_error_is_no_success_and_a_status_counts_first() {
        #[track_caller]
        fn check(
            status: StatusCode,
            outcome: Option<ResponseOutcome>,
            end: BodyEnd,
            expected: ExchangeOutcome,
        ) {
            let summary = ReplySummary {
                status,
                outcome,
                refused_by: None,
                end,
                bytes: 0,
                first_byte_at: None,
            };
            assert_eq!(exchange_outcome(&summary), expected);
        }
        use ResponseOutcome as R;
        let (ok, complete) = (StatusCode::OK, BodyEnd::Complete);
        check(ok, Some(R::Result), complete, ExchangeOutcome::Ok);
        check(StatusCode::ACCEPTED, None, complete, ExchangeOutcome::Ok);
        check(ok, Some(R::ToolError), complete, ExchangeOutcome::ToolError);
        check(ok, Some(R::Error(None)), complete, ExchangeOutcome::Error);
        check(ok, None, BodyEnd::Broken, ExchangeOutcome::Broken);
        check(ok, None, BodyEnd::Abandoned, ExchangeOutcome::Abandoned);
        let error = Some(R::Error(Some(-32001)));
        check(
            StatusCode::NOT_FOUND,
            error,
            complete,
            ExchangeOutcome::Refused,
        );
        let broken = BodyEnd::Broken;
        check(
            StatusCode::BAD_GATEWAY,
            None,
            broken,
            ExchangeOutcome::Failed,
        );
    }
}
