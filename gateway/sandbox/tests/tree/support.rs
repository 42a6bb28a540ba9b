//! Sessions in temporary directories, pictures of trees, and bounded waits.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use mooring_sandbox::tree::{SessionDirectory, VirtualPath, remove};
use mooring_sandbox::{Changes, Limits, SessionTrees};
use tempfile::TempDir;

/// Longest that anything may take before it counts as hanging.
pub(crate) const HANGING: Duration = Duration::from_secs(60);

/// A session's directory, two layers over it, and empty read-only trees.
pub(crate) struct Session {
    pub(crate) directory: SessionDirectory,
    base: TempDir,
}

impl Session {
    pub(crate) fn new() -> Self {
        Self::within(&std::env::temp_dir())
    }

    pub(crate) fn within(parent: &Path) -> Self {
        let base = TempDir::new_in(parent).unwrap();
        for name in ["root", "upper/scratch", "upper/results", "tools", "skills"] {
            fs::create_dir_all(base.path().join(name)).unwrap();
        }
        let directory = SessionDirectory::create(directory(&base.path().join("root"))).unwrap();
        Self { directory, base }
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.base.path().join(path)
    }

    /// A place in the session's own `/scratch`.
    pub(crate) fn scratch(&self, path: &str) -> PathBuf {
        self.path("root/scratch").join(path)
    }

    /// A place in the layer over `/scratch`.
    pub(crate) fn upper(&self, path: &str) -> PathBuf {
        self.path("upper/scratch").join(path)
    }

    pub(crate) fn changes(&self) -> Changes {
        changes(&self.path("upper"))
    }

    pub(crate) fn view(&self) -> SessionTrees {
        SessionTrees {
            tools: directory(&self.path("tools")),
            skills: directory(&self.path("skills")),
            scratch: self.directory.open_scratch().unwrap(),
            results: self.directory.open_results().unwrap(),
        }
    }

    /// What the session's trees hold.
    pub(crate) fn picture(&self) -> Picture {
        picture(&self.path("root"), &["scratch", "results"])
    }

    /// What the host keeps beside them: after every operation nothing but what is said here.
    pub(crate) fn host_files(&self) -> Vec<String> {
        picture(&self.path("root"), &[".mooring"])
            .into_keys()
            .collect()
    }
}

impl Drop for Session {
    /// The overlay leaves directories that nobody may enter, which the temporary directory's own end would leave too.
    fn drop(&mut self) {
        let base = directory(self.base.path());
        for name in ["root", "upper", "layer", "merged", "work"] {
            remove(base.as_fd(), OsStr::new(name)).unwrap();
        }
    }
}

pub(crate) fn directory(path: &Path) -> OwnedFd {
    File::open(path).unwrap().into()
}

pub(crate) fn changes(base: &Path) -> Changes {
    Changes {
        scratch: directory(&base.join("scratch")),
        results: directory(&base.join("results")),
        is_copy: false,
    }
}

pub(crate) fn at(path: &str) -> VirtualPath {
    VirtualPath::parse(path).unwrap()
}

/// Room for whatever the test is not about.
pub(crate) fn roomy() -> Limits {
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

/// A tree: each path with its content and mode, directories with a slash at their end.
pub(crate) type Picture = BTreeMap<String, (Vec<u8>, u32)>;

pub(crate) fn picture(base: &Path, roots: &[&str]) -> Picture {
    let mut seen = Picture::new();
    let mut ahead: Vec<PathBuf> = roots.iter().map(|root| base.join(root)).collect();
    while let Some(directory) = ahead.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            let metadata = entry.metadata().unwrap();
            let path = entry
                .path()
                .strip_prefix(base)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            let mode = metadata.permissions().mode() & 0o7777;
            if metadata.is_dir() {
                seen.insert(format!("{path}/"), (Vec::new(), mode));
                ahead.push(entry.path());
            } else if metadata.is_file() {
                assert_eq!(metadata.nlink(), 1, "{path} has other names");
                seen.insert(path, (fs::read(entry.path()).unwrap(), mode));
            } else {
                seen.insert(format!("{path} is special"), (Vec::new(), mode));
            }
        }
    }
    seen
}

/// Does something that must not hang, in a thread whose file descriptors are its own, and proves that it leaves none.
pub(crate) fn promptly<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    result
        .recv_timeout(HANGING)
        .expect("it hangs, or it failed")
}

/// How many files this thread has open, where it shares them with no other.
pub(crate) fn open_files() -> usize {
    fs::read_dir("/proc/thread-self/fd").unwrap().count()
}

/// Runs one test of this binary in a process of its own, told so by an environment variable.
pub(crate) fn child(test: &str, variable: &str, value: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["--exact", test, "--nocapture", "--test-threads", "1"])
        .env(variable, value);
    command
}

pub(crate) fn make_fifo(path: &Path) {
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        path,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
    )
    .unwrap();
}

/// A character device: 0:0 is what an overlay marks a deletion with, and what anybody may make.
pub(crate) fn make_device(path: &Path, major: u32, minor: u32) {
    let device = rustix::fs::makedev(major, minor);
    let kind = rustix::fs::FileType::CharacterDevice;
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        kind,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        device,
    )
    .unwrap();
}

pub(crate) fn set_attribute(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
