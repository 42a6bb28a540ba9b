//! Spans of requests, made by hand where a request waits for something, and sent to a collector in the background.
//!
//! The [`Tracer`] begins the span of a request that arrives. While the request is served, its [`TraceScope`] is that of the
//! task ([`in_scope`]), and whatever the request starts as a task of its own inherits it. A [`Span`] that begins there is a
//! child. Sampling is decided once, where a trace begins: by its first sender, else here.
//!
//! Invariants: without a scope, and in one of a trace that is not sampled, a span is one look at a variable of the task and
//! allocates nothing. No request waits for the collector: spans that its queue has no room for are dropped and counted.
//! Spans have no arguments, results, user names or secrets; sessions are in them as the digests of the log.

pub mod attribute;
mod remote_context;
mod scope;
mod span;
mod span_export;
mod tracer;

pub use self::remote_context::RemoteContext;
pub use self::scope::{TraceScope, enter_scope, in_scope, without_scope};
pub use self::span::{Span, SpanPlace};
pub use self::span_export::{ExportOutlet, SpanExport, SpanQueue};
pub use self::tracer::{RequestTrace, Tracer};
pub use opentelemetry::trace::{SpanContext, SpanKind};
