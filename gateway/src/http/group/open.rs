//! A client initializes at a group: one record, and every member initialized.
//!
//! Members are bound here and not at their first message, since the group's capabilities depend on those of its
//! members.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use http::StatusCode;
use serde_json::{Map, Value};

use super::GroupContext;
use super::member_reply::name_member;
use crate::group::{Member, MemberInitializeResult, initialize_result};
use crate::http::answer;
use crate::http::endpoint::with_session_id;
use mooring_code::server::CodeServer;
use mooring_protocol::tool_server::{ToolServerReply, handle_request};
use mooring_protocol::{ErrorBody, ErrorKind, Message, Reply, Revision, call};
use mooring_router::affinity::{InitializeRequest, OpenError, ResolveError, Session};
use mooring_upstream::Server;

/// Why a member is missing from the group's `initialize` result.
#[derive(Debug, thiserror::Error)]
enum AbsenceReason {
    /// It could not be bound.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// Its reply has no result that is an object.
    #[error("its answer is no initialize result")]
    Invalid,
    /// It timed out. The handshake continues, and the member is usable later.
    #[error("it did not answer in time")]
    Late,
}

/// Serves the client's `initialize`.
pub(super) async fn initialize(
    context: &GroupContext,
    message: &Message<'_>,
    revision: Revision,
) -> Reply {
    let Some(params) = message.raw_params() else {
        let error = ErrorBody::new(ErrorKind::InvalidParams).answering(message.id());
        return answer::error(&error.detail("initialize needs params"));
    };
    let Some(id) = message.id() else {
        return answer::plain(ErrorKind::InvalidRequest, None);
    };
    let request = InitializeRequest {
        params,
        revision: revision.as_str(),
        text: Bytes::copy_from_slice(message.text().as_bytes()),
    };
    let session_router = &context.app.session_router;
    let session = match begin(context, &request).await {
        Ok(session) => session,
        Err(cause) => return answer::open_error(&cause, message.id()),
    };
    let members = context.server.members().iter();
    let asking =
        members.map(|member| initialize_member(context, &session, member, message, revision));
    let answers = join_all(asking).await;

    let (mut introduced, mut missing, mut first) = (Vec::new(), Vec::new(), None);
    for (member, answer) in context.server.members().iter().zip(answers) {
        let server = member.id();
        match answer {
            Ok(result) => introduced.push(MemberInitializeResult { server, result }),
            Err(cause) => {
                tracing::warn!(session = %session.digest, group = %context.server.id, server, error = %cause, "member missing from the group's initialize result");
                missing.push(server);
                first = first.or(Some((server, cause)));
            }
        }
    }
    if introduced.is_empty() {
        if context.begun.is_none()
            && let Err(cause) = session_router.close(&session).await
        {
            tracing::info!(session = %session.digest, %cause, "an unused session could not be ended; it will expire");
        }
        return match first {
            Some((server, cause)) => name_member(absence_reply(&cause, message), server),
            None => answer::plain(ErrorKind::UpstreamUnavailable, message.id()),
        };
    }
    let group = &context.server;
    let result = initialize_result(
        group.id.as_str(),
        group.names(),
        revision,
        &introduced,
        &missing,
    );
    let text = call::result(id.as_json(), &result.to_string());
    let reply = Reply::json(StatusCode::OK, text);
    with_session_id(reply, session.id.as_str())
}

/// The session, with its client's params: the one that began with a stream, or a new one.
async fn begin(
    context: &GroupContext,
    request: &InitializeRequest<'_>,
) -> Result<Session, OpenError> {
    let session_router = &context.app.session_router;
    if let Some(session) = &context.begun {
        session_router.note_initialize(session, request).await?;
        return Ok(session.clone());
    }
    let session = context.mint_session()?;
    session_router.begin(&session, request).await?;
    Ok(session)
}

async fn initialize_member(
    context: &GroupContext,
    session: &Session,
    member: &Member,
    message: &Message<'_>,
    revision: Revision,
) -> Result<Map<String, Value>, AbsenceReason> {
    match member {
        Member::Upstream(server) => upstream(context, session, server).await,
        Member::Code(server) => code(server, message, revision),
    }
}

/// Binds the member.
async fn upstream(
    context: &GroupContext,
    session: &Session,
    server: &Arc<Server>,
) -> Result<Map<String, Value>, AbsenceReason> {
    let session_router = context.app.session_router.clone();
    let limit = session_router.options().answer_timeout;
    let memory = session.usage.as_ref().map(|usage| &**usage.replies());
    let (session, asked) = (session.clone(), Arc::clone(server));
    let binding = async move { session_router.initialize(&session, &asked).await };
    let bound = server
        .answer_in_time(limit, memory, binding, Result::is_ok)
        .await;
    let (_, initialized) = bound.ok_or(AbsenceReason::Late)??;
    let answer = initialized.answer.message();
    answer
        .and_then(|answer| serde_json::from_str(answer.outcome()?).ok())
        .ok_or(AbsenceReason::Invalid)
}

fn code(
    server: &Arc<CodeServer>,
    message: &Message<'_>,
    revision: Revision,
) -> Result<Map<String, Value>, AbsenceReason> {
    match handle_request(server, message, revision) {
        ToolServerReply::Result(result) => {
            serde_json::from_str(&result).map_err(|_| AbsenceReason::Invalid)
        }
        ToolServerReply::Error(_) | ToolServerReply::Call(_) => Err(AbsenceReason::Invalid),
    }
}

/// The reply if a member could not be initialized.
fn absence_reply(cause: &AbsenceReason, message: &Message<'_>) -> Reply {
    match cause {
        AbsenceReason::Resolve(cause) => answer::resolve_error(cause, message.id()),
        AbsenceReason::Invalid => answer::plain(ErrorKind::UpstreamInvalid, message.id()),
        AbsenceReason::Late => answer::plain(ErrorKind::UpstreamTimeout, message.id()),
    }
}
