//! A new session of a principal that holds as many as it may: another one makes room for it.
//!
//! Invariant: which one is looked at the store says, and what becomes of it the caller; a session of another family is
//! nobody's to end.

use mooring_session::Refusal;
use mooring_session::rules::{CreateReply, CreateRequest};

use super::key::SessionKey;
use super::{Store, StoreError};

/// Most sessions that are looked at to make room for one: those in use are passed over, and room that was made may be
/// taken by somebody else who waits for it.
const ROUNDS_MAX: usize = 16;

/// What became of the session that was to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionOutcome {
    /// It is ended, or was before.
    Made,
    /// It is in use.
    Spared,
}

/// Why there is no new session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoomError {
    /// The store refused, or could not be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The principal holds this many, and none of them made room.
    #[error("the principal holds {0} sessions, as many as it may, and all of them are in use")]
    Full(u64),
}

impl Store {
    /// Creates the record, or finds it. At the principal's cap `make_room` is given the least recently used of its sessions
    /// of the same family, to end it if it is idle; one that it spares it has to note as used, so that the next is named.
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
