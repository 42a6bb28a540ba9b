//! What the walls cost: how long a program takes from its start to its end, and how many runs two threads make in a
//! second, bare, sandboxed, and in helpers that were started in advance; then several starts at the same moment. The
//! variants take turns, so that a busy machine is busy for all of them. Last, what a waiting helper takes of the memory.
//!
//! `MOORING_BENCH_DENO` names a deno that is not in the ordinary directories, `MOORING_BENCH_LAUNCHER` another binary than
//! the helper's own: the gateway's.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark prints, and fails by panicking"
)]

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mooring_sandbox::{
    Job, Limits, Network, Options, Program, RunEnd, Sandbox, SessionTrees, StopHandle, Tier,
};
use tempfile::TempDir;

/// Starts of each variant.
const STARTS: usize = 200;
/// Of the throughput, each variant.
const THROUGHPUT: Duration = Duration::from_secs(5);
/// Threads that run at the same time.
const THREADS: usize = 2;
/// Helpers that wait.
const WARM_HELPERS: usize = 2;
/// Starts at the same moment, with as many helpers that wait, and how often.
const STARTS_AT_ONCE: usize = 4;
const BURSTS: usize = 50;

const LIMITS: Limits = Limits {
    wall_time: Duration::from_secs(30),
    cpu_time: Duration::from_secs(30),
    cpu_percent: 100,
    memory_bytes: 256 * 1024 * 1024,
    file_bytes: 10 * 1024 * 1024,
    disk_bytes: 100 * 1024 * 1024,
    inodes: 10_000,
    processes: 64,
    access: mooring_sandbox::tree::TreeAccess::WHOLE,
    output_bytes: 64 * 1024,
};

/// A program, and how it is started without walls.
struct Subject {
    name: &'static str,
    program: Program,
    binary: PathBuf,
    arguments: Vec<String>,
    /// Where it may keep things.
    cache: PathBuf,
}

fn main() {
    let ground = Ground::new();
    let begun = Instant::now();
    let cold = Sandbox::probe(options(0)).expect("a sandbox");
    println!(
        "probe {:.1} ms, layers {:?}",
        milliseconds(begun.elapsed()),
        cold.layers()
    );
    let warm = Sandbox::probe(options(WARM_HELPERS)).expect("a sandbox");
    let subjects = subjects(&cold, ground.0.path());
    println!(
        "| program | bare p50 | p95 | cold p50 | p95 | p99 | added p50 | setup p50 | warm p50 | p95 | p99 | added p50 | setup p50 |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for subject in &subjects {
        starts(&cold, &warm, &ground, subject);
    }
    println!(
        "| program | bare runs/s | cold runs/s | ratio | with {WARM_HELPERS} helpers runs/s | ratio |"
    );
    println!("|---|---|---|---|---|---|");
    for subject in &subjects {
        let bare = throughput(|| run_bare(subject));
        let [cold, warm] = [&cold, &warm].map(|sandbox| {
            throughput(|| {
                run_walled(sandbox, &ground, subject);
            })
        });
        println!(
            "| {} | {bare:.0} | {cold:.0} | {:.2} | {warm:.0} | {:.2} |",
            subject.name,
            cold / bare,
            warm / bare
        );
    }
    let four = Sandbox::probe(options(STARTS_AT_ONCE)).expect("a sandbox");
    println!(
        "| {STARTS_AT_ONCE} at once | bare p50 | p95 | p99 | warm p50 | p95 | p99 | setup p50 | p95 | p99 |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for subject in &subjects {
        starts_at_once(&four, &ground, subject);
    }
    until_warm(&warm, WARM_HELPERS);
    for [helper, first] in warm.waiting_processes() {
        println!(
            "waiting helper: {} of its own, {} with its share of what is shared; process 1: {}, {}",
            memory(helper, "Private_Dirty"),
            memory(helper, "Pss"),
            memory(first, "Private_Dirty"),
            memory(first, "Pss"),
        );
    }
}

/// A line of what the kernel says of a process's memory.
fn memory(pid: i32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map_or("unknown".to_owned(), |line| line.trim().to_owned())
}

fn until_warm(sandbox: &Sandbox, helpers: usize) {
    while sandbox.waiting_processes().len() < helpers {
        thread::sleep(Duration::from_millis(1));
    }
}

fn options(warm_helpers: usize) -> Options {
    let launcher = std::env::var_os("MOORING_BENCH_LAUNCHER").map(PathBuf::from);
    Options {
        launcher: launcher.unwrap_or_else(|| env!("CARGO_BIN_EXE_mooring-sandbox").into()),
        deno: std::env::var_os("MOORING_BENCH_DENO").map(PathBuf::from),
        warm_helpers,
        ..Options::new(Tier::Strict)
    }
}

/// Those whose runtimes are installed.
fn subjects(sandbox: &Sandbox, directory: &Path) -> Vec<Subject> {
    let mut subjects = Vec::new();
    let runtimes = sandbox.runtimes();
    let file = |name: &str, text: &str| {
        let path = directory.join(name);
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    if let Some(binary) = runtimes.tool("cat").and_then(|tool| tool.path()) {
        let stages = vec![mooring_sandbox::Stage {
            tool: "cat".to_owned(),
            arguments: Vec::new(),
        }];
        let program = Program::Pipeline { stages };
        subjects.push(Subject {
            name: "cat",
            program,
            binary: binary.to_owned(),
            arguments: Vec::new(),
            cache: directory.join("cache"),
        });
    }
    if let Some(binary) = runtimes.python.path() {
        let source = "print('ready')".to_owned();
        let arguments = ["-s", "-S", "-B", "-u"]
            .map(str::to_owned)
            .into_iter()
            .chain([file("main.py", &source)]);
        let (arguments, binary) = (arguments.collect(), binary.to_owned());
        subjects.push(Subject {
            name: "python",
            program: Program::Python { source },
            binary,
            arguments,
            cache: directory.join("cache"),
        });
    }
    if let Some(binary) = runtimes.deno.path() {
        let source = "const ready: string = 'ready'; console.log(ready)".to_owned();
        let arguments = [
            "run",
            "--quiet",
            "--no-prompt",
            "--no-remote",
            "--no-npm",
            "--no-config",
            "--no-lock",
        ];
        let arguments = arguments
            .map(str::to_owned)
            .into_iter()
            .chain([file("main.ts", &source)]);
        let (arguments, binary) = (arguments.collect(), binary.to_owned());
        subjects.push(Subject {
            name: "deno",
            program: Program::TypeScript { source },
            binary,
            arguments,
            cache: directory.join("cache"),
        });
    } else {
        println!("deno: {:?}", runtimes.deno);
    }
    subjects
}

fn starts(cold: &Sandbox, warm: &Sandbox, ground: &Ground, subject: &Subject) {
    let mut bare = Vec::new();
    let mut walled = [cold, warm].map(|sandbox| (sandbox, Vec::new(), Vec::new()));
    for _ in 0..STARTS {
        // Not while helpers are begun.
        until_warm(warm, WARM_HELPERS);
        bare.push(timed(|| run_bare(subject)));
        for (sandbox, times, setups) in &mut walled {
            times.push(timed(|| setups.push(run_walled(sandbox, ground, subject))));
        }
    }
    let [bare_50, bare_95, _] = percentiles(&mut bare);
    print!("| {} | {bare_50:.1} | {bare_95:.1} |", subject.name);
    for (_, times, setups) in &mut walled {
        let [p50, p95, p99] = percentiles(times);
        let [setup, ..] = percentiles(setups);
        let added = p50 - bare_50;
        print!(" {p50:.1} | {p95:.1} | {p99:.1} | {added:.1} | {setup:.1} |");
    }
    println!();
}

fn starts_at_once(warm: &Sandbox, ground: &Ground, subject: &Subject) {
    let mut bare = Vec::new();
    let mut walled = Vec::new();
    let mut setups = Vec::new();
    for _ in 0..BURSTS {
        until_warm(warm, STARTS_AT_ONCE);
        let times = at_once(|| timed(|| run_bare(subject)));
        bare.extend(times);
        for (time, setup) in at_once(|| {
            let begun = Instant::now();
            let setup = run_walled(warm, ground, subject);
            (begun.elapsed(), setup)
        }) {
            walled.push(time);
            setups.push(setup);
        }
    }
    print!("| {} |", subject.name);
    for times in [&mut bare, &mut walled, &mut setups] {
        let [p50, p95, p99] = percentiles(times);
        print!(" {p50:.1} | {p95:.1} | {p99:.1} |");
    }
    println!();
}

/// What the work returns in each of several threads that begin at the same moment.
fn at_once<T: Send>(work: impl Fn() -> T + Sync) -> Vec<T> {
    let begin = Barrier::new(STARTS_AT_ONCE);
    let work = || {
        begin.wait();
        work()
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..STARTS_AT_ONCE).map(|_| scope.spawn(work)).collect();
        let results = threads.into_iter().map(|thread| thread.join());
        results.map(|result| result.expect("it runs")).collect()
    })
}

fn run_bare(subject: &Subject) {
    let output = Command::new(&subject.binary)
        .args(&subject.arguments)
        .env_clear()
        // Without a home it has no other place for what it keeps.
        .env("DENO_DIR", &subject.cache)
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{output:?}");
}

/// Gives the time from the call to the start of the program.
fn run_walled(sandbox: &Sandbox, ground: &Ground, subject: &Subject) -> Duration {
    // As the gateway passes one to everything but tools.
    let has_bridge = !matches!(subject.program, Program::Pipeline { .. });
    let bridge = has_bridge.then(|| UnixStream::pair().expect("a bridge"));
    let (_near, far) = bridge.unzip();
    let job = Job {
        program: subject.program.clone(),
        trees: ground.trees(),
        limits: LIMITS,
        bridge: far.map(OwnedFd::from),
        network: Network::None,
    };
    let outcome = sandbox
        .run(job, &StopHandle::new().expect("a handle"))
        .expect("it runs");
    assert_eq!(
        outcome.ended,
        RunEnd::Exited(0),
        "{}",
        String::from_utf8_lossy(&outcome.stderr.bytes)
    );
    outcome.usage.start_time
}

fn timed(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    work();
    begun.elapsed()
}

/// In a second.
fn throughput(work: impl Fn() + Sync) -> f64 {
    let done = AtomicUsize::new(0);
    let begun = Instant::now();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while begun.elapsed() < THROUGHPUT {
                    work();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64()
}

/// The middle, the 95th and the 99th of a hundred, in milliseconds.
fn percentiles(times: &mut [Duration]) -> [f64; 3] {
    times.sort_unstable();
    [50, 95, 99].map(|percent| {
        let at = times.get(times.len() * percent / 100).copied();
        milliseconds(at.unwrap_or_default())
    })
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// A session's directories.
struct Ground(TempDir);

impl Ground {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        for name in ["tools", "skills", "scratch", "results"] {
            fs::create_dir(directory.path().join(name)).expect("a directory");
        }
        fs::write(directory.path().join("tools/_import_map.json"), "{}").expect("a file");
        Self(directory)
    }

    fn trees(&self) -> SessionTrees {
        let open = |name| OwnedFd::from(File::open(self.0.path().join(name)).expect("a directory"));
        SessionTrees {
            tools: open("tools"),
            skills: open("skills"),
            scratch: open("scratch"),
            results: open("results"),
        }
    }
}
