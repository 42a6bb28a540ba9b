//! Restored state: a client's settings at a server, kept in the record for a later upstream session of that server.
//!
//! Invariants: subscriptions are restored only at the server where the client made them; members of a group share one
//! record and do not know each other's resources. The log level belongs to the session and is restored at all servers.

use bytes::Bytes;
use mooring_session::names::{LabelName, ServerName};
use mooring_session::view::{BindingView, RecordView};

use super::{Session, SessionRouter, caller_of};
use mooring_protocol::call;
use mooring_secrets::digest;
use mooring_upstream::{InitializedSession, Outgoing, Server, read_answer, within};

/// The label with the client's latest log level.
pub(super) const LOG_LEVEL_LABEL: &[u8] = b"log_level";

/// The state that a new upstream session gets after the handshake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RestoredState {
    log_level: Option<Box<str>>,
    subscriptions: Vec<Box<str>>,
}

impl RestoredState {
    /// The settings in the record for this server.
    pub(super) fn of(record: &RecordView, server: &ServerName) -> Self {
        let log_level = LabelName::parse(LOG_LEVEL_LABEL)
            .ok()
            .and_then(|name| record.labels.get(&name))
            .map(|level| level.as_str().into());
        let prefix = subscriptions_prefix(server);
        let subscriptions = record
            .labels
            .iter()
            .filter(|(name, uri)| name.as_str().starts_with(&prefix) && !uri.as_str().is_empty())
            .map(|(_, uri)| uri.as_str().into())
            .collect();
        Self {
            log_level,
            subscriptions,
        }
    }
}

/// Number of digits of a digest in the name of a label.
const LABEL_DIGITS: usize = 8;

/// The label with the URI of a subscribed resource. Server and URI are digests in its name, because label names are
/// short.
pub(super) fn subscription_label(server: &ServerName, uri: &str) -> String {
    format!("{}{}", subscriptions_prefix(server), label_part(uri))
}

fn subscriptions_prefix(server: &ServerName) -> String {
    format!("sub.{}.", label_part(server.as_str()))
}

/// A digest that fits into the name of a label. It is stored: another length would lose subscriptions.
fn label_part(text: &str) -> String {
    let mut digits = digest::hex(text.as_bytes());
    digits.truncate(LABEL_DIGITS);
    digits
}

impl SessionRouter {
    /// Restores the client's log level and subscriptions in a new upstream session. Refusals of the instance are
    /// logged: if state was lost, the client is notified anyway.
    pub(super) async fn restore(
        &self,
        session: &Session,
        server: &Server,
        binding: &BindingView,
        initialized: &InitializedSession,
        restored_state: &RestoredState,
    ) {
        let level = restored_state
            .log_level
            .iter()
            .map(|level| call::set_level(&self.next_id(), level));
        let subscriptions = restored_state
            .subscriptions
            .iter()
            .map(|uri| call::subscribe(&self.next_id(), uri));
        for text in level.chain(subscriptions) {
            let mut outgoing = Outgoing::post(server, Bytes::from(text))
                .on_behalf_of(server, &caller_of(session))
                .upstream_session(initialized.upstream_session.as_ref());
            if let Some(revision) = &initialized.revision {
                outgoing = outgoing.revision(revision);
            }
            let exchange = async {
                let reply = self.send(session, server, binding, &outgoing).await?;
                read_answer(reply, &outgoing, &self.reply_source(server, binding)).await
            };
            if let Err(error) = within(self.options().answer_timeout, exchange).await {
                tracing::warn!(session = %session.digest, server = %server.id, %error, "a setting of the client was not carried over to its new upstream session");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use mooring_session::limits::LABEL_NAME_BYTES_MAX;

    use super::*;

    #[test]
    fn labels_of_two_servers_are_distinct() {
        let server = |name: &str| ServerName::parse(name.as_bytes()).unwrap();
        let label = subscription_label(&server("notes"), "file:///a");
        assert!(label.starts_with(&subscriptions_prefix(&server("notes"))));
        assert!(!label.starts_with(&subscriptions_prefix(&server("note"))));
        assert_ne!(label, subscription_label(&server("notes"), "file:///b"));
        assert!(label.len() <= LABEL_NAME_BYTES_MAX, "{label}");
        LabelName::parse(label.as_bytes()).unwrap();
    }
}
