//! What has to be a process of its own, because it is killed or started within walls: this test executed again.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mooring_sandbox::tree::{SessionDirectory, commit};
use mooring_sandbox::{
    Job, Limits, Network, Outcome, Program, RunError, Sandbox, StopHandle, Tier,
};

use crate::arena::{limits, options, trees};
use crate::planted::Planted;
use crate::who::Binaries;

const SCENE: &str = "MOORING_ABUSE_SCENE";
const TIER: &str = "MOORING_ABUSE_TIER";
const PLANTED: &str = "MOORING_ABUSE_DRIVER_PLANTED";

/// What the process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scene {
    /// Runs something that never ends by itself.
    Endless,
    /// Says whether the walls stand, which they are, and how a plain run and one that wants too much memory end.
    Probe,
    /// Says how runs end that keep memory where it is in no process's resident pages.
    HiddenMemory,
    /// Says which limits a run has met that starts threads until it is refused one, and one that starts a few.
    ManyThreads,
    /// Says how the commits of a run that wrote much and of one that wrote little end.
    Commit,
}

impl Scene {
    const fn name(self) -> &'static str {
        match self {
            Self::Endless => "endless",
            Self::Probe => "probe",
            Self::HiddenMemory => "hidden-memory",
            Self::ManyThreads => "many-threads",
            Self::Commit => "commit",
        }
    }
}

/// The process, as this user.
pub(crate) fn start(scene: Scene, tier: Tier, planted: &Planted) -> Child {
    let mut command = command(scene, tier, planted);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// The same, not started yet.
pub(crate) fn command(scene: Scene, tier: Tier, planted: &Planted) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "driver::a_scene",
            "--exact",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(SCENE, scene.name())
        .env(TIER, tier.as_str())
        .env(PLANTED, planted.root());
    command
}

/// Not a test: what the others start.
#[test]
#[ignore = "is started by other tests"]
fn a_scene() {
    let variable = |name: &str| std::env::var(name).ok();
    let (Some(scene), Some(tier), Some(root)) =
        (variable(SCENE), variable(TIER), variable(PLANTED))
    else {
        return;
    };
    let tier = if tier == Tier::Strict.as_str() {
        Tier::Strict
    } else {
        Tier::Degraded
    };
    let planted = Planted::at(PathBuf::from(root));
    let sandbox = match Sandbox::probe(options(tier, &Binaries::of_this_process())) {
        Ok(sandbox) => sandbox,
        Err(error) => {
            println!("refused: {error}");
            return;
        }
    };
    println!("layers: {:?}", sandbox.layers());
    if scene == Scene::Endless.name() {
        let wall_time = Duration::from_secs(600);
        say(
            &sandbox,
            &planted,
            ENDLESS,
            Limits {
                wall_time,
                ..limits()
            },
        );
    } else if scene == Scene::HiddenMemory.name() {
        for (_, source) in HIDDEN_MEMORY {
            say(&sandbox, &planted, source, limits());
        }
    } else if scene == Scene::ManyThreads.name() {
        for count in [16, 4] {
            say_limits(&sandbox, &planted, count);
        }
    } else if scene == Scene::Commit.name() {
        for kilobytes in [800, 8] {
            say_commit(&sandbox, &planted, kilobytes);
        }
    } else {
        say(&sandbox, &planted, "print('fine')", limits());
        let memory_bytes = 64 << 20;
        let greedy = "print(len(bytearray(b'x') * (300 << 20)))";
        say(
            &sandbox,
            &planted,
            greedy,
            Limits {
                memory_bytes,
                ..limits()
            },
        );
    }
}

const ENDLESS: &str = "
import ctypes, os, signal, time
ctypes.CDLL(None).prctl(15, b'abuse-mark', 0, 0, 0)
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
for _ in range(4):
    if os.fork() == 0:
        break
while True:
    time.sleep(60)
";

/// Programs that keep more than 256 MiB for two seconds where the sum of resident pages does not show it.
pub(crate) const HIDDEN_MEMORY: &[(&str, &str)] = &[
    (
        "queues of sockets",
        r"
import os, socket, time
children = []
for _ in range(8):
    child = os.fork()
    if child == 0:
        pairs = [socket.socketpair() for _ in range(100)]
        for one in [one for pair in pairs for one in pair]:
            one.setblocking(False)
            try:
                while True:
                    one.send(bytes(60000))
            except BlockingIOError:
                pass
        time.sleep(2)
        os._exit(0)
    children.append(child)
print('done' if all(os.waitpid(child, 0)[1] == 0 for child in children) else 'stopped')",
    ),
    (
        "page tables",
        r"
import ctypes, mmap, os, time
children = []
file = open('sparse', 'w+b')
file.truncate(4096)
for _ in range(40):
    child = os.fork()
    if child == 0:
        # The same page again and again, each time in a table of its own.
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p] + [ctypes.c_long] * 5
        at = 1 << 44
        for number in range(2500):
            found = libc.mmap(at + (number << 21), 4096, 1, 0x100001, file.fileno(), 0)
            if found in (None, 2**64 - 1):
                os._exit(1)
            ctypes.string_at(found, 1)
        time.sleep(2)
        os._exit(0)
    children.append(child)
print('done' if all(os.waitpid(child, 0)[1] == 0 for child in children) else 'stopped')",
    ),
    (
        "processes whose first thread has ended",
        r"
import ctypes, os, threading, time
libc = ctypes.CDLL(None)
children, (out, into) = [], os.pipe()
def hold():
    kept = bytearray(b'x') * (40 << 20)
    os.write(into, b'x')
    time.sleep(2)
    os._exit(0)
for _ in range(8):
    child = os.fork()
    if child == 0:
        threading.Thread(target=hold).start()
        libc.syscall(60, 0)
    children.append(child)
print('done' if all(os.waitpid(child, 0)[1] == 0 for child in children) else 'stopped')",
    ),
];

fn say(sandbox: &Sandbox, planted: &Planted, source: &str, limits: Limits) {
    match run(sandbox, planted, source, limits) {
        Ok(outcome) => {
            let said = String::from_utf8_lossy(&outcome.stdout.bytes).into_owned();
            println!("run: {:?} {said}", outcome.ended);
        }
        Err(error) => println!("run refused: {error}"),
    }
}

/// A run with `count` threads, where 8 are allowed. It goes on with those that it has until it is stopped.
fn say_limits(sandbox: &Sandbox, planted: &Planted, count: usize) {
    let source = format!(
        "import threading, time\ntry:\n    for _ in range({count} - 1):\n        \
         threading.Thread(target=time.sleep, args=(60,)).start()\nexcept RuntimeError:\n    pass\ntime.sleep(60)"
    );
    let limits = Limits {
        processes: 8,
        wall_time: Duration::from_secs(2),
        ..limits()
    };
    let outcome = run(sandbox, planted, &source, limits).unwrap();
    println!(
        "{count} threads: {:?} {:?}",
        outcome.ended, outcome.limits_reached
    );
}

fn say_commit(sandbox: &Sandbox, planted: &Planted, kilobytes: usize) {
    let source = format!("open('new.txt', 'w').write('x' * 1000 * {kilobytes})");
    let outcome = run(sandbox, planted, &source, limits()).unwrap();
    let root = File::open(planted.session()).unwrap().into();
    let session = SessionDirectory::create(root).unwrap();
    match commit(&session, &outcome.changes, &limits(), None) {
        Ok(committed) => println!("committed: {} bytes", committed.bytes),
        Err(error) => println!("commit refused: {error}"),
    }
    let mut names: Vec<_> = std::fs::read_dir(planted.scratch())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    println!("scratch: {names:?}");
}

fn run(
    sandbox: &Sandbox,
    planted: &Planted,
    source: &str,
    limits: Limits,
) -> Result<Outcome, RunError> {
    let program = Program::Python {
        source: source.to_owned(),
    };
    let job = Job {
        program,
        trees: trees(planted),
        limits,
        bridge: None,
        network: Network::None,
    };
    sandbox.run(job, &StopHandle::new().unwrap())
}
