//! What a run wrote: a copy, watched while it is written, and looked at entry by entry before it is kept.

use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use mooring_sandbox::tree::{Mount, SessionDirectory, commit, copy_trees, recover};
use mooring_sandbox::{
    Changes, Job, Limits, Network, RunEnd, SessionTrees, StopHandle, StopReason,
};

use crate::support::{Turn, limits, python, run_python, sandbox, text};

fn open(path: &Path) -> OwnedFd {
    File::open(path).unwrap().into()
}

/// A session on disk, with one file from an earlier run.
struct Session {
    place: tempfile::TempDir,
    directory: SessionDirectory,
}

impl Session {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        for name in ["root", "tools", "skills"] {
            fs::create_dir(place.path().join(name)).unwrap();
        }
        let directory = SessionDirectory::create(open(&place.path().join("root"))).unwrap();
        fs::write(place.path().join("root/scratch/old"), "old").unwrap();
        Self { place, directory }
    }

    fn job(&self, source: &str, limits: Limits) -> Job {
        let trees = SessionTrees {
            tools: open(&self.place.path().join("tools")),
            skills: open(&self.place.path().join("skills")),
            scratch: self.directory.open_scratch().unwrap(),
            results: self.directory.open_results().unwrap(),
        };
        Job {
            program: python(source),
            trees,
            limits,
            bridge: None,
            network: Network::None,
        }
    }

    fn names(&self, tree: &str) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.place.path().join("root").join(tree))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

#[test]
fn a_copy_is_committed_and_is_gone_with_the_outcome() {
    let _turn = Turn::take();
    let session = Session::new();
    let source = "import os\nos.unlink('old')\nos.mkdir('d', 0o700)\n\
        os.close(os.open('d/f', os.O_CREAT | os.O_WRONLY, 0o600))\nopen('../results/r', 'w').write('r')";
    let outcome = sandbox()
        .run(session.job(source, limits()), &StopHandle::new().unwrap())
        .unwrap();
    assert_eq!(
        outcome.ended,
        RunEnd::Exited(0),
        "{}",
        text(&outcome.stderr.bytes)
    );
    assert_eq!(session.names("scratch"), ["old"], "nothing is kept yet");
    let committed = commit(&session.directory, &outcome.changes, &limits(), Some(1)).unwrap();
    assert_eq!(committed.refused_total, 0);
    assert_eq!(session.names("scratch"), ["d"]);
    assert_eq!(session.names("scratch/d"), ["f"]);
    assert_eq!(session.names("results"), ["r"]);
    let link = format!(
        "/proc/self/fd/{}",
        std::os::fd::AsRawFd::as_raw_fd(&outcome.changes.scratch)
    );
    let copy = fs::read_link(link).unwrap();
    assert!(copy.exists());
    drop(outcome);
    assert!(!copy.parent().unwrap().exists());
    recover(&session.directory).unwrap();
}

/// The program cannot make them; were it able to, they would not be kept.
#[test]
fn a_link_and_a_pipe_in_a_copy_are_refused() {
    let _turn = Turn::take();
    let session = Session::new();
    let work = session.place.path().join("work");
    fs::create_dir(&work).unwrap();
    let trees = [
        (Mount::Scratch, session.directory.scratch()),
        (Mount::Results, session.directory.results()),
    ];
    let [scratch, results] = copy_trees(trees, open(&work).as_fd(), &limits()).unwrap();
    let copies = Changes {
        scratch,
        results,
        is_copy: true,
    };
    std::os::unix::fs::symlink("/etc/passwd", work.join("scratch/link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        work.join("results/pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let committed = commit(&session.directory, &copies, &limits(), Some(1)).unwrap();
    assert_eq!(committed.refused_total, 2);
    assert_eq!(session.names("scratch"), ["old"]);
    assert!(session.names("results").is_empty());
}

#[test]
fn who_writes_more_than_a_disk_is_stopped() {
    let _turn = Turn::take();
    for source in [
        "import time\nfor n in range(10000):\n    open(f'{n}', 'wb').write(bytes(1 << 20))\n    time.sleep(0.001)",
        "import time\nfor n in range(1000000):\n    open(f'../results/{n}', 'wb')\n    time.sleep(0.0001)",
        "import os, time\nfor n in range(10000):\n    open(f'{os.environ[\"TMPDIR\"]}/{n}', 'wb').write(bytes(1 << 20))\n    \
         time.sleep(0.001)",
        // What cannot be looked into is not believed.
        "import os, time\nfor n in range(100):\n    os.mkdir('d'); os.chdir('d')\ntime.sleep(600)",
    ] {
        let outcome = run_python(source, limits());
        assert_eq!(
            outcome.ended,
            RunEnd::Stopped(StopReason::Disk),
            "{source}: {}",
            text(&outcome.stderr.bytes)
        );
    }
    let outcome = run_python(
        "import errno\ntry:\n    open('f', 'wb').write(bytes(20 << 20))\nexcept OSError as error:\n    \
         print(errno.errorcode[error.errno])",
        limits(),
    );
    assert_eq!(text(&outcome.stdout.bytes), "EFBIG\n");
}
