//! Tokens in the place of personal data, where the server's policy has it: the session's own, whichever gateway serves it.
//!
//! Invariant: output that could not be searched is withheld.

use std::sync::Arc;

use mooring_sandbox::Output;
use mooring_sandbox::tree::SessionDirectory;

use super::code_server::CodeServer;
use super::failure::Failure;
use super::run::RunResult;
use crate::tokens::{TokenMap, Tokenizer, TokensError};

impl CodeServer {
    /// Opens the token map of a session, on a thread that may block. None if the policy has no tokenization.
    pub(super) fn tokenizer_opening(
        &self,
    ) -> Option<impl FnOnce(&SessionDirectory) -> Result<Arc<Tokenizer>, Failure> + Send + 'static>
    {
        let settings = self.tokenization.clone()?;
        let services = Arc::clone(&self.services);
        Some(move |session: &SessionDirectory| {
            let directory = session.host().try_clone_to_owned().map_err(Failure::Stop)?;
            let map = TokenMap::open(directory, services.token_key.as_ref())?;
            Ok(Arc::new(Tokenizer::new(settings, map)))
        })
    }
}

/// Replaces personal data in the output of a run. Blocks.
pub(super) fn hide(tokenizer: &Tokenizer, mut ran: RunResult) -> Result<RunResult, TokensError> {
    ran.stdout = hidden(tokenizer, &ran.stdout)?;
    ran.stderr = hidden(tokenizer, &ran.stderr)?;
    if let Some(Ok(committed)) = &mut ran.committed {
        for refused in &mut committed.refused {
            refused.path = tokenizer.hide_text(&refused.path)?;
        }
    }
    Ok(ran)
}

fn hidden(tokenizer: &Tokenizer, output: &Output) -> Result<Output, TokensError> {
    let text = String::from_utf8_lossy(&output.bytes);
    let is_cut = output.is_truncated();
    let text = if is_cut {
        tokenizer.hide_cut_text(&text)?
    } else {
        tokenizer.hide_text(&text)?
    };
    let bytes = text.into_bytes();
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    Ok(Output {
        written_bytes: if is_cut {
            output.written_bytes.max(length.saturating_add(1))
        } else {
            length
        },
        bytes,
    })
}
