//! One sandbox for all tests of a binary, runs in directories of their own, and the look around after each of them.
//!
//! Tests take turns: what one left is not to be taken for another's, and two processors are not to be shared by what
//! is told apart by time.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mooring_sandbox::{
    Job, Layer, Limits, Network, Options, Outcome, Program, Sandbox, SessionTrees, StopHandle,
};
use tempfile::TempDir;

/// Names the helper's binary where the one that was built cannot be reached: for an ordinary user.
pub(crate) const LAUNCHER_VARIABLE: &str = "MOORING_TEST_LAUNCHER";
/// For anything that has to happen.
pub(crate) const WAIT: Duration = Duration::from_secs(60);

static SANDBOX: LazyLock<Sandbox> = LazyLock::new(|| {
    Sandbox::probe(options()).expect("the walls of the tier stand on this machine")
});
static TURN: Mutex<()> = Mutex::new(());

/// The tier of this binary's tests with the helper's own binary.
pub(crate) fn options() -> Options {
    let launcher = std::env::var_os(LAUNCHER_VARIABLE).map_or_else(
        || PathBuf::from(env!("CARGO_BIN_EXE_mooring-sandbox")),
        PathBuf::from,
    );
    Options {
        launcher,
        ..Options::new(crate::TIER)
    }
}

/// The one sandbox.
pub(crate) fn sandbox() -> &'static Sandbox {
    &SANDBOX
}

/// What an ordinary run may use.
pub(crate) fn limits() -> Limits {
    Limits {
        wall_time: WAIT,
        cpu_time: Duration::from_secs(20),
        cpu_percent: 100,
        memory_bytes: 256 * 1024 * 1024,
        file_bytes: 10 * 1024 * 1024,
        disk_bytes: 32 * 1024 * 1024,
        inodes: 1000,
        processes: 64,
        access: mooring_sandbox::tree::TreeAccess::WHOLE,
        output_bytes: 64 * 1024,
    }
}

/// A test's turn. At its end nothing may be left of what it ran.
pub(crate) struct Turn {
    before: Surroundings,
    _turn: MutexGuard<'static, ()>,
}

impl Turn {
    pub(crate) fn take() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .expect("orphans come to this process");
        // Made before anything is counted.
        let _ = sandbox();
        Self {
            before: Surroundings::now(),
            _turn: turn,
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(Surroundings::now(), self.before, "something was left");
        }
    }
}

/// Everything that a run could leave behind in this process and on this machine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Surroundings {
    descriptors: usize,
    descendants: BTreeSet<i32>,
    mounts: String,
    groups: BTreeSet<PathBuf>,
}

impl Surroundings {
    pub(crate) fn now() -> Self {
        Self {
            descriptors: fs::read_dir("/proc/self/fd")
                .expect("own descriptors")
                .count(),
            descendants: descendants(std::process::id() as i32),
            mounts: fs::read_to_string("/proc/self/mountinfo").expect("own mounts"),
            groups: groups(&format!("-{}-", std::process::id())),
        }
    }
}

/// Descendants of a process, zombies included.
pub(crate) fn descendants(pid: i32) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![pid];
    while let Some(pid) = waiting.pop() {
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
            continue;
        };
        for thread in threads.flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            for child in children
                .split_whitespace()
                .filter_map(|child| child.parse().ok())
            {
                found.insert(child);
                waiting.push(child);
            }
        }
    }
    found
}

/// Control groups of runs whose names hold `part`.
pub(crate) fn groups(part: &str) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("mooring-") && name.contains(part) {
                found.insert(entry.path());
            }
            waiting.push(entry.path());
        }
    }
    found
}

/// A session's directories.
pub(crate) struct Ground(TempDir);

impl Ground {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        for name in ["tools", "skills", "scratch", "results"] {
            fs::create_dir(directory.path().join(name)).expect("a directory");
        }
        fs::write(directory.path().join("tools/_import_map.json"), "{}").expect("a file");
        Self(directory)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn trees(&self) -> SessionTrees {
        let open = |name| OwnedFd::from(File::open(self.path(name)).expect("a directory"));
        SessionTrees {
            tools: open("tools"),
            skills: open("skills"),
            scratch: open("scratch"),
            results: open("results"),
        }
    }

    pub(crate) fn job(&self, program: Program, limits: Limits) -> Job {
        Job {
            program,
            trees: self.trees(),
            limits,
            bridge: None,
            network: Network::None,
        }
    }
}

pub(crate) fn python(source: &str) -> Program {
    Program::Python {
        source: source.to_owned(),
    }
}

/// Runs `program` in directories of its own.
pub(crate) fn run(program: Program, limits: Limits) -> Outcome {
    let stop = StopHandle::new().expect("a handle");
    let ground = Ground::new();
    sandbox()
        .run(ground.job(program, limits), &stop)
        .expect("the run was made")
}

pub(crate) fn run_python(source: &str, limits: Limits) -> Outcome {
    run(python(source), limits)
}

/// Runs Python that writes something and goes on until its wall time ends it, which is longer where the machine is too
/// busy for it to write.
pub(crate) fn run_python_until_its_wall_time(source: &str) -> Outcome {
    let within = |wall_time| {
        run_python(
            source,
            Limits {
                wall_time,
                ..limits()
            },
        )
    };
    [Duration::from_millis(700), Duration::from_secs(6)]
        .into_iter()
        .map(within)
        .find(|outcome| !outcome.stdout.bytes.is_empty())
        .unwrap_or_else(|| within(WAIT))
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until `happened`, and fails with `what` where it does not.
pub(crate) fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT;
    while !happened() {
        assert!(
            Instant::now() < deadline,
            "{what} did not happen within {WAIT:?}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether the tests run as root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs the tests of this binary again as an ordinary user, all but those whose names hold one of `skipped`.
pub(crate) fn again_as_an_ordinary_user(skipped: &[&str]) {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a directory");
    // The mask of this process does not let it be made so.
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777))
        .expect("a directory that all may use");
    let copy = |from: PathBuf, name: &str| {
        let to = directory.path().join(name);
        fs::copy(&from, &to).expect("a copy of a binary");
        to
    };
    let tests = copy(std::env::current_exe().expect("this binary"), "tests");
    let launcher = copy(options().launcher, "launcher");
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=61234", "--regid=61234", "--clear-groups", "--"])
        .arg(tests);
    for name in skipped {
        command.args(["--skip", name]);
    }
    let output = command
        .env(LAUNCHER_VARIABLE, launcher)
        .env("TMPDIR", directory.path())
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .expect("setpriv runs");
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "as an ordinary user:\n{said}");
    assert!(said.contains("test result: ok"), "{said}");
}

pub(crate) fn read_upper(directory: std::os::fd::BorrowedFd<'_>, name: &str) -> String {
    use rustix::fs::{Mode, OFlags, openat};
    let file = openat(
        directory,
        name,
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .expect("a file of the layer");
    std::io::read_to_string(fs::File::from(file)).expect("text")
}

/// Forty processes, each with a session of its own, deaf to every signal that one can be deaf to.
pub(crate) const DEAF_TREE: &str = r"
import os, signal, time
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
for _ in range(40):
    if os.fork() == 0:
        os.setsid()
        while True:
            time.sleep(600)
open('/scratch/kept', 'w').write('kept')
os.write(1, b'forked')
while True:
    time.sleep(600)
";

pub(crate) fn has_group() -> bool {
    sandbox()
        .layers()
        .iter()
        .any(|layer| matches!(layer, Layer::CgroupV1 | Layer::CgroupV2))
}
