//! The callee of a run's nested calls: other servers over the session's own bindings, or the record of an earlier run.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use serde_json::Value;
use tokio::sync::OnceCell;

use super::code_server::{CallContext, CodeServer};
use super::run::{CallTarget, Run};
use super::session::ResolvedSession;
use crate::calls::{CallError, Callee, ForwardingCallee, NestedCall};
use crate::replay::FromRecord;
use crate::tokens::{Tokenizer, TokenizingCallee};

/// The callee that answers a run's nested calls.
#[derive(Debug)]
pub(super) enum RunCallee {
    /// The tools, with personal data in results replaced by tokens if the session has some.
    Tools(Box<TokenizingCallee<ForwardingCallee>>),
    Record(Arc<FromRecord>),
}

impl Callee for RunCallee {
    async fn call(&self, call: NestedCall) -> Result<Value, CallError> {
        match self {
            Self::Tools(tools) => tools.call(call).await,
            Self::Record(record) => record.call(call).await,
        }
    }
}

impl CodeServer {
    /// Creates the callee of this run.
    pub(super) fn callee(
        &self,
        context: &CallContext,
        known: &ResolvedSession,
        run: &Run,
        tokenizer: Option<Arc<Tokenizer>>,
    ) -> RunCallee {
        if let CallTarget::Record(record) = &run.calls {
            return RunCallee::Record(Arc::clone(record));
        }
        let forwarding = ForwardingCallee {
            session: known.session.clone(),
            language: run.language,
            upstreams: Arc::clone(&context.upstreams),
            policy: self.policy.calls.clone(),
            mounted: known.mounted.clone(),
            code_servers: Arc::clone(&self.services.ids),
            client: context.client.clone(),
            run_id: run.record.id.as_str().into(),
            calls: AtomicU64::new(0),
            initialize_params: OnceCell::new(),
            lost: run.lost.clone(),
        };
        RunCallee::Tools(Box::new(TokenizingCallee {
            tokenizer,
            below: forwarding,
        }))
    }
}
