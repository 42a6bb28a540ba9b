//! Begins the span of a request that arrives from outside.

use std::time::SystemTime;

use opentelemetry::trace::{Span as _, SpanKind, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};

use crate::remote_context::RemoteContext;
use crate::scope::TraceScope;
use crate::span::{Span, SpanPlace};
use crate::span_export::SpanQueue;

/// The name of this instrumentation.
const SCOPE_NAME: &str = "mooring";

/// Begins traces. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tracer(SdkTracer);

/// The trace of a request.
#[derive(Debug, Default)]
pub struct RequestTrace {
    /// The request's own span, which ends with its reply.
    pub span: Span,
    /// The scope in which it is served. Also of a trace that begins here and is not sampled, so that others do not sample
    /// what follows; none if its sender has decided so, whose context is forwarded unchanged.
    pub scope: Option<TraceScope>,
}

impl Tracer {
    /// Sends what it records to `queue`. Of the requests whose sender has not decided, it records this part, from 0 to 1.
    #[must_use]
    pub fn new(queue: SpanQueue, sample_ratio: f64, resource: Resource) -> Self {
        let provider = SdkTracerProvider::builder()
            .with_span_processor(queue)
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(
                sample_ratio,
            ))))
            .with_resource(resource)
            .build();
        let version = env!("CARGO_PKG_VERSION");
        let scope = opentelemetry::InstrumentationScope::builder(SCOPE_NAME)
            .with_version(version)
            .build();
        Self(provider.tracer_with_scope(scope))
    }

    /// What identifies this process among those that send spans.
    #[must_use]
    pub fn resource(
        service_name: &str,
        instance: &str,
        others: impl IntoIterator<Item = (String, String)>,
    ) -> Resource {
        let own = [
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", instance.to_owned()),
        ];
        let others = others
            .into_iter()
            .map(|(name, value)| KeyValue::new(name, value));
        Resource::builder_empty()
            .with_attributes(own)
            .with_attributes(others)
            .with_service_name(service_name.to_owned())
            .build()
    }

    /// Begins the span of a request, as a child of its sender's if that has sent one.
    pub fn begin_request(
        &self,
        parent: Option<&RemoteContext>,
        name: &'static str,
        started: SystemTime,
    ) -> RequestTrace {
        let parent = match parent {
            Some(parent) if !parent.is_sampled() => return RequestTrace::default(),
            Some(parent) => TraceScope::new(&self.0, parent.span_context().clone()),
            None => return self.begin_trace(name, started),
        };
        let place = SpanPlace {
            name,
            kind: SpanKind::Server,
            started: Some(started),
        };
        let span = Span::recorded(parent.begin(place));
        let scope = span.scope();
        RequestTrace { span, scope }
    }

    fn begin_trace(&self, name: &'static str, started: SystemTime) -> RequestTrace {
        let tracer = &self.0;
        let builder = tracer.span_builder(name).with_kind(SpanKind::Server);
        let builder = builder.with_start_time(started);
        let span = tracer.build_with_context(builder, &Context::new());
        let scope = TraceScope::new(tracer, span.span_context().clone());
        RequestTrace {
            span: Span::recorded(span.is_recording().then(|| (span, tracer.clone()))),
            scope: Some(scope),
        }
    }
}
