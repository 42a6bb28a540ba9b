//! Requests that a group sends to all its members and answers itself: lists, and the log level.

use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use super::gather::Failure;
use super::member_reply::{holding, name_member, own_result};
use super::message::GroupMessage;
use super::session_members::SessionMembers;
use crate::answer;
use mooring_protocol::{ErrorKind, Listing, Method, Reply, call};

/// The params of a list request.
#[derive(Default, Deserialize)]
struct ListParams {
    #[serde(default)]
    cursor: Option<Value>,
}

impl GroupMessage<'_> {
    /// The merged lists of all members, on one page.
    pub(super) async fn list(&self, listing: Listing) -> Reply {
        let params = self.message.raw_params().unwrap_or("{}");
        match serde_json::from_str(params) {
            Ok(ListParams { cursor: None }) => {}
            // The list has one page, so no cursor is valid.
            Ok(_) => return self.refuse_params("unknown cursor"),
            Err(cause) => return self.refuse_params(cause),
        }
        if let Err(reply) = self.check_session().await {
            return reply;
        }
        let listed = self.request.server.list(&self.scope(), listing).await;
        match listed.result {
            Ok(Some(result)) => {
                let reply = own_result(self.message.id(), &result, &listed.moved);
                holding(reply, listed.held)
            }
            Ok(None) => self.refuse(ErrorKind::MethodNotFound),
            Err((server, failure)) => self.failed(&server, &failure),
        }
    }

    /// Sets the level at every member that has logging.
    pub(super) async fn set_level(&self) -> Reply {
        let Some(level) = self.message.params.level() else {
            return self.refuse_params("logging/setLevel needs a level");
        };
        let session_router = &self.request.core.session_router;
        // This also checks that the session exists.
        if let Err(cause) = session_router.note_log_level(&self.session, &level).await {
            return answer::store(&cause, self.message.id());
        }
        let record = match self.record().await {
            Ok(record) => record,
            Err(reply) => return reply,
        };
        // A program that has not been started gets the level of the session when it is.
        let members = SessionMembers::of(self.request.server.known(), &record);
        let upstreams = self.request.server.upstreams();
        let (unstarted, servers): (Vec<_>, Vec<_>) =
            upstreams.partition(|server| members.is_unstarted(server));
        let text = |id: &str| call::again(id, Method::LoggingSetLevel, self.message.raw_params());
        let answers = self.scope().ask_all(servers.into_iter(), text).await;
        let (mut moved, mut failure, mut is_set) = (Vec::new(), None, !unstarted.is_empty());
        for (server, gathered) in answers {
            moved.extend(gathered.moved);
            match gathered.outcome {
                Ok(result) => is_set |= result.is_some(),
                Err(cause) => {
                    tracing::warn!(session = %self.session.digest, server = %server.id, error = %cause, "member of a group refused the log level");
                    failure = failure.or(Some((server, cause)));
                }
            }
        }
        match failure {
            _ if is_set => own_result(self.message.id(), "{}", &moved),
            Some((server, failure)) => self.failed(server.id.as_str(), &failure),
            None => self.refuse(ErrorKind::MethodNotFound),
        }
    }

    /// The reply if no member answered: the first member's failure.
    pub(super) fn failed(&self, server: &str, failure: &Failure) -> Reply {
        let reply = self.refused_by_member(failure);
        if failure.is_of_the_session() {
            return reply;
        }
        name_member(reply, server)
    }

    fn refused_by_member(&self, failure: &Failure) -> Reply {
        let id = self.message.id();
        match failure {
            Failure::Deliver(cause) => answer::delivery_error(cause, id),
            Failure::Exchange(cause) => answer::exchange(cause, id),
            Failure::Refused(error) => match id {
                Some(id) => Reply::json(StatusCode::OK, call::error(id.as_json(), error)),
                None => answer::plain(ErrorKind::UpstreamInvalid, None),
            },
            Failure::Message(_) | Failure::Page(_) | Failure::TooLong => {
                answer::plain(ErrorKind::UpstreamInvalid, id)
            }
            Failure::NoRoom(cause) => answer::no_room(*cause, id),
            Failure::Late => answer::plain(ErrorKind::UpstreamTimeout, id),
        }
    }
}
