//! A client's one-way messages to a group: notifications, and responses to requests of its members.

use futures_util::future::join_all;
use http::StatusCode;

use super::members::Member;
use super::message::{GroupMessage, member_request};
use crate::{answer, stateful};
use mooring_protocol::{ErrorBody, ErrorKind, Reply, rewrite_up};

impl GroupMessage<'_> {
    /// Relays a response to, or progress on, a request of a member. The epoch in the request's id identifies the
    /// binding, since no two bindings of a record ever have the same epoch.
    pub(super) async fn answer_member(&self) -> Reply {
        let epoch = match rewrite_up(self.message, None) {
            Ok(up) => up.refers_to.map(|request| request.epoch),
            Err(cause) => {
                let body = ErrorBody::from(&cause).answering(self.message.id());
                return answer::error(&body);
            }
        };
        let record = match self.record().await {
            Ok(record) => record,
            Err(reply) => return reply,
        };
        let member = record
            .bindings
            .iter()
            .find(|binding| epoch.is_some_and(|epoch| epoch.0 == binding.epoch))
            .and_then(|binding| self.request.server.upstream(binding.server.as_str()));
        match member {
            Some(server) => {
                let member = Member::Upstream(server.clone());
                self.relay(&member, &[]).await
            }
            None => self.refuse(ErrorKind::AnswerUnexpected),
        }
    }

    /// Relays a notification to every member that has an upstream session; members ignore those that do not concern
    /// them. A cancellation goes to the member that has the request: clients may give the requests of several members one
    /// id.
    pub(super) async fn notify_bound_members(&self) -> Reply {
        if let Err(reply) = self.check_session().await {
            return reply;
        }
        let record = match self.record().await {
            Ok(record) => record,
            Err(reply) => return reply,
        };
        let mut bound: Vec<_> = record
            .bindings
            .iter()
            .filter_map(|binding| self.request.server.upstream(binding.server.as_str()))
            .collect();
        if let Some(id_json) = self.message.cancelled_request() {
            let router = &self.request.core.session_router;
            let lane = self.request.lane;
            bound = router
                .find_cancelled_members(&self.session, &bound, id_json, lane)
                .await;
        }
        // Past the steps of the members: no call of a tool is a notification, since the envelope refuses one without an id.
        let sent = join_all(bound.into_iter().map(|server| async move {
            let request = member_request(self.request, &self.session);
            let reply =
                stateful::post(&request.at(server), self.body, self.message, self.revision).await;
            (server, reply.status)
        }));
        for (server, status) in sent.await {
            if !status.is_success() {
                tracing::info!(session = %self.session.digest, server = %server.id, %status, "member of a group refused a notification");
            }
        }
        Reply::empty(StatusCode::ACCEPTED)
    }
}
