//! Runs that a policy gives less than the whole trees: every row is an attempt of code, and what comes of it.
//!
//! The commit is part of it: what code writes at a denied place that could not be covered is not kept.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use mooring_sandbox::tree::{
    CommitReport, RefusalReason, SessionDirectory, TreeAccess, VirtualPath, commit,
};
use mooring_sandbox::{Job, Limits, Network, Outcome, Program, RunEnd, SessionTrees, StopHandle};
use tempfile::TempDir;

use crate::support::{Turn, limits, python, sandbox, text};

/// The preamble of every program: an attempt is a line of Python, and shows its value or the name of its error.
const ATTEMPT: &str = r"
import errno, os
def attempt(number, what):
    try:
        shown = what()
    except OSError as error:
        shown = errno.errorcode[error.errno]
    print(number, shown, flush=True)
def read(path):
    with open(path) as file:
        return file.read()
def write(path):
    with open(path, 'w') as file:
        file.write('written')
    return 'written'
";

/// A session with its host directory, and read-only trees beside it.
struct Ground {
    session: SessionDirectory,
    base: TempDir,
}

impl Ground {
    fn new(files: &[(&str, &str)]) -> Self {
        let base = TempDir::new().unwrap();
        for name in ["root", "tools", "skills"] {
            fs::create_dir(base.path().join(name)).unwrap();
        }
        let session = SessionDirectory::create(open(&base.path().join("root"))).unwrap();
        let ground = Self { session, base };
        for (path, content) in files {
            let path = ground.host_path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        ground
    }

    /// Where the host has a path of the trees.
    fn host_path(&self, path: &str) -> std::path::PathBuf {
        let is_of_session = path.starts_with("/scratch") || path.starts_with("/results");
        let base = match is_of_session {
            true => self.base.path().join("root"),
            false => self.base.path().to_owned(),
        };
        base.join(path.trim_start_matches('/'))
    }

    fn run(&self, program: Program, limits: &Limits) -> Outcome {
        let job = Job {
            program,
            trees: SessionTrees {
                tools: open(&self.base.path().join("tools")),
                skills: open(&self.base.path().join("skills")),
                scratch: self.session.open_scratch().unwrap(),
                results: self.session.open_results().unwrap(),
            },
            limits: limits.clone(),
            bridge: None,
            network: Network::None,
        };
        sandbox().run(job, &StopHandle::new().unwrap()).unwrap()
    }

    /// What each attempt shows, and the commit of what they wrote.
    fn attempt(&self, attempts: &[&str], limits: &Limits) -> (Vec<String>, CommitReport) {
        let mut source = ATTEMPT.to_owned();
        for (number, attempt) in attempts.iter().enumerate() {
            source.push_str(&format!("attempt({number}, lambda: {attempt})\n"));
        }
        let outcome = self.run(python(&source), limits);
        let said = text(&outcome.stdout.bytes);
        assert_eq!(
            outcome.ended,
            RunEnd::Exited(0),
            "{said}{}",
            text(&outcome.stderr.bytes)
        );
        let shown = said
            .lines()
            .enumerate()
            .map(|(number, line)| line.strip_prefix(&format!("{number} ")).unwrap().to_owned());
        let committed = commit(&self.session, &outcome.changes, limits, None).unwrap();
        (shown.collect(), committed)
    }
}

fn open(path: &Path) -> OwnedFd {
    fs::File::open(path).unwrap().into()
}

/// Limits with these lists of directories.
fn narrowed(readable: &[&str], writable: &[&str], denied: &[&str]) -> Limits {
    let paths = |list: &[&str]| -> Vec<VirtualPath> {
        list.iter()
            .map(|path| VirtualPath::parse(path).unwrap())
            .collect()
    };
    Limits {
        access: TreeAccess::new(&paths(readable), &paths(writable), &paths(denied)),
        ..limits()
    }
}

#[track_caller]
fn check_rows(ground: &Ground, limits: &Limits, rows: &[(&str, &str)]) -> CommitReport {
    let attempts: Vec<_> = rows.iter().map(|(attempt, _)| *attempt).collect();
    let (shown, committed) = ground.attempt(&attempts, limits);
    let found: Vec<_> = attempts
        .iter()
        .copied()
        .zip(shown.iter().map(String::as_str))
        .collect();
    assert_eq!(found, rows);
    committed
}

#[test]
fn code_reaches_the_directories_of_its_policy_and_nothing_else_of_the_trees() {
    let _turn = Turn::take();
    let ground = Ground::new(&[
        ("/tools/__init__.py", ""),
        ("/tools/_runtime.py", ""),
        ("/tools/_catalog.json", "{}"),
        ("/tools/files/__init__.py", ""),
        ("/tools/files/read.py", "VALUE = 'tool'"),
        ("/tools/files/deep/key.py", "secret"),
        ("/tools/other/x.py", "secret"),
        ("/skills/sum.py", "skill"),
        ("/scratch/in/a", "input"),
        ("/scratch/out/secret/s", "secret"),
        ("/scratch/out/token", "secret"),
        ("/scratch/other/o", "secret"),
        ("/results/mine/hidden/h", "secret"),
        ("/results/old", "old"),
    ]);
    let limits = narrowed(
        &[
            "/tools/files",
            "/skills",
            "/scratch/in",
            "/scratch/out",
            "/results",
        ],
        &["/scratch/out", "/scratch/new/deep", "/results"],
        &[
            "/tools/files/deep",
            "/scratch/out/secret",
            "/scratch/out/token",
            "/scratch/out/later",
            "/results/mine/hidden",
        ],
    );
    let committed = check_rows(
        &ground,
        &limits,
        &[
            // Read-only trees: what is not allowed is not there, and modules are found all the same.
            (
                "sorted(os.listdir('/tools'))",
                "['__init__.py', '_runtime.py', 'files']",
            ),
            ("__import__('tools.files.read').files.read.VALUE", "tool"),
            ("read('/tools/other/x.py')", "ENOENT"),
            ("read('/tools/_catalog.json')", "ENOENT"),
            ("read('/tools/files/deep/key.py')", "EACCES"),
            ("read('/skills/sum.py')", "skill"),
            ("write('/tools/files/new.py')", "EROFS"),
            // Reading, by every kind of path.
            ("sorted(os.listdir('/scratch'))", "['in', 'out']"),
            ("read('/scratch/in/a')", "input"),
            ("read('/scratch/other/o')", "ENOENT"),
            ("read('/scratch/in/../other/o')", "ENOENT"),
            ("read('/scratch/out/secret/s')", "EACCES"),
            ("read('/scratch/in/../out/secret/s')", "EACCES"),
            ("os.listdir('/scratch/out/secret')", "EACCES"),
            (
                "os.open('secret/s', os.O_RDONLY, dir_fd=os.open('/scratch/out', os.O_PATH))",
                "EACCES",
            ),
            (
                "os.open('s', os.O_RDONLY, dir_fd=os.open('/scratch/out/secret', os.O_PATH))",
                "EACCES",
            ),
            (
                "os.open('../other/o', os.O_RDONLY, dir_fd=os.open('/scratch/in', os.O_PATH))",
                "ENOENT",
            ),
            ("read('/proc/self/fd/0')", "ENOENT"),
            ("read('/scratch/out/token')", "EACCES"),
            ("read('/results/mine/hidden/h')", "EACCES"),
            // Writing.
            ("write('/scratch/in/new')", "EACCES"),
            ("write('/scratch/in/a')", "EACCES"),
            ("os.truncate('/scratch/in/a', 0)", "EACCES"),
            ("os.remove('/scratch/in/a')", "EACCES"),
            ("write('/scratch/new')", "EROFS"),
            ("write('/scratch/out/a')", "written"),
            ("write('/scratch/out/token')", "EACCES"),
            ("write('/scratch/out/secret/s')", "EACCES"),
            ("write('/scratch/out/later/s')", "EACCES"),
            ("os.remove('/scratch/out/secret/s')", "EACCES"),
            ("write('/results/new')", "written"),
            // The covers.
            ("os.chmod('/scratch/out/secret', 0o777)", "EROFS"),
            ("os.rmdir('/scratch/out/secret')", "EBUSY"),
            (
                "os.rename('/scratch/out/secret', '/scratch/out/moved')",
                "EBUSY",
            ),
            ("os.remove('/scratch/out/token')", "EBUSY"),
            (
                "os.replace('/scratch/out/a', '/scratch/out/token')",
                "EBUSY",
            ),
            ("os.rename('/results/mine', '/results/moved')", "EXDEV"),
            // Renames and links into what is not readable, out of it, and between the lists.
            (
                "os.rename('/scratch/out/a', '/scratch/out/secret/a')",
                "EACCES",
            ),
            (
                "os.rename('/scratch/out/secret/s', '/scratch/out/s')",
                "EACCES",
            ),
            (
                "os.link('/scratch/out/secret/s', '/scratch/out/s')",
                "EACCES",
            ),
            ("os.link('/scratch/out/token', '/scratch/out/t')", "EXDEV"),
            ("os.rename('/scratch/in/a', '/scratch/out/b')", "EXDEV"),
            ("os.link('/scratch/in/a', '/scratch/out/b')", "EXDEV"),
            ("os.rename('/scratch/out/a', '/scratch/in/b')", "EXDEV"),
            (
                "os.symlink('/scratch/out/secret', '/scratch/out/link')",
                "ENOSYS",
            ),
            ("os.rename('/scratch/out/a', '/scratch/out/b')", "None"),
        ],
    );
    assert_eq!(committed.refused, [], "the covers are no changes");
    assert_eq!((committed.files, committed.deleted), (2, 0));
    for (path, content) in [
        ("/scratch/out/b", "written"),
        ("/results/new", "written"),
        ("/scratch/in/a", "input"),
        ("/scratch/out/secret/s", "secret"),
        ("/scratch/out/token", "secret"),
        ("/results/mine/hidden/h", "secret"),
    ] {
        let found = fs::read_to_string(ground.host_path(path)).unwrap();
        assert_eq!(found, content, "{path}");
    }
    assert!(!ground.host_path("/scratch/out/later").exists());
    assert!(!ground.host_path("/scratch/new").exists());
}

#[test]
fn directories_that_a_policy_lets_code_write_to_are_there() {
    let _turn = Turn::take();
    let ground = Ground::new(&[("/scratch/notes", "a file")]);
    let all = ["/tools", "/skills", "/scratch", "/results"];
    let limits = narrowed(&all, &["/scratch/drafts/today", "/scratch/notes"], &[]);
    let committed = check_rows(
        &ground,
        &limits,
        &[
            ("write('/scratch/drafts/today/a')", "written"),
            ("write('/scratch/drafts/b')", "EACCES"),
            ("write('/scratch/c')", "EACCES"),
            ("write('/results/d')", "EACCES"),
            (
                "os.rename('/scratch/drafts/today', '/scratch/drafts/tomorrow')",
                "EACCES",
            ),
            ("write('/scratch/notes')", "EACCES"),
            ("read('/scratch/notes')", "a file"),
        ],
    );
    assert_eq!(committed.refused, []);
    let kept = fs::read_to_string(ground.host_path("/scratch/drafts/today/a")).unwrap();
    assert_eq!(kept, "written");
}

#[test]
fn what_is_written_at_a_denied_place_is_never_kept() {
    let _turn = Turn::take();
    let ground = Ground::new(&[]);
    let all = ["/tools", "/skills", "/scratch", "/results"];
    let limits = narrowed(
        &all,
        &["/scratch", "/results"],
        &["/scratch/p/hidden", "/results/q/r/hidden"],
    );
    // Their parents are missing, so nothing can be covered. Names go back and forth while files are written.
    let source = r"
import os, threading, time
ends = time.monotonic() + 1
def move():
    while time.monotonic() < ends:
        for old, new in (('p', 'q'), ('q', 'p')):
            try:
                os.rename('/scratch/' + old, '/scratch/' + new)
            except OSError:
                pass
def write():
    while time.monotonic() < ends:
        try:
            os.makedirs('/scratch/p/hidden', exist_ok=True)
            open('/scratch/p/hidden/f', 'w').write('hidden')
        except OSError:
            pass
threads = [threading.Thread(target=do) for do in (move, write)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
os.makedirs('/scratch/p/hidden', exist_ok=True)
open('/scratch/p/hidden/f', 'w').write('hidden')
open('/scratch/p/open', 'w').write('open')
os.makedirs('/results/q/r')
open('/results/q/r/hidden', 'w').write('hidden')
";
    let outcome = ground.run(python(source), &limits);
    assert_eq!(
        outcome.ended,
        RunEnd::Exited(0),
        "{}",
        text(&outcome.stderr.bytes)
    );
    let committed = commit(&ground.session, &outcome.changes, &limits, None).unwrap();
    let mut refused: Vec<_> = committed
        .refused
        .iter()
        .map(|entry| (entry.path.as_str(), entry.reason.clone()))
        .collect();
    refused.sort_by_key(|(path, _)| path.to_owned());
    assert_eq!(
        refused,
        [
            ("/results/q/r/hidden", RefusalReason::Denied),
            ("/scratch/p/hidden", RefusalReason::Denied),
        ]
    );
    let kept = fs::read_to_string(ground.host_path("/scratch/p/open")).unwrap();
    assert_eq!(kept, "open");
    assert!(!ground.host_path("/scratch/p/hidden").exists());
    assert!(!ground.host_path("/results/q/r/hidden").exists());
}
