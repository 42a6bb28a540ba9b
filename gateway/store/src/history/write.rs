//! What a store is given to write.

use mooring_session::time::Millis;

/// New entries of one history, for a store.
#[derive(Clone, Debug)]
pub(crate) struct HistoryWrite {
    /// The digest of the session.
    pub(crate) session: Box<str>,
    /// The entries, in order.
    pub(crate) entries: Vec<String>,
    /// Most entries of the history; older ones are dropped.
    pub(crate) entries_max: usize,
    /// How long the history is kept from now on.
    pub(crate) keep: Millis,
}
