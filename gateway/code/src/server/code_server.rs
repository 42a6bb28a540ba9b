//! One code server: its policy, and what it shares with the others.

use std::sync::Arc;
use std::time::Duration;

use mooring_metrics::RunOutcome;
use mooring_session::names::{Principal, ServerName};
use mooring_session::time::Millis;

use super::mounted_cache::MountedCache;
use super::offer::LanguageOffer;
use super::services::{CodeStorage, Services};
use crate::calls::{RunClient, Upstreams};
use crate::patterns::Patterns;
use crate::place::{ClientName, ClientNameError};
use crate::records::{RunId, SecurityEvent};
use mooring_settings::{
    CodePolicy, CodeSessionOwner, CodeToolSettings, Language, MountRules, NetworkPolicy,
    SkillScope, SkillSettings, StubFormat, TokenizationSettings,
};
use mooring_store::{HistoryEvent, UserSlug, word};

/// The principal that calls a code server, and its teams.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The principal of the sessions.
    pub principal: Principal,
    /// The teams that the principal is in.
    pub teams: Arc<[String]>,
    /// The name of a client with sessions of its own; none where all clients of the principal share theirs.
    pub client: Option<ClientName>,
}

/// The context of a call, besides its arguments.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// The caller.
    pub caller: Caller,
    /// The way to other servers.
    pub upstreams: Arc<dyn Upstreams>,
    /// The client that answers questions of tools.
    pub client: RunClient,
}

/// One server of kind `code`.
#[derive(Debug)]
pub struct CodeServer {
    /// Its id in paths and keys.
    pub id: ServerName,
    pub(super) policy: CodePolicy,
    pub(super) settings: CodeToolSettings,
    pub(super) mounts: MountRules,
    pub(super) skills: SkillSettings,
    pub(super) stub_format: StubFormat,
    pub(super) tokenization: Option<TokenizationSettings>,
    pub(super) mounted: MountedCache,
    /// Which languages are advertised.
    pub(super) offer: LanguageOffer,
    /// The result of `tools/list`, which is the same for every caller.
    pub(super) tools_json: Box<str>,
    pub(super) services: Arc<Services>,
}

impl CodeServer {
    /// The client whose own sessions are meant, by what its request names; none where clients share theirs.
    ///
    /// # Errors
    /// The client's name is invalid.
    pub fn client(&self, named: Option<&[u8]>) -> Result<Option<ClientName>, ClientNameError> {
        match self.policy.session_by {
            CodeSessionOwner::User => Ok(None),
            CodeSessionOwner::Client => named.map(ClientName::parse).transpose(),
        }
    }

    /// The patterns of code that does not run here.
    pub(super) fn patterns(&self) -> &Patterns {
        match self.policy.network {
            NetworkPolicy::None => &self.services.patterns,
            NetworkPolicy::PublicHttp { .. } => &self.services.patterns_with_raw_http,
        }
    }

    /// The language of a call, by default the server's: it selects the session and its files.
    pub(super) fn language_or_default(&self, language: Option<Language>) -> Language {
        language.unwrap_or(self.offer.default)
    }

    /// The team that the server, and so each of its runs, belongs to: the one that its skills are of.
    pub(super) fn team(&self) -> Option<String> {
        match &self.skills.scope {
            Some(SkillScope::Team(team)) => Some(team.clone()),
            _ => None,
        }
    }

    /// Records an event that belongs to no run. What cannot be recorded is counted.
    pub(super) async fn note_event(&self, principal: &Principal, event: SecurityEvent) {
        if let Ok(CodeStorage { records, .. }) = &self.services.storage {
            let (records, id, principal) = (records.clone(), self.id.clone(), principal.clone());
            // It does not panic.
            let _ =
                tokio::task::spawn_blocking(move || records.event(&id, &principal, &event)).await;
        }
    }

    /// Notes a run in the history of the session with this digest.
    pub(super) fn note_run(&self, session: &str, run: &RunId, outcome: RunOutcome, took: Duration) {
        let ran = HistoryEvent::Ran {
            server: word(self.id.as_str()),
            run: Some(word(run.as_str())),
            outcome: <&'static str>::from(outcome).into(),
            took_ms: Millis::from(took).get(),
        };
        self.services.sessions.store().note(session, ran);
    }

    /// The name under which the runs of a principal are counted, over the whole fleet.
    pub(super) fn rate_name(&self, principal: &Principal) -> String {
        let slug = UserSlug::of(principal);
        format!("code:{}:{}", self.id, slug.as_str())
    }
}
