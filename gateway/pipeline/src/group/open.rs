//! A client initializes at a group: one record, and every member initialized.
//!
//! Members are bound here and not at their first message, since the group's capabilities depend on those of its
//! members. A member that is a program is not: what it answered to another client of this kind is known, and it is
//! started when it is first needed. Any other that is known, but slow, is bound behind the client's back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::join_all;
use http::StatusCode;
use serde_json::{Map, Value};

use super::initialize::{MemberInitializeResult, initialize_result};
use super::member_reply::name_member;
use super::members::Member;
use super::message::GroupRequest;
use crate::answer;
use crate::answer::with_session_id;
use crate::request::{RequestServer as _, SessionSource};
use mooring_code::server::CodeServer;
use mooring_protocol::tool_server::{ToolServerReply, handle_request};
use mooring_protocol::{ErrorKind, Message, Reply, Revision, call};
use mooring_router::affinity::{InitializeRequest, OpenError, ResolveError, Session};
use mooring_store::InitDigest;
use mooring_upstream::Server;
use mooring_usage::for_same_user;
use tokio::time::timeout;

/// How long a member whose answer is known is waited for: one that is away is named as missing, one that is slow delays
/// no other.
const KNOWN_WAIT: Duration = Duration::from_secs(1);

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
    request: &GroupRequest<'_>,
    message: &Message<'_>,
    revision: Revision,
) -> Reply {
    let Some(params) = message.raw_params() else {
        let (kind, id) = (ErrorKind::InvalidParams, message.id());
        return answer::detailed(kind, id, "initialize needs params");
    };
    let Some(id) = message.id() else {
        return answer::plain(ErrorKind::InvalidRequest, None);
    };
    let opening = InitializeRequest {
        transport: request.new_session_transport(),
        params,
        revision: revision.as_str(),
        text: Bytes::copy_from_slice(message.text().as_bytes()),
    };
    let session_router = &request.core.session_router;
    let session = match begin(request, &opening).await {
        Ok(session) => session,
        Err(cause) => return answer::open_error(&cause, message.id()),
    };
    let client = InitDigest::of(params);
    let members = request.server.members().iter();
    let asking = members
        .map(|member| initialize_member(request, &session, &client, member, message, revision));
    let answers = join_all(asking).await;

    let (mut introduced, mut missing, mut first) = (Vec::new(), Vec::new(), None);
    for (member, answer) in request.server.members().iter().zip(answers) {
        let server = member.id().as_str();
        match answer {
            Ok(result) => introduced.push(MemberInitializeResult { server, result }),
            Err(cause) => {
                tracing::warn!(session = %session.digest, group = %request.server.id, server, error = %cause, "member missing from the group's initialize result");
                missing.push(server);
                first = first.or(Some((server, cause)));
            }
        }
    }
    if introduced.is_empty() {
        if !matches!(request.session, SessionSource::Begun(_))
            && let Err(cause) = session_router.close(&session).await
        {
            tracing::info!(session = %session.digest, %cause, "an unused session could not be ended; it will expire");
        }
        return match first {
            Some((server, cause)) => name_member(absence_reply(&cause, message), server),
            None => answer::plain(ErrorKind::UpstreamUnavailable, message.id()),
        };
    }
    let group = &request.server;
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
    request: &GroupRequest<'_>,
    opening: &InitializeRequest<'_>,
) -> Result<Session, OpenError> {
    let session_router = &request.core.session_router;
    if let SessionSource::Begun(session) = &request.session {
        session_router.note_initialize(session, opening).await?;
        return Ok(session.clone());
    }
    let session = request.mint_session()?;
    session_router.begin(&session, opening).await?;
    Ok(session)
}

async fn initialize_member(
    request: &GroupRequest<'_>,
    session: &Session,
    client: &InitDigest,
    member: &Member,
    message: &Message<'_>,
    revision: Revision,
) -> Result<Arc<Map<String, Value>>, AbsenceReason> {
    let server = match member {
        Member::Upstream(server) => server,
        Member::Code(server) => return code(server, message, revision).map(Arc::new),
    };
    let known = request.server.known();
    let known = known.initialize_result(server, client, Instant::now());
    let asking = upstream(request, session, client, server);
    match known {
        Some(known) if server.is_program() => {
            if known.is_due {
                tokio::spawn(for_same_user(asking.map(drop)));
            }
            Ok(known.result)
        }
        Some(known) => match timeout(KNOWN_WAIT, tokio::spawn(for_same_user(asking))).await {
            Ok(answer) => answer.map_err(|_| AbsenceReason::Invalid)?,
            Err(_) => Ok(known.result),
        },
        None => asking.await,
    }
}

/// Binds the member, and remembers its answer.
fn upstream(
    request: &GroupRequest<'_>,
    session: &Session,
    client: &InitDigest,
    server: &Arc<Server>,
) -> impl Future<Output = Result<Arc<Map<String, Value>>, AbsenceReason>> + Send + use<> {
    let session_router = request.core.session_router.clone();
    let limit = session_router.options().answer_timeout;
    let usage = session.usage.clone();
    let (session, client) = (session.clone(), client.clone());
    let (server, known) = (Arc::clone(server), Arc::clone(request.server.known()));
    async move {
        let memory = usage.as_ref().map(|usage| &**usage.replies());
        let asked = Arc::clone(&server);
        let binding = async move { session_router.initialize(&session, &asked).await };
        let bound = server
            .answer_in_time(limit, memory, binding, Result::is_ok)
            .await;
        let (_, initialized) = bound.ok_or(AbsenceReason::Late)??;
        let answer = initialized.answer.message();
        let result: Map<String, Value> = answer
            .and_then(|answer| serde_json::from_str(answer.outcome()?).ok())
            .ok_or(AbsenceReason::Invalid)?;
        let result = Arc::new(result);
        known.note_initialized(&server, &client, Arc::clone(&result), Instant::now());
        Ok(result)
    }
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
