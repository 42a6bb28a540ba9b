//! The incarnation of a session for which a directory is opened.

/// The session's incarnation in the store, or that the store was away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incarnation {
    /// The store has a record of it.
    Recorded {
        /// The record's generation.
        generation: u64,
        /// When the record's incarnation began, by the store's clock, in milliseconds since 1970.
        created_at_ms: u64,
        /// Whether the key was empty when the incarnation began; otherwise the session before it had ended.
        is_new_key: bool,
        /// The generation that an earlier attempt was refused by ([`SessionOpenError::Superseded`]), where the record was read
        /// again after that: then the record is right, and the directory is an earlier store's.
        ///
        /// [`SessionOpenError::Superseded`]: super::SessionOpenError::Superseded
        outranks: Option<u64>,
    },
    /// The store is away: the directory alone says what the session is.
    StoreAway,
}

impl Incarnation {
    /// Whether the session is used without the store knowing.
    pub(super) const fn is_away(self) -> bool {
        matches!(self, Self::StoreAway)
    }
}
