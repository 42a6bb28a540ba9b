//! Moving a session's binding to another instance, or to another gateway that makes its connection.

use super::{Act, ActOutcome, ActPreview, ActProgress};
use crate::operator::{Operator, OperatorIdentity};
use crate::operator_error::OperatorError;
use crate::sessions::{SessionSummary, StoredSession};
use mooring_router::affinity::{MoveError, MoveRequest, MoveTiming};
use mooring_session::names::{InstanceName, ServerName};
use mooring_settings::Right;

const ACT: Act = Act {
    name: "sessions.move",
    right: Right::SessionsManage,
};

/// What to move, and where.
#[derive(Clone, Copy, Debug)]
pub struct SessionMove<'a> {
    /// The session, by its digest or the beginning of it.
    pub session: &'a str,
    /// The server at which it is bound; none where it is bound at one only.
    pub server: Option<&'a str>,
    /// The instance to move to; none for another one that is not parked.
    pub to: Option<&'a str>,
    /// Whether a call that runs is not waited for.
    pub is_forced: bool,
}

/// The names of a move, checked.
struct CheckedMove {
    found: StoredSession,
    server: ServerName,
    to: Option<InstanceName>,
}

impl CheckedMove {
    fn request(&self) -> MoveRequest<'_> {
        MoveRequest {
            key: &self.found.key,
            server: &self.server,
            to: self.to.as_ref(),
        }
    }
}

impl Operator {
    /// What [`move_session`](Self::move_session) would do. Needs `sessions.manage`.
    ///
    /// # Errors
    /// Forbidden, or why it cannot be moved.
    pub async fn preview_move(
        &self,
        operator: &OperatorIdentity,
        request: SessionMove<'_>,
    ) -> Result<ActPreview, OperatorError> {
        self.require(operator, ACT.right)?;
        let checked = self.check_move(request).await?;
        let router = &self.directory.core.session_router;
        let preview = router.preview_move(checked.request()).await?;
        let consequence = match (preview.ends_session, preview.state_lost) {
            (true, _) => "the client's session ends, as on_upstream_loss says",
            (false, true) => "it loses what the instance keeps for it, and its client is told",
            (false, false) => "nothing is lost",
        };
        Ok(ActPreview {
            act: ACT.name.to_owned(),
            effect: format!(
                "at {} it leaves {} for {}; {consequence}",
                preview.server,
                preview.from,
                preview.to.join(" or ")
            ),
            sessions: 1,
            sample: vec![SessionSummary::of(&checked.found)],
            complete: true,
        })
    }

    /// Moves a session's binding between two calls; at once if it is forced. Needs `sessions.manage`.
    ///
    /// # Errors
    /// Forbidden, or why it was not moved.
    pub async fn move_session(
        &self,
        operator: &OperatorIdentity,
        request: SessionMove<'_>,
    ) -> Result<ActProgress, OperatorError> {
        let look_up = async {
            let checked = self.check_move(request).await?;
            Ok((checked.found.key.digest().into(), checked))
        };
        let doing = async |checked: CheckedMove| {
            let timing = match request.is_forced {
                true => MoveTiming::AtOnce,
                false => MoveTiming::BetweenCalls,
            };
            let router = &self.directory.core.session_router;
            let moved = router.move_binding(checked.request(), timing).await?;
            let words = match &moved.to {
                Some(to) => format!("moved from {} to {to}, epoch {}", moved.from, moved.epoch),
                None => format!("left {}, and the client's session ended", moved.from),
            };
            Ok(ActOutcome {
                detail: Some(words.clone()),
                words,
                changed: 1,
                is_left: false,
            })
        };
        self.perform(operator, ACT, look_up, doing).await
    }

    async fn check_move(&self, request: SessionMove<'_>) -> Result<CheckedMove, OperatorError> {
        let found = self.find(request.session).await?;
        let to = request.to.map(|name| InstanceName::parse(name.as_bytes()));
        let to = to
            .transpose()
            .map_err(|_| OperatorError::InstanceNotFound)?;
        let server = match request.server {
            Some(name) => {
                ServerName::parse(name.as_bytes()).map_err(|_| OperatorError::ServerNotFound)?
            }
            None => match &*found.record.bindings {
                [one] => one.server.clone(),
                [] => return Err(MoveError::NotBound.into()),
                _ => return Err(OperatorError::SeveralServers),
            },
        };
        Ok(CheckedMove { found, server, to })
    }
}
