//! What one `code` server allows its runs: the defaults of `[code]`, with what the server's own `sandbox_policy`
//! says in their place.

use std::time::Duration;

use mooring_sandbox::Limits;

use super::calls::CallPolicy;
use super::limits::PolicyLimits;
use super::network::{NetworkDraft, NetworkPolicy};
use super::runtime::DefaultRuntime;
use super::trees::NamedTrees;
use crate::Language;
use crate::reader::Reader;

/// What one `code` server allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodePolicy {
    /// What code that names no language is taken for, and whose session the file tools and the one-line shell use.
    pub language: Language,
    /// What one run may use. A call may ask for less time.
    pub limits: Limits,
    /// Most runs of one principal in a minute, over all gateways.
    pub runs_per_minute: u64,
    /// How long a session and its files live after their last use.
    pub session_ttl: Duration,
    /// Which tools of other servers code may call.
    pub calls: CallPolicy,
    /// What of the network it reaches.
    pub network: NetworkPolicy,
}

/// What is written of a policy.
#[derive(Debug, Clone)]
pub(super) struct PolicyDraft {
    trees: NamedTrees,
    runtime: DefaultRuntime,
    limits: PolicyLimits,
    calls: CallPolicy,
    network: NetworkDraft,
}

impl PolicyDraft {
    /// Reads what `[code]` says or, with the result of that, what one server says.
    pub(super) fn read(reader: &mut Reader<'_>, standard: Option<&Self>) -> Self {
        Self {
            trees: NamedTrees::read(reader, standard.map(|policy| &policy.trees)),
            runtime: DefaultRuntime::read(reader, standard.map(|policy| &policy.runtime)),
            limits: PolicyLimits::read(reader, standard.map(|policy| &policy.limits)),
            calls: CallPolicy::read(reader, standard.map(|policy| &policy.calls)),
            network: NetworkDraft::read(reader, standard.map(|policy| &policy.network)),
        }
    }

    /// The policy.
    pub(super) fn policy(&self) -> CodePolicy {
        CodePolicy {
            language: self.runtime.language,
            limits: self.limits.limits(),
            runs_per_minute: self.limits.runs_per_minute,
            session_ttl: self.limits.session_ttl,
            calls: self.calls.clone(),
            network: self.network.policy(),
        }
    }
}
