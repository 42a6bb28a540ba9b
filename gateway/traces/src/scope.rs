//! The span in which a task works now, under which other spans begin.
//!
//! Invariant: a scope is that of the future which was given it, also where several futures share a task.

use std::sync::Arc;

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, TraceContextExt as _, Tracer as _};
use opentelemetry_sdk::trace::{SdkTracer, Span as SdkSpan};
use tokio::task::futures::TaskLocalFuture;

use crate::remote_context::to_traceparent;
use crate::span::SpanPlace;

tokio::task_local! {
    static CURRENT: Option<TraceScope>;
}

/// A span as the parent of others, or the context of a trace that is not sampled. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TraceScope(Arc<ScopeState>);

#[derive(Debug)]
struct ScopeState {
    span: SpanContext,
    /// What children begin with, and `span` as their parent; none if they are not recorded.
    parent: Option<(SdkTracer, Context)>,
}

impl TraceScope {
    pub(crate) fn new(tracer: &SdkTracer, span: SpanContext) -> Self {
        let parent = span.is_sampled().then(|| {
            let context = Context::new().with_remote_span_context(span.clone());
            (tracer.clone(), context)
        });
        Self(Arc::new(ScopeState { span, parent }))
    }

    /// The scope of the future that runs now.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok().flatten()
    }

    /// Whether the spans of its trace are recorded.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.0.span.is_sampled()
    }

    /// The context for whom a request is sent to, as W3C Trace Context writes it.
    #[must_use]
    pub fn traceparent(&self) -> String {
        to_traceparent(&self.0.span)
    }

    /// The ids of trace and span for log lines; none if they are not recorded.
    #[must_use]
    pub fn log_ids(&self) -> Option<(String, String)> {
        let span = &self.0.span;
        (self.is_sampled()).then(|| (span.trace_id().to_string(), span.span_id().to_string()))
    }

    /// Begins a child; none if it is not recorded.
    pub(crate) fn begin(&self, place: SpanPlace) -> Option<(SdkSpan, SdkTracer)> {
        let (tracer, context) = self.0.parent.as_ref()?;
        let mut builder = tracer.span_builder(place.name).with_kind(place.kind);
        builder.start_time = place.started;
        let span = tracer.build_with_context(builder, context);
        Some((span, tracer.clone()))
    }
}

/// The future, with this scope wherever it runs.
pub fn in_scope<F: Future>(
    scope: Option<TraceScope>,
    future: F,
) -> TaskLocalFuture<Option<TraceScope>, F> {
    CURRENT.scope(scope, future)
}

/// The future, without a scope: it outlives the request that starts it, and what it does later is no part of that.
pub fn without_scope<F: Future>(future: F) -> TaskLocalFuture<Option<TraceScope>, F> {
    in_scope(None, future)
}

/// Calls `work` in this scope.
pub fn enter_scope<T>(scope: Option<TraceScope>, work: impl FnOnce() -> T) -> T {
    CURRENT.sync_scope(scope, work)
}

/// Begins a child of the span of the future that runs now; none if it is not recorded.
pub(crate) fn begin_child(place: SpanPlace) -> Option<(SdkSpan, SdkTracer)> {
    let begun = CURRENT.try_with(|scope| scope.as_ref()?.begin(place));
    begun.ok().flatten()
}
