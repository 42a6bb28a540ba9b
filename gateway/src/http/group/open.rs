//! A client initializes at a group: one record, and every member introduced.
//!
//! The members are bound here and not at their first message, because the group can only say what it can do when its
//! members have said what they can.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use futures_util::future::join_all;
use http::StatusCode;
use serde_json::{Map, Value};

use super::GroupVisit;
use super::passing::name_member;
use crate::group::{Introduced, Member, introduce};
use crate::http::answer;
use crate::http::endpoint::with_session_id;
use mooring_code::server::CodeServer;
use mooring_protocol::tool_server::{ToolServerReply, asked};
use mooring_protocol::{ErrorBody, ErrorKind, Message, Revision, call};
use mooring_router::affinity::{Introduction, OpenError, Session, SettleError};
use mooring_upstream::Server;

/// Why a member is not in the group's answer.
#[derive(Debug, thiserror::Error)]
enum Absent {
    /// It is not bound.
    #[error(transparent)]
    Settle(#[from] SettleError),
    /// Its answer has no result that is an object.
    #[error("its answer is no initialize result")]
    Invalid,
    /// It takes too long. What was begun goes on, and its first use finds it.
    #[error("it did not answer in time")]
    Late,
}

/// The client's handshake.
pub(super) async fn initialize(
    visit: &GroupVisit,
    message: &Message<'_>,
    revision: Revision,
) -> Response {
    let Some(params) = message.raw_params() else {
        let error = ErrorBody::new(ErrorKind::InvalidParams).answering(message.id());
        return answer::error(&error.detail("initialize needs params"));
    };
    let Some(id) = message.id() else {
        return answer::plain(ErrorKind::InvalidRequest, None);
    };
    let introduction = Introduction {
        params,
        revision: revision.as_str(),
        text: Bytes::copy_from_slice(message.text().as_bytes()),
    };
    let affinity = &visit.app.affinity;
    let session = match begin(visit, &introduction).await {
        Ok(session) => session,
        Err(cause) => return answer::unopened(&cause, message.id()),
    };
    let members = visit.group.members().iter();
    let asking = members.map(|member| ask(visit, &session, member, message, revision));
    let answers = join_all(asking).await;

    let (mut introduced, mut missing, mut first) = (Vec::new(), Vec::new(), None);
    for (member, answer) in visit.group.members().iter().zip(answers) {
        let server = member.id();
        match answer {
            Ok(result) => introduced.push(Introduced { server, result }),
            Err(cause) => {
                tracing::warn!(session = %session.digest, group = %visit.group.id, server, error = %cause, "a member is missing from its group");
                missing.push(server);
                first = first.or(Some((server, cause)));
            }
        }
    }
    if introduced.is_empty() {
        if visit.begun.is_none()
            && let Err(cause) = affinity.close(&session).await
        {
            tracing::info!(session = %session.digest, %cause, "a session that nobody knows of was not ended; it will expire");
        }
        return match first {
            Some((server, cause)) => name_member(absent(&cause, message), server).await,
            None => answer::plain(ErrorKind::UpstreamUnavailable, message.id()),
        };
    }
    let group = &visit.group;
    let result = introduce(
        group.id.as_str(),
        group.names(),
        revision,
        &introduced,
        &missing,
    );
    let text = call::result(id.as_json(), &result.to_string());
    let reply = answer::json(StatusCode::OK, Bytes::from(text));
    with_session_id(reply, session.id.as_str())
}

/// The session, with its client's params: one that has begun with a stream, or a new one.
async fn begin(visit: &GroupVisit, introduction: &Introduction<'_>) -> Result<Session, OpenError> {
    let affinity = &visit.app.affinity;
    if let Some(session) = &visit.begun {
        affinity.note_introduction(session, introduction).await?;
        return Ok(session.clone());
    }
    let prefix = &affinity.options().key_prefix;
    let session = Session::mint(prefix, visit.principal.clone())?;
    affinity.begin(&session, introduction).await?;
    Ok(session)
}

async fn ask(
    visit: &GroupVisit,
    session: &Session,
    member: &Member,
    message: &Message<'_>,
    revision: Revision,
) -> Result<Map<String, Value>, Absent> {
    match member {
        Member::Upstream(server) => upstream(visit, session, server).await,
        Member::Code(server) => code(server, message, revision),
    }
}

/// Binds the member. The task outlives the limit, so that no half-made binding is left behind.
async fn upstream(
    visit: &GroupVisit,
    session: &Session,
    server: &Arc<Server>,
) -> Result<Map<String, Value>, Absent> {
    let affinity = visit.app.affinity.clone();
    let limit = affinity.options().answer_timeout;
    let (session, server) = (session.clone(), Arc::clone(server));
    let binding = tokio::spawn(async move { affinity.introduce(&session, &server).await });
    let Ok(Ok(bound)) = tokio::time::timeout(limit, binding).await else {
        return Err(Absent::Late);
    };
    let (_, initialized) = bound?;
    let answer = initialized.answer.message();
    answer
        .and_then(|answer| serde_json::from_str(answer.outcome()?).ok())
        .ok_or(Absent::Invalid)
}

fn code(
    server: &Arc<CodeServer>,
    message: &Message<'_>,
    revision: Revision,
) -> Result<Map<String, Value>, Absent> {
    match asked(server, message, revision) {
        ToolServerReply::Result(result) => {
            serde_json::from_str(&result).map_err(|_| Absent::Invalid)
        }
        ToolServerReply::Error(_) | ToolServerReply::Call(_) => Err(Absent::Invalid),
    }
}

/// Why a member could not be introduced.
fn absent(cause: &Absent, message: &Message<'_>) -> Response {
    match cause {
        Absent::Settle(cause) => answer::unsettled(cause, message.id()),
        Absent::Invalid => answer::plain(ErrorKind::UpstreamInvalid, message.id()),
        Absent::Late => answer::plain(ErrorKind::UpstreamTimeout, message.id()),
    }
}
