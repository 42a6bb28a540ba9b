//! A server of kind `stdio`: the program that the gateway starts once for each session, what that program may use, and
//! how long it may take. Its sessions are always kept, by the worker that started the program.

pub(super) mod command;
pub(super) mod variables;

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use super::super::paths::absolute;
use super::super::reader::{Reader, Reason};
use super::super::setting::{Disclosure, Integer, Setting, SettingInfo, Text};
use super::super::source::Environment;
use super::kept::{self, Concurrency, OnUpstreamLoss};
use super::kinds;

pub use command::CommandLine;
pub use variables::{ChildVariables, INHERITED_DEFAULT};

const CWD: Text = Text {
    about: SettingInfo::new(
        "servers.cwd",
        "The directory in which the program is started.",
    )
    .unset("the directory in which the gateway was started"),
    default: None,
    shape: "an absolute path of a directory",
    bytes_max: 4096,
    disclosure: Disclosure::Open,
};

const CHILDREN_MAX: Integer = Integer {
    about: SettingInfo::new(
        "servers.children_max",
        "Most processes of this server at the same time in this worker. When a session needs one more, the process that \
         was idle for longest is stopped; where none is idle, the session is refused. A call of kind `agent` is refused.",
    ),
    unit: "processes",
    default: 256,
    least: 1,
    most: 4096,
};

const IDLE_TIMEOUT_SECONDS: Integer = Integer {
    about: SettingInfo::new(
        "servers.idle_timeout_seconds",
        "How long a process may be idle before it is stopped; 0 means until its session ends. The session's next call \
         starts a new process, and its reply says that state was lost. A process with a request in flight is not idle, nor is \
         one that sends messages to a client that listens. `mooring stdio` ignores this: its processes end with its client.",
    ),
    unit: "seconds",
    default: 600,
    least: 0,
    most: 604_800,
};

const START_TIMEOUT_MS: Integer = Integer {
    about: SettingInfo::new(
        "servers.start_timeout_ms",
        "How long a new process may take to answer `initialize`. Programs such as npx download what they run at \
         the first start.",
    ),
    unit: "milliseconds",
    default: 30_000,
    least: 100,
    most: 600_000,
};

const STOP_GRACE_MS: Integer = Integer {
    about: SettingInfo::new(
        "servers.stop_grace_ms",
        "How long a process may take to end after its standard input was closed, and again after SIGTERM; then it \
         and every process that it started are killed.",
    ),
    unit: "milliseconds",
    default: 2000,
    least: 0,
    most: 60_000,
};

const OPEN_FILES_MAX: Integer = Integer {
    about: SettingInfo::new(
        "servers.open_files_max",
        "Most files and sockets that one process may have open; 0 leaves it the gateway's own limit.",
    ),
    unit: "files",
    default: 1024,
    least: 0,
    most: 1_048_576,
};

/// The fields of every server that is a program started here.
pub(super) const PROGRAM_SETTINGS: &[Setting] = &[
    Setting::List(&command::COMMAND),
    Setting::List(&command::ARGS),
    Setting::Map(&variables::ENV),
    Setting::List(&variables::INHERIT_ENV),
    Setting::Integer(&CHILDREN_MAX),
];

/// The fields that only a server of kind `stdio` has.
pub(super) const SETTINGS: &[Setting] = &[
    Setting::Text(&CWD),
    Setting::Integer(&IDLE_TIMEOUT_SECONDS),
    Setting::Integer(&START_TIMEOUT_MS),
    Setting::Integer(&STOP_GRACE_MS),
    Setting::Integer(&OPEN_FILES_MAX),
];

/// One server of kind `stdio`.
#[derive(Debug, Clone)]
pub struct StdioServerSettings {
    /// What is started.
    pub command: CommandLine,
    /// Where it is started; none for the gateway's own directory. May not exist.
    pub directory: Option<PathBuf>,
    /// Its whole environment: nothing else of the gateway's is passed on.
    pub variables: ChildVariables,
    /// Most processes at the same time in this worker.
    pub children_max: NonZeroUsize,
    /// How long a process may be idle; none for as long as its session lives.
    pub idle_timeout: Option<Duration>,
    /// Longest wait for the answer to `initialize`, the start of the program included.
    pub start_timeout: Duration,
    /// Time to end after its input was closed, and again after SIGTERM.
    pub stop_grace: Duration,
    /// Most open files of one process (`RLIMIT_NOFILE`); none for the gateway's own limit.
    pub open_files_max: Option<NonZeroU64>,
    /// Whether tool calls of one session may run at the same time.
    pub concurrency: Concurrency,
    /// What happens to a session whose process was lost.
    pub on_upstream_loss: OnUpstreamLoss,
}

pub(super) fn parse(reader: &mut Reader<'_>, environment: &Environment) -> StdioServerSettings {
    kept::refuse_affinity_off(reader, kinds::STDIO);
    StdioServerSettings {
        command: command::parse(reader),
        directory: reader.text(&CWD, parse_directory),
        variables: variables::parse(reader, environment),
        children_max: parse_children_max(reader),
        idle_timeout: Some(reader.integer(&IDLE_TIMEOUT_SECONDS))
            .filter(|seconds| *seconds > 0)
            .map(Duration::from_secs),
        start_timeout: Duration::from_millis(reader.integer(&START_TIMEOUT_MS)),
        stop_grace: Duration::from_millis(reader.integer(&STOP_GRACE_MS)),
        open_files_max: NonZeroU64::new(reader.integer(&OPEN_FILES_MAX)),
        concurrency: reader.choice(&kept::CONCURRENCY),
        on_upstream_loss: reader.choice(&kept::ON_UPSTREAM_LOSS),
    }
}

/// Most processes of one server at the same time in this worker.
pub(super) fn parse_children_max(reader: &mut Reader<'_>) -> NonZeroUsize {
    usize::try_from(reader.integer(&CHILDREN_MAX))
        .ok()
        .and_then(NonZeroUsize::new)
        .unwrap_or(NonZeroUsize::MIN)
}

/// The absolute path of a directory, which may not exist.
pub(super) fn parse_directory(text: &str) -> Result<PathBuf, Reason> {
    if text.contains('\0') {
        return Err("it has a NUL character".to_owned());
    }
    absolute(text)
}
