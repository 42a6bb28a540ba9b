//! What one `code` server allows its runs: the defaults of `[code]`, with what the server's own `sandbox_policy`
//! says in their place.

use std::time::Duration;

use mooring_sandbox::Limits;

use super::calls::{self, CallPolicy};
use super::limits::{self, Numbers};
use super::network::{self, NetworkPolicy};
use super::{runtime, trees};
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

/// A policy whose processor time, which follows from other numbers, is not yet known.
#[derive(Debug, Clone)]
pub(super) struct PolicyDraft {
    language: Language,
    numbers: Numbers,
    output_bytes: usize,
    calls: CallPolicy,
    network: NetworkPolicy,
}

impl PolicyDraft {
    /// What `[code]` says for every server.
    pub(super) fn parse_defaults(reader: &mut Reader<'_>) -> Self {
        trees::check_standard(reader);
        Self {
            language: reader.choice(&runtime::DEFAULT),
            numbers: limits::parse_defaults(reader),
            output_bytes: limits::parse_output_bytes(reader),
            calls: calls::parse_defaults(reader),
            network: network::parse_defaults(reader),
        }
    }

    /// What one server says, and the standard where it says nothing.
    pub(super) fn parse_overrides(reader: &mut Reader<'_>, standard: &Self) -> Self {
        trees::check_own(reader);
        Self {
            language: reader.choice_or(&runtime::OWN, standard.language),
            numbers: limits::parse_overrides(reader, &standard.numbers),
            output_bytes: standard.output_bytes,
            calls: calls::parse_overrides(reader, &standard.calls),
            network: network::parse_overrides(reader, standard.network),
        }
    }

    /// The policy.
    pub(super) fn policy(&self) -> CodePolicy {
        CodePolicy {
            language: self.language,
            limits: self.numbers.limits(self.output_bytes),
            runs_per_minute: self.numbers.runs_per_minute,
            session_ttl: Duration::from_secs(self.numbers.session_ttl_seconds),
            calls: self.calls.clone(),
            network: self.network,
        }
    }
}
