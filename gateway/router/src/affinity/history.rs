//! What this gateway notes of sessions for their histories.
//!
//! Invariant: what a call does at once, without waiting, failing or moving, is not noted.

use mooring_delivery::{Loss, LostBinding};
use mooring_metrics::ReapOutcome;
use mooring_protocol::{Kind, Message, Method};
use mooring_session::names::ServerName;
use mooring_session::view::BindingView;
use serde::Deserialize;

use super::open::InitializeRequest;
use super::{Session, SessionRouter};
use mooring_store::{EndCause, HistoryEvent, OwnerChange, Word, word};

/// What is read of the params of `initialize`.
#[derive(Deserialize)]
struct IntroducedClient {
    #[serde(rename = "clientInfo")]
    client_info: ClientBuild,
}

#[derive(Deserialize)]
struct ClientBuild {
    name: String,
    #[serde(default)]
    version: String,
}

impl SessionRouter {
    /// A client began the session.
    pub(super) fn note_created(&self, session: &Session, request: &InitializeRequest<'_>) {
        let Some(transport) = request.transport else {
            return;
        };
        let introduced = serde_json::from_str::<IntroducedClient>(request.params);
        let client = introduced.ok().map(|introduced| {
            let ClientBuild { name, version } = introduced.client_info;
            word(format!("{name} {version}").trim_end())
        });
        let created = HistoryEvent::Created {
            client,
            protocol: Some(word(request.revision)),
            transport: Some(transport.into()),
        };
        self.store().note(&session.digest, created);
    }

    /// A server is bound, or the binding has moved from the lost one.
    pub(super) fn note_binding(
        &self,
        session: &Session,
        binding: &BindingView,
        lost: Option<&LostBinding>,
    ) {
        let (server, to) = (
            word(binding.server.as_str()),
            word(binding.instance.as_str()),
        );
        let event = match lost {
            None => HistoryEvent::Bound {
                server,
                instance: to,
                epoch: binding.epoch,
            },
            Some(lost) => HistoryEvent::Rebound {
                server,
                from: word(lost.instance.as_str()),
                to,
                epoch: binding.epoch,
                reason: lost.loss.as_str().into(),
                // A claim that lapsed was not bound yet.
                state_lost: lost.loss != Loss::ClaimLapsed,
            },
        };
        self.store().note(&session.digest, event);
    }

    /// A connection that this gateway holds was opened or closed.
    pub(super) fn note_owner(
        &self,
        session: &str,
        server: &ServerName,
        epoch: u64,
        change: OwnerChange,
        reason: Option<&'static str>,
    ) {
        let owner = HistoryEvent::Owner {
            server: word(server.as_str()),
            epoch,
            change,
            reason: reason.map(Word::from),
        };
        self.store().note(session, owner);
    }

    /// The session was ended by this gateway.
    pub(super) fn note_ended(&self, session: &str, cause: EndCause) {
        self.store().note(session, HistoryEvent::Ended { cause });
    }

    /// What an ended or expired session had left was cleaned up, as far as possible.
    pub(super) fn note_cleaned(&self, session: &str, outcome: ReapOutcome) {
        let outcome = match outcome {
            ReapOutcome::Cleaned => "all was deleted",
            ReapOutcome::Unconfigured => {
                "what is at servers that are not configured any more is left"
            }
            // It is tried again, and has an entry then.
            ReapOutcome::PutOff | ReapOutcome::Stale => return,
        };
        let outcome = Word::from(outcome);
        self.store()
            .note(session, HistoryEvent::Cleaned { outcome });
    }

    /// A server sent this message to the client of a session.
    pub(crate) fn note_question(
        &self,
        session: &Session,
        server: &ServerName,
        message: &Message<'_>,
    ) {
        // Pings are answered by programs.
        if message.kind() != Kind::Request || message.method() == Method::Ping {
            return;
        }
        let asked = HistoryEvent::Asked {
            server: word(server.as_str()),
            method: message.method().label().into(),
        };
        self.store().note(&session.digest, asked);
    }

    /// The client of a session sent a message that answers a question of this server.
    pub fn note_client_answer(&self, session: &Session, server: &ServerName) {
        let server = word(server.as_str());
        self.store()
            .note(&session.digest, HistoryEvent::Answered { server });
    }

    /// A call was sent to the server, and there is no result of it.
    pub fn note_outcome_unknown(&self, session: &Session, server: &ServerName) {
        let server = word(server.as_str());
        let unknown = HistoryEvent::OutcomeUnknown { server };
        self.store().note(&session.digest, unknown);
    }
}
