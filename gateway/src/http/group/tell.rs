//! What a client tells a group: notifications, and answers to what its members asked.

use futures_util::future::join_all;
use http::StatusCode;

use super::GroupMessage;
use crate::group::Member;
use crate::http::{answer, stateful};
use mooring_protocol::{ErrorBody, ErrorKind, Reply, rewrite_up};

impl GroupMessage<'_> {
    /// An answer, or progress on a request of a member: the epoch in its id says over which binding that came, and an
    /// epoch is never given twice within a record.
    pub(super) async fn to_whom_it_answers(&self) -> Reply {
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
        let asked = record
            .bindings
            .iter()
            .find(|binding| epoch.is_some_and(|epoch| epoch.0 == binding.epoch))
            .and_then(|binding| self.context.group.upstream(binding.server.as_str()));
        match asked {
            Some(server) => {
                let member = Member::Upstream(server.clone());
                self.pass(&member, &[]).await
            }
            None => self.refuse(ErrorKind::AnswerUnexpected),
        }
    }

    /// A notification is for every member that there is an upstream session at; a member that knows nothing of what it
    /// is about ignores it.
    pub(super) async fn to_all_bound(&self) -> Reply {
        if let Err(reply) = self.attend().await {
            return reply;
        }
        let record = match self.record().await {
            Ok(record) => record,
            Err(reply) => return reply,
        };
        let bound = record
            .bindings
            .iter()
            .filter_map(|binding| self.context.group.upstream(binding.server.as_str()));
        let told = join_all(bound.map(|server| async move {
            let context = self.context.at(server);
            let reply = stateful::post(&context, self.body, self.message, self.revision).await;
            (server, reply.status)
        }));
        for (server, status) in told.await {
            if !status.is_success() {
                tracing::info!(session = %self.session.digest, server = %server.id, %status, "a member of a group did not take a notification");
            }
        }
        Reply::empty(StatusCode::ACCEPTED)
    }
}
