//! A database and a key in it: identifies a session in the queues of turns and events of a node.

use std::fmt;

/// A session on a node: a database and a key in it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionPlace {
    /// The number of the database.
    pub database: i32,
    /// The session's key.
    pub key: Box<[u8]>,
}

impl SessionPlace {
    /// The session under `key` in `database`.
    #[must_use]
    pub fn new(database: i32, key: &[u8]) -> Self {
        Self {
            database,
            key: key.into(),
        }
    }
}

/// The key names the session, so it is not shown.
impl fmt::Debug for SessionPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "SessionPlace(database {}, {} bytes)",
            self.database,
            self.key.len()
        )
    }
}
