//! A host as small as the protocol allows: starts the helper, says what is to be run, and collects what came of it.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use mooring_sandbox::helper::{Connections, filter};
use mooring_sandbox::protocol::{
    FinishReport, FromHelper, HELPER_NAME, ProgramDescriptors, Spec, SpecDescriptors, StepFailure,
    ToHelper, WireLimits, WireNetwork, WireRuntime, receive, send,
};
use mooring_sandbox::tree::TreeAccess;
use mooring_sandbox::{Stage, Tier};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tempfile::TempDir;

/// An ordinary user, who owns nothing on the machine.
pub const ORDINARY: u32 = 61234;

/// The interpreter of the distribution.
const PYTHON: &str = "/usr/bin/python3";

/// Longest wait for something that a program prints.
const OUTPUT_WAIT: Duration = Duration::from_secs(20);

/// Limits that no test here meets by accident.
pub const LIMITS: WireLimits = WireLimits {
    cpu_seconds: 20,
    memory_bytes: 256 << 20,
    file_bytes: 10 << 20,
    upper_bytes: 8 << 20,
    upper_inodes: 256,
    temporary_bytes: 16 << 20,
    processes: 64,
};

/// Who the host of a run is.
#[derive(Debug, Clone, Copy)]
pub enum User {
    Root,
    Ordinary,
}

/// Both of them.
pub const USERS: [User; 2] = [User::Root, User::Ordinary];

/// What is run.
pub enum Code<'a> {
    Python(&'a str),
    TypeScript(&'a str),
    /// With memory for one worker.
    TypeScriptWorker(&'a str),
    Pipeline(Vec<Stage>),
}

/// The directories of one session.
pub struct Session {
    pub directory: TempDir,
    user: User,
    /// Into a control group.
    pub doors: Vec<OwnedFd>,
}

/// What came of a run.
#[derive(Debug)]
pub struct Ran {
    pub stdout: String,
    pub stderr: String,
    pub end: Result<FinishReport, StepFailure>,
    pub upper: Vec<OwnedFd>,
}

impl Ran {
    /// Standard output of a run that ended well.
    pub fn output(&self) -> &str {
        assert_eq!(self.code(), Some(0), "{self:?}");
        &self.stdout
    }

    /// Exit code, where the program ended by itself.
    pub fn code(&self) -> Option<i32> {
        let status = self.end.as_ref().ok()?.status?;
        (status & 0x7f == 0).then_some(status >> 8)
    }

    /// A file that the run wrote to `/scratch`.
    pub fn written(&self, name: &str) -> String {
        let file = rustix::fs::openat(
            &self.upper[0],
            name,
            OFlags::RDONLY | OFlags::NOFOLLOW,
            Mode::empty(),
        )
        .unwrap();
        let mut text = String::new();
        File::from(file).read_to_string(&mut text).unwrap();
        text
    }
}

/// A run between two messages.
pub struct Running {
    pub host: OwnedFd,
    pub child: Child,
    pub process: OwnedFd,
    /// Where it came to nothing.
    failed: Option<StepFailure>,
    stdout: JoinHandle<String>,
    stderr: JoinHandle<String>,
    pieces: Receiver<String>,
}

impl Session {
    pub fn new(user: User) -> Self {
        let directory = TempDir::new().unwrap();
        let session = Self {
            directory,
            user,
            doors: Vec::new(),
        };
        session.give(session.directory.path());
        for name in ["tools", "skills", "scratch", "results"] {
            fs::create_dir(session.path(name)).unwrap();
            session.give(&session.path(name));
        }
        session.put("tools/_import_map.json", "{}");
        session
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file that the session has from the beginning.
    pub fn put(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        self.give(&self.path(name));
    }

    fn give(&self, path: &Path) {
        if matches!(self.user, User::Ordinary) {
            chown(path, Some(ORDINARY), Some(ORDINARY)).unwrap();
        }
    }

    /// Runs it to its end.
    pub fn run(&self, code: &Code<'_>) -> Ran {
        self.run_within(code, LIMITS)
    }

    pub fn run_within(&self, code: &Code<'_>, limits: WireLimits) -> Ran {
        self.start(
            code,
            limits,
            filter(Tier::Strict, Connections::Refused).unwrap(),
        )
        .finish()
    }

    /// Starts the helper and says everything up to [`ToHelper::Go`], or takes down why it came to nothing.
    pub fn start(&self, code: &Code<'_>, limits: WireLimits, filter: Vec<u8>) -> Running {
        let (host, inside) = pair();
        let mut command = Command::new(helper_binary());
        command
            .arg0(HELPER_NAME)
            .env_clear()
            .stdin(inside)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if matches!(self.user, User::Ordinary) {
            command.uid(ORDINARY).gid(ORDINARY);
        }
        let mut child = command.spawn().unwrap();
        let (stdout, pieces) = collect(child.stdout.take().unwrap().into());
        let (stderr, _) = collect(child.stderr.take().unwrap().into());
        drop(command);
        let begin = ToHelper::Begin { tier: Tier::Strict };
        let doors: Vec<_> = self.doors.iter().map(AsFd::as_fd).collect();
        send(host.as_fd(), &begin, &doors).unwrap();
        let spec = Spec {
            runtime: runtime(code),
            seen: seen(code),
            limits,
            access: TreeAccess::WHOLE,
            has_bridge: false,
            network: WireNetwork::None,
        };
        let trees = ["tools", "skills", "scratch", "results"].map(|name| open(&self.path(name)));
        let (program, filter) = (memory(&bytes(code)), memory(&filter));
        let passed = SpecDescriptors {
            tools: trees[0].as_fd(),
            skills: trees[1].as_fd(),
            scratch: trees[2].as_fd(),
            results: trees[3].as_fd(),
            program: ProgramDescriptors {
                source: program.as_fd(),
                filter: filter.as_fd(),
                bridge: None,
            },
        };
        send(
            host.as_fd(),
            &ToHelper::Spec(Box::new(spec)),
            &passed.into_vec(),
        )
        .unwrap();
        let (waiting, mut handles) = receive::<FromHelper>(host.as_fd()).unwrap().unwrap();
        assert!(matches!(waiting, FromHelper::Waiting { .. }), "{waiting:?}");
        let failed = match receive::<FromHelper>(host.as_fd()).unwrap().unwrap() {
            (FromHelper::Prepared, _) => None,
            (FromHelper::Failed(failed), _) => Some(failed),
            (message, _) => panic!("{message:?}"),
        };
        Running {
            host,
            child,
            process: handles.remove(0),
            failed,
            stdout,
            stderr,
            pieces,
        }
    }
}

impl Running {
    /// Waits until the program has printed this.
    pub fn wait_for_output(&self, text: &str) {
        let mut seen = String::new();
        while !seen.contains(text) {
            seen.push_str(
                &self
                    .pieces
                    .recv_timeout(OUTPUT_WAIT)
                    .expect("the program says nothing"),
            );
        }
    }

    /// Says go.
    pub fn go(&self) {
        send(self.host.as_fd(), &ToHelper::Go, &[]).unwrap();
    }

    /// Says go, and collects everything.
    pub fn finish(self) -> Ran {
        if self.failed.is_none() {
            self.go();
        }
        self.collect()
    }

    /// Collects everything.
    pub fn collect(mut self) -> Ran {
        let failed = self.failed.take().map(|failed| (Err(failed), Vec::new()));
        let (end, upper) = failed.unwrap_or_else(|| {
            loop {
                match receive::<FromHelper>(self.host.as_fd()).unwrap().unwrap() {
                    (FromHelper::Started, _) => {}
                    (FromHelper::Finished(finished), upper) => break (Ok(finished), upper),
                    (FromHelper::Failed(failed), _) => break (Err(failed), Vec::new()),
                    (message, _) => panic!("{message:?}"),
                }
            }
        });
        self.child.wait().unwrap();
        Ran {
            stdout: self.stdout.join().unwrap(),
            stderr: self.stderr.join().unwrap(),
            end,
            upper,
        }
    }
}

/// The helper, where every user can run it.
fn helper_binary() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| reachable(Path::new(env!("CARGO_BIN_EXE_mooring-sandbox"))))
}

/// Deno likewise.
fn deno() -> PathBuf {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE
        .get_or_init(|| {
            let installed =
                Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/venv/bin/deno");
            let path = std::env::var_os("MOORING_TEST_DENO").map_or(installed, PathBuf::from);
            assert!(
                path.exists(),
                "no deno at {}: MOORING_TEST_DENO names one",
                path.display()
            );
            reachable(&path)
        })
        .clone()
}

/// The binary where every user can run it: where it stands, or else a copy.
fn reachable(binary: &Path) -> PathBuf {
    let binary = fs::canonicalize(binary).unwrap();
    let open_to_all =
        |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o005 == 0o005;
    if binary.ancestors().all(open_to_all) {
        return binary;
    }
    let size = fs::metadata(&binary).unwrap().len();
    let copy = std::env::temp_dir().join(format!(
        "mooring-{size}-{}",
        binary.file_name().unwrap().display()
    ));
    let unfinished = copy.with_extension(std::process::id().to_string());
    fs::copy(&binary, &unfinished).unwrap();
    fs::set_permissions(&unfinished, Permissions::from_mode(0o755)).unwrap();
    fs::rename(unfinished, &copy).unwrap();
    copy
}

fn runtime(code: &Code<'_>) -> WireRuntime {
    match code {
        Code::Python(_) => WireRuntime::Python {
            binary: fs::canonicalize(PYTHON).unwrap(),
        },
        Code::TypeScript(_) => WireRuntime::Deno {
            binary: deno(),
            data_bytes: WireRuntime::DENO_DATA_BYTES,
        },
        Code::TypeScriptWorker(_) => WireRuntime::Deno {
            binary: deno(),
            data_bytes: WireRuntime::DENO_DATA_BYTES + WireRuntime::DENO_WORKER_DATA_BYTES,
        },
        Code::Pipeline(_) => WireRuntime::Tools {
            binaries: ["ls", "cat", "wc", "sort", "head", "yes"]
                .map(|name| {
                    (
                        name.to_owned(),
                        fs::canonicalize(format!("/usr/bin/{name}")).unwrap(),
                    )
                })
                .into(),
        },
    }
}

fn seen(code: &Code<'_>) -> Vec<PathBuf> {
    match code {
        Code::Python(_) => {
            let version = fs::canonicalize(PYTHON).unwrap();
            vec![Path::new("/usr/lib").join(version.file_name().unwrap())]
        }
        _ => Vec::new(),
    }
}

fn bytes(code: &Code<'_>) -> Vec<u8> {
    match code {
        Code::Python(text) | Code::TypeScript(text) | Code::TypeScriptWorker(text) => {
            text.as_bytes().to_vec()
        }
        Code::Pipeline(stages) => serde_json::to_vec(stages).unwrap(),
    }
}

fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap()
}

fn open(path: &Path) -> OwnedFd {
    rustix::fs::open(
        path,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .unwrap()
}

fn memory(bytes: &[u8]) -> OwnedFd {
    let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    write_all(file.as_fd(), bytes);
    file
}

fn write_all(file: BorrowedFd<'_>, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        bytes = &bytes[rustix::io::write(file, bytes).unwrap()..];
    }
}

/// Reads a stream to its end, and tells of every piece.
fn collect(stream: OwnedFd) -> (JoinHandle<String>, Receiver<String>) {
    let (tell, told) = channel();
    let reader = std::thread::spawn(move || {
        let (mut file, mut all, mut piece) = (File::from(stream), String::new(), [0; 4096]);
        loop {
            let read = file.read(&mut piece).unwrap();
            if read == 0 {
                return all;
            }
            let text = String::from_utf8_lossy(&piece[..read]).into_owned();
            all.push_str(&text);
            // A test that does not wait for pieces has dropped the other end.
            let _ = tell.send(text);
        }
    });
    (reader, told)
}
