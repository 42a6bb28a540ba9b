//! A run that is to be made, asked for by an agent or repeated.

use std::sync::Arc;
use std::time::Duration;

use crate::records::{ReplayOf, RunId};
use crate::server::run::CallTarget;
use mooring_settings::{AnswerForm, Language};

/// A run that is to be made.
pub(in crate::server) struct Execution {
    pub(in crate::server) run_id: RunId,
    pub(in crate::server) code: Arc<str>,
    pub(in crate::server) language: Option<Language>,
    pub(in crate::server) timeout: Option<Duration>,
    /// Set where it repeats an earlier run.
    pub(in crate::server) replay: Option<(ReplayOf, CallTarget)>,
    /// How much it answers.
    pub(in crate::server) answer: AnswerForm,
}
