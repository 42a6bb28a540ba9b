//! How a fault meets a gateway at a chosen moment: it asks for the moment, and a user that reaches it says so, and whose
//! session that is.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::user::SharedSession;

/// After this time a fault comes without its moment: no user may be at the gateway.
const REACHED_WITHIN: Duration = Duration::from_secs(1);

/// A moment of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// A call is sent to it.
    Call,
    /// A session begins a pause at it.
    Idle,
}

/// The moments that are waited for, by gateway.
#[derive(Debug)]
pub(super) struct Aim(Vec<watch::Sender<Option<Wanted>>>);

#[derive(Debug)]
struct Wanted {
    moment: Moment,
    reached: mpsc::Sender<Arc<SharedSession>>,
}

impl Aim {
    pub(super) fn new(gateways: usize) -> Self {
        Self((0..gateways).map(|_| watch::Sender::default()).collect())
    }

    /// A user of this session is at this moment.
    pub(super) fn is_at(&self, gateway: usize, moment: Moment, session: &Arc<SharedSession>) {
        self.0[gateway].send_if_modified(|wanted| {
            let reached = wanted.take_if(|wanted| wanted.moment == moment);
            // Room for one, and nobody else has sent it.
            reached.is_some_and(|wanted| wanted.reached.try_send(Arc::clone(session)).is_ok())
        });
    }

    /// Returns at the next such moment, with the session that is at it, or after a while.
    pub(super) async fn wait_for(
        &self,
        gateway: usize,
        moment: Moment,
    ) -> Option<Arc<SharedSession>> {
        let (reached, mut session) = mpsc::channel(1);
        self.0[gateway].send_replace(Some(Wanted { moment, reached }));
        let session = timeout(REACHED_WITHIN, session.recv()).await;
        self.0[gateway].send_replace(None);
        session.ok().flatten()
    }
}
