//! The spans that last used bindings, to which the span of a rebind is linked: the trace of the call that meets a loss has
//! nothing of the calls whose state is lost.
//!
//! Invariant: only what this gateway has recorded lately is here, in bounded memory; without traces, nothing is.

use std::sync::{Mutex, PoisonError};

use mooring_session::names::ServerName;
use mooring_session::view::BindingView;

use super::{Session, SessionRouter};
use mooring_store::SessionKey;
use mooring_traces::{Span, SpanContext};
use mooring_usage::BoundedCache;

/// Most bindings whose last span is kept: about a megabyte.
const BINDINGS_MAX: usize = 4096;

/// The last span of each binding, by session and server, with the epoch of the binding.
#[derive(Debug)]
pub(super) struct BindingSpans(Mutex<BoundedCache<(SessionKey, ServerName), (u64, SpanContext)>>);

impl Default for BindingSpans {
    fn default() -> Self {
        Self(Mutex::new(BoundedCache::new(BINDINGS_MAX)))
    }
}

impl SessionRouter {
    /// A message of this span was answered over the binding.
    pub(crate) fn note_use_in_trace(
        &self,
        session: &Session,
        binding: &BindingView,
        span: SpanContext,
    ) {
        let key = (session.key.clone(), binding.server.clone());
        let spans = &self.0.binding_spans.0;
        let mut spans = spans.lock().unwrap_or_else(PoisonError::into_inner);
        spans.insert(key, (binding.epoch, span));
    }

    /// Links `span` to the one that last used the binding of this epoch, if that is known here.
    pub(super) fn link_last_use(
        &self,
        session: &Session,
        server: &ServerName,
        epoch: u64,
        span: &mut Span,
    ) {
        if !span.is_recorded() {
            return;
        }
        let key = (session.key.clone(), server.clone());
        let spans = &self.0.binding_spans.0;
        let spans = spans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, context)) = spans.peek(&key)
            && *of == epoch
        {
            span.link(context);
        }
    }
}
