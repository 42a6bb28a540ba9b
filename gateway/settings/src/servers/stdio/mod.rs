//! A server of kind `stdio`: the program that the gateway starts once for each session, what that program may use, and
//! how long it may take. Its sessions are always kept, by the worker that started the program.

pub(super) mod command;
pub(super) mod variables;

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use super::session_policy::{
    CONCURRENCY, CONTINUITY, Concurrency, Continuity, LOST_STATE_NOTICE, LostStateNotice,
    ON_UPSTREAM_LOSS, OnUpstreamLoss,
};
use crate::paths::{ABSOLUTE_DIRECTORY, PATH_BYTES_MAX, absolute};
use crate::reader::{Reason, text};
use crate::rows::settings;

pub use command::CommandLine;
pub use variables::{ChildVariables, INHERITED_DEFAULT};

settings! {
    /// The field of every server that is a program started here, besides those about the program itself.
    pub(super) const PROGRAM_ROWS {
        /// Most processes of this server at the same time in this gateway: one that npx starts takes about 130 MB.
        /// When a session needs one more, the process
        /// that was idle for longest is stopped; if none is idle, the session is refused. A call of kind `agent` is
        /// refused.
        CHILDREN_MAX = Integer("servers.children_max", "processes", 32, 1..=4096),
    }
}

settings! {
    /// One server of kind `stdio`.
    pub struct StdioServerSettings {
        /// What is started.
        pub command: CommandLine => command::parse,
        /// The directory in which the program is started.
        pub directory: Option<PathBuf> = Text("servers.cwd", PATH_BYTES_MAX, ABSOLUTE_DIRECTORY, None)
            .unset("the directory in which the gateway was started") => text(parse_directory),
        /// Its whole environment: nothing else of the gateway's is passed on.
        pub variables: ChildVariables => variables::parse,
        /// Most processes at the same time in this worker.
        pub children_max: NonZeroUsize => |reader| reader.read(&CHILDREN_MAX),
        /// How long a process may be idle before it is stopped; 0 means until its session ends. The session's next call
        /// starts a new process, and its reply says that state was lost. A process with a request in flight is not
        /// idle, nor is one that sends messages to a client that listens. A process whose client had a GET stream, and has
        /// not opened it again, may be idle for a fifth of this; one that was never called, and whose client has no stream,
        /// for a tenth, and then nothing is lost. `mooring stdio` ignores this: its processes
        /// end with its client.
        pub idle_timeout: Option<Duration> = Integer("servers.idle_timeout_seconds", "seconds", 600, 0..=604_800),
        /// How long a new process may take to answer `initialize`. Programs such as npx download what they run at the
        /// first start.
        pub start_timeout: Duration = Integer("servers.start_timeout_ms", "milliseconds", 30_000, 100..=600_000),
        /// How long a process may take to end after its standard input was closed, and again after SIGTERM; then it and
        /// every process that it started are killed.
        pub stop_grace: Duration = Integer("servers.stop_grace_ms", "milliseconds", 2000, 0..=60_000),
        /// Most files and sockets that one process may have open; 0 leaves it the gateway's own limit.
        pub open_files_max: Option<NonZeroU64> = Integer("servers.open_files_max", "files", 1024, 0..=1_048_576),
        /// Whether tool calls of one session may run at the same time.
        pub concurrency: Concurrency => |reader| reader.read(&CONCURRENCY),
        /// What happens to a session whose process was lost.
        pub on_upstream_loss: OnUpstreamLoss => |reader| reader.read(&ON_UPSTREAM_LOSS),
        /// Where the first result of a tool after a loss reports that state is gone.
        pub lost_state_notice: LostStateNotice => |reader| reader.read(&LOST_STATE_NOTICE),
        /// Which requests without a session of their own share one.
        pub continuity: Continuity => |reader| reader.read(&CONTINUITY),
    }
}

/// The absolute path of a directory, which may not exist.
pub(super) fn parse_directory(text: &str) -> Result<PathBuf, Reason> {
    if text.contains('\0') {
        return Err("it has a NUL character".to_owned());
    }
    absolute(text)
}
