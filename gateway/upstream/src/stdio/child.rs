//! One child, as whoever uses it sees it.

use std::sync::Arc;

use super::stderr::RecentLines;
use crate::connection::link::Link;

/// Whose child it is, as logs show it.
#[derive(Clone, Debug)]
pub struct Label {
    /// The server's id.
    pub server: Arc<str>,
    /// The digest of the session: never its id.
    pub session: Arc<str>,
}

/// A child that was started. Dropping the link's `stop` ends it: its input is closed, then SIGTERM, then SIGKILL.
#[derive(Debug)]
pub struct Child {
    /// To it and from it. Its `gone` is cancelled when no process of it is left.
    pub link: Link,
    /// Its process, the leader of a process group of its own.
    pub pid: i32,
    /// The guard above it, see [`super::supervisor`].
    pub guard_pid: i32,
    /// What it wrote to its standard error last.
    pub stderr: RecentLines,
}
