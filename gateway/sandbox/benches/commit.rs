//! What a commit costs, by the number of files, against a plain `cp -r` of the same layer.
//!
//! The layer is on a tmpfs, as a run's is, and the session in the temporary directory. Each figure is the median.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints its table and may fail loudly"
)]

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use mooring_sandbox::tree::{SessionDirectory, VirtualPath, commit, write};
use mooring_sandbox::{Changes, Limits};
use tempfile::TempDir;

const ROUNDS: usize = 15;

/// A layer: how many files, of which length.
const LAYERS: [(usize, usize); 6] = [
    (0, 0),
    (1, 1000),
    (10, 1000),
    (100, 1000),
    (1000, 1000),
    (1, 10 << 20),
];

fn main() {
    println!(
        "| files | bytes each | first commit | over the same | cp -r | first / cp | after a commit, fs_write |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut kept = Vec::new();
    for (files, bytes) in LAYERS {
        let (mut first, mut again, mut copies, mut writes) = (vec![], vec![], vec![], vec![]);
        let layer = TempDir::new_in("/dev/shm").unwrap();
        for name in ["scratch/data", "results"] {
            fs::create_dir_all(layer.path().join(name)).unwrap();
        }
        if files == 0 {
            fs::remove_dir(layer.path().join("scratch/data")).unwrap();
        }
        for number in 0..files {
            fs::write(
                layer.path().join(format!("scratch/data/{number}")),
                vec![b'x'; bytes],
            )
            .unwrap();
        }
        // Nothing is removed before the end: some filesystems are slow to use the numbers of removed files again.
        let bases: Vec<_> = (0..ROUNDS).map(|_| TempDir::new().unwrap()).collect();
        for base in &bases {
            copies.push(timed(|| copy(layer.path(), base.path())));
            let session = session(base.path());
            first.push(timed(|| keep(&session, layer.path())));
        }
        for base in &bases {
            let session = session(base.path());
            again.push(timed(|| keep(&session, layer.path())));
            let path = VirtualPath::parse("/scratch/one").unwrap();
            writes.push(timed(|| {
                write(&session, &path, b"content", &roomy()).unwrap();
            }));
        }
        kept.push(bases);
        let (first, again) = (median(first), median(again));
        let (copy, write) = (median(copies), median(writes));
        println!(
            "| {files} | {bytes} | {first:.2?} | {again:.2?} | {copy:.2?} | {:.2} | {write:.2?} |",
            first.as_secs_f64() / copy.as_secs_f64()
        );
    }
}

fn copy(layer: &Path, base: &Path) {
    let status = Command::new("cp")
        .arg("-r")
        .arg(layer.join("scratch"))
        .arg(base.join("copy"))
        .status();
    assert!(status.unwrap().success());
}

fn session(base: &Path) -> SessionDirectory {
    fs::create_dir_all(base.join("root")).unwrap();
    SessionDirectory::create(File::open(base.join("root")).unwrap().into()).unwrap()
}

fn keep(session: &SessionDirectory, layer: &Path) {
    let open = |name: &str| File::open(layer.join(name)).unwrap().into();
    let changes = Changes {
        scratch: open("scratch"),
        results: open("results"),
        is_copy: false,
    };
    commit(session, &changes, &roomy(), Some(1)).unwrap();
}

fn roomy() -> Limits {
    Limits {
        wall_time: Duration::from_secs(30),
        cpu_time: Duration::from_secs(30),
        cpu_percent: 50,
        memory_bytes: 256 << 20,
        file_bytes: 10 << 20,
        disk_bytes: 100 << 20,
        inodes: 20_000,
        processes: 32,
        access: mooring_sandbox::tree::TreeAccess::WHOLE,
        output_bytes: 1 << 20,
    }
}

fn timed(work: impl FnOnce()) -> Duration {
    let started = Instant::now();
    work();
    started.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
