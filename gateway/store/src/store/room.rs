//! Makes room for a new session of a principal that is at its session cap.
//!
//! Invariant: the store chooses the candidate, and the caller decides what happens to it; sessions of other families
//! are never ended.

use mooring_session::Refusal;
use mooring_session::rules::{CreateReply, CreateRequest};

use super::Store;
use crate::error::StoreError;
use crate::key::SessionKey;

/// Most candidates for one new session: those in use are skipped, and another caller may take the room that was made.
const ROUNDS_MAX: usize = 16;

/// The result of evicting the candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionOutcome {
    /// It is ended, or was before.
    Made,
    /// It is in use.
    Spared,
}

/// Why no session was created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoomError {
    /// The store refused, or is unavailable.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The principal is at its cap, and no candidate made room.
    #[error("the principal holds {0} sessions, as many as it may, and all of them are in use")]
    Full(u64),
}

impl Store {
    /// Creates the record, or finds it. At the principal's cap, `make_room` gets the least recently used session of the
    /// same family, and ends it if it is idle; one that it spares it must record as used, so that the next candidate is
    /// another.
    ///
    /// # Errors
    /// See [`RoomError`]; what `make_room` says.
    pub async fn create_making_room<F: Future<Output = Result<EvictionOutcome, StoreError>>>(
        &self,
        key: &SessionKey,
        create: &CreateRequest,
        make_room: impl Fn(SessionKey) -> F,
    ) -> Result<CreateReply, RoomError> {
        let mut held = 0;
        let mut spared = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let least_recently_used = match self.create(key, create).await {
                Ok(created) => return Ok(created),
                Err(StoreError::Refused(Refusal::Cap {
                    cap,
                    least_recently_used,
                })) => {
                    held = cap;
                    let named = self.named_key(&least_recently_used);
                    named.filter(|named| named.family() == key.family())
                }
                Err(error) => return Err(error.into()),
            };
            // A session of another kind counts too, and is not to be ended here. One that was spared is named again when
            // all the others have been named since.
            let Some(named) = least_recently_used.filter(|named| !spared.contains(named)) else {
                break;
            };
            if make_room(named.clone()).await? == EvictionOutcome::Spared {
                spared.push(named);
            }
        }
        Err(RoomError::Full(held))
    }
}
