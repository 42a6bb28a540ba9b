//! What has to be a process of its own, because it is killed or started within walls: this test executed again.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mooring_sandbox::tree::{SessionDirectory, commit};
use mooring_sandbox::{Job, Limits, Network, Outcome, Program, RunError, Sandbox, Stop, Tier};

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
    /// Says how the commits of a run that wrote much and of one that wrote little end.
    Commit,
}

impl Scene {
    const fn name(self) -> &'static str {
        match self {
            Self::Endless => "endless",
            Self::Probe => "probe",
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

fn say(sandbox: &Sandbox, planted: &Planted, source: &str, limits: Limits) {
    match run(sandbox, planted, source, limits) {
        Ok(outcome) => {
            let said = String::from_utf8_lossy(&outcome.stdout.bytes).into_owned();
            println!("run: {:?} {said}", outcome.ended);
        }
        Err(error) => println!("run refused: {error}"),
    }
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
    sandbox.run(job, &Stop::new().unwrap())
}
