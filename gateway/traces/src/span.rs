//! One span: what was waited for, from when to when, and how that ended.
//!
//! Invariant: a span that is not recorded allocates nothing and changes nothing.

use std::borrow::Cow;
use std::time::SystemTime;

use opentelemetry::trace::{Span as _, SpanContext, SpanKind, Status, TraceState};
use opentelemetry::{KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::{SdkTracer, Span as SdkSpan};

use crate::attribute::ERROR_TYPE;
use crate::remote_context::RemoteContext;
use crate::scope::{TraceScope, begin_child};

/// Most bytes of a text in an attribute or a name. Tools and instances have names of servers and settings.
const TEXT_BYTES_MAX: usize = 256;

/// Where a span begins.
#[derive(Debug)]
pub struct SpanPlace {
    /// What is done, of few words.
    pub name: &'static str,
    /// On which side of an exchange.
    pub kind: SpanKind,
    /// When it began; none for now.
    pub started: Option<SystemTime>,
}

/// A span, which ends when it is dropped; or none, if its trace is not recorded.
#[derive(Debug, Default)]
#[must_use = "it ends when it is dropped"]
pub struct Span(Option<Box<RecordedSpan>>);

#[derive(Debug)]
struct RecordedSpan {
    span: SdkSpan,
    tracer: SdkTracer,
}

impl Span {
    /// Begins a child of the span in whose scope the caller runs.
    pub fn begin(name: &'static str, kind: SpanKind) -> Self {
        Self::begin_at(SpanPlace {
            name,
            kind,
            started: None,
        })
    }

    /// The same of something that has begun before.
    pub fn begin_at(place: SpanPlace) -> Self {
        Self::recorded(begin_child(place))
    }

    pub(crate) fn recorded(begun: Option<(SdkSpan, SdkTracer)>) -> Self {
        Self(begun.map(|(span, tracer)| Box::new(RecordedSpan { span, tracer })))
    }

    /// Whether it is recorded. What is costly to say of it need not be computed otherwise.
    #[must_use]
    pub const fn is_recorded(&self) -> bool {
        self.0.is_some()
    }

    /// Names it.
    pub fn rename(&mut self, name: impl Into<Cow<'static, str>>) {
        if let Some(recorded) = &mut self.0 {
            recorded.span.update_name(name.into());
        }
    }

    /// Names it by these words; a long name is cut.
    pub fn rename_to(&mut self, words: &[&str]) {
        if self.is_recorded() {
            let mut name = words.join(" ");
            name.truncate(name.floor_char_boundary(TEXT_BYTES_MAX));
            self.rename(name);
        }
    }

    /// Says something of it: see [`crate::attribute`].
    pub fn note(&mut self, key: &'static str, value: impl Into<Value>) {
        if let Some(recorded) = &mut self.0 {
            recorded.span.set_attribute(KeyValue::new(key, value));
        }
    }

    /// The same with a text that is copied, and cut if it is long.
    pub fn note_text(&mut self, key: &'static str, text: &str) {
        if self.is_recorded() {
            let end = text.floor_char_boundary(TEXT_BYTES_MAX);
            let text = text.get(..end).unwrap_or_default();
            self.note(key, StringValue::from(text.to_owned()));
        }
    }

    /// The same with a number; one that does not fit is the largest.
    pub fn note_count(&mut self, key: &'static str, count: u64) {
        self.note(key, i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// It failed with this type of error.
    pub fn fail(&mut self, error_type: impl Into<StringValue>) {
        if let Some(recorded) = &mut self.0 {
            // The description would be a message of a server, which may have content in it.
            recorded.span.set_status(Status::error(""));
            let error_type = Value::String(error_type.into());
            recorded
                .span
                .set_attribute(KeyValue::new(ERROR_TYPE, error_type));
        }
    }

    /// Relates it to a span of another trace.
    pub fn link(&mut self, other: &SpanContext) {
        if let Some(recorded) = &mut self.0 {
            recorded.span.add_link(other.clone(), Vec::new());
        }
    }

    /// Relates it to a span of a sender that is not its parent.
    pub fn link_remote(&mut self, other: &RemoteContext) {
        self.link(other.span_context());
    }

    /// Its scope, in which its children begin; none if it is not recorded.
    #[must_use]
    pub fn scope(&self) -> Option<TraceScope> {
        let recorded = self.0.as_ref()?;
        let context = recorded.span.span_context().clone();
        Some(TraceScope::new(&recorded.tracer, context))
    }

    /// Its ids, for links; none if it is not recorded.
    #[must_use]
    pub fn context(&self) -> Option<SpanContext> {
        let context = self.0.as_ref()?.span.span_context();
        Some(SpanContext::new(
            context.trace_id(),
            context.span_id(),
            context.trace_flags(),
            false,
            TraceState::NONE,
        ))
    }
}
