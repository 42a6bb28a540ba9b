//! A running child process, as its user sees it.

use std::sync::Arc;

use super::stderr::RecentLines;
use crate::connection::link::Link;

/// The server and session of a child, for logs.
#[derive(Clone, Debug)]
pub struct Label {
    /// The server's id.
    pub server: Arc<str>,
    /// The digest of the session id, never the id.
    pub session: Arc<str>,
}

/// A started child. Dropping the link's `stop` ends it: its stdin is closed, then SIGTERM, then SIGKILL.
#[derive(Debug)]
pub struct Child {
    /// The messages to and from it. `gone` is cancelled when none of its processes is left.
    pub link: Link,
    /// Its process id, which is also its process group.
    pub pid: i32,
    /// The process id of its guard, see [`super::supervisor`].
    pub guard_pid: i32,
    /// The last lines that it wrote to stderr.
    pub stderr: RecentLines,
}
