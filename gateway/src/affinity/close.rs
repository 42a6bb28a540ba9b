//! Closing: the client deletes its session, and what it held upstream goes with it.

use futures_util::future::join_all;
use mooring_session::rules::{End, EndWhen};
use mooring_session::view::RecordView;

use super::{Affinity, Session};
use crate::store::StoreError;
use crate::upstream::{Server, Servers};

/// Whether a session was still there to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// This call closed it.
    Now,
    /// It was closed before.
    Before,
}

impl Affinity {
    /// Ends the session and deletes its upstream sessions. Ending twice is no error. The store may have ended it for
    /// a command whose reply was lost and tell the repeated one that it was ended before, so both clean up: an upstream
    /// takes a second DELETE for what it is.
    ///
    /// # Errors
    /// What the store refuses: an unknown session, somebody else's; or that it cannot be asked.
    pub async fn close(&self, session: &Session, servers: &Servers) -> Result<Closed, StoreError> {
        let ended = self.store().end(&session.key, &ending(session)).await?;
        for binding in &ended.record.bindings {
            self.driven().forget(session, &binding.server);
        }
        self.clean_up(&ended.record, servers).await;
        Ok(if ended.ended_now {
            Closed::Now
        } else {
            Closed::Before
        })
    }

    /// Ends a session whose upstream is gone, so that its client initializes again. There is nothing left to delete.
    pub(super) async fn close_lost(&self, session: &Session, server: &Server) {
        self.driven().forget(session, &server.id);
        if let Err(error) = self.store().end(&session.key, &ending(session)).await {
            tracing::warn!(session = %session.digest, %error, "a lost session could not be ended; it will expire");
        }
    }

    /// Deletes upstream whatever the record's bindings hold, all at once.
    pub async fn clean_up(&self, record: &RecordView, servers: &Servers) {
        let deletions = record.bindings.iter().filter_map(|binding| {
            let server = servers.get(binding.server.as_str())?;
            let instance = server.instance(&binding.instance)?;
            let upstream_session = binding.upstream_session.clone()?;
            Some(self.delete_upstream(server, instance, upstream_session))
        });
        join_all(deletions).await;
    }
}

fn ending(session: &Session) -> End {
    End {
        principal: Some(session.principal.clone()),
        when: EndWhen::Always,
    }
}
