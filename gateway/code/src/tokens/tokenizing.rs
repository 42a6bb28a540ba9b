//! The two layers of nested calls that know tokens. The upper one turns values to tokens in arguments, before they are
//! recorded; the lower one turns tokens to values on the way to a tool, and values to tokens on the way back, in results and
//! in the messages of errors.
//!
//! Invariant: where tokens cannot be kept or looked up, the tool is not called, or its answer does not come back.

use std::sync::Arc;

use serde_json::Value;
use tokio::task::spawn_blocking;

use super::{Tokenizer, TokensError};
use crate::calls::{CallError, CallErrorKind, Callee, NestedCall};

/// Resolves tokens in arguments before the inner callee is called, and tokenizes its results and error messages.
#[derive(Debug)]
pub(crate) struct TokenizingCallee<C> {
    /// None if the session has no tokens: then it passes everything on.
    pub(crate) tokenizer: Option<Arc<Tokenizer>>,
    pub(crate) below: C,
}

/// Works with the tokens on a thread that may block.
async fn work<T: Send + 'static>(
    tokenizer: &Arc<Tokenizer>,
    work: impl FnOnce(&Tokenizer) -> Result<T, TokensError> + Send + 'static,
) -> Result<T, TokensError> {
    let tokenizer = Arc::clone(tokenizer);
    let done = spawn_blocking(move || work(&tokenizer)).await;
    done.unwrap_or(Err(TokensError::GivenUp))
}

impl<C: Callee> Callee for TokenizingCallee<C> {
    async fn call(&self, call: NestedCall) -> Result<Value, CallError> {
        let Some(tokenizer) = &self.tokenizer else {
            return self.below.call(call).await;
        };
        let arguments = Value::Object(call.arguments);
        let arguments = work(tokenizer, move |tokens| tokens.reveal_value(arguments))
            .await
            .map_err(not_called)?;
        let Value::Object(arguments) = arguments else {
            return Err(not_called(TokensError::GivenUp));
        };
        let answer = self.below.call(NestedCall { arguments, ..call }).await;
        match answer {
            Ok(result) => work(tokenizer, move |tokens| tokens.hide_value(result))
                .await
                .map_err(withheld),
            Err(CallError { kind, message }) => {
                let hidden = work(tokenizer, move |tokens| tokens.hide_text(&message)).await;
                Err(match hidden {
                    Ok(message) => kind.error(message),
                    // What is known of the call stays known; only the words are lost.
                    Err(error) => kind.error(format!(
                        "the error's message is withheld, as it may hold personal data: {error}"
                    )),
                })
            }
        }
    }
}

/// Replaces personal data in the arguments of calls before the layers below see them, including values that
/// the code made up itself.
#[derive(Debug)]
pub(crate) struct ArgumentTokenizer<C> {
    /// None if the session has no tokens.
    pub(crate) tokenizer: Option<Arc<Tokenizer>>,
    pub(crate) below: C,
}

impl<C: Callee> Callee for ArgumentTokenizer<C> {
    async fn call(&self, mut call: NestedCall) -> Result<Value, CallError> {
        if let Some(tokenizer) = &self.tokenizer {
            let arguments = Value::Object(call.arguments);
            let hidden = work(tokenizer, move |tokens| tokens.hide_value(arguments)).await;
            let Ok(Value::Object(arguments)) = hidden else {
                return Err(CallErrorKind::Unavailable
                    .error("personal data could not be tokenized; the tool was not called"));
            };
            call.arguments = arguments;
        }
        self.below.call(call).await
    }
}

fn not_called(error: TokensError) -> CallError {
    CallErrorKind::Unavailable.error(format!("the tool was not called: {error}"))
}

fn withheld(error: TokensError) -> CallError {
    CallErrorKind::OutcomeUnknown.error(format!(
        "the tool ran, and its answer is withheld, as it may hold personal data: {error}"
    ))
}
