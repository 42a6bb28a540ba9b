//! A Redis of the test's own: on a port that was free a moment ago, in a temporary directory, killed with its guard.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mooring_settings::RedisUrl;

/// How long a server may take to answer, and anything awaited to come true.
pub const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Module {
    Loaded,
    Absent,
}

pub struct RedisServer {
    pub port: u16,
    directory: tempfile::TempDir,
    module: Module,
    child: Option<Child>,
}

impl RedisServer {
    pub fn start(module: Module) -> Self {
        let mut server = Self {
            port: free_port(),
            directory: tempfile::tempdir().unwrap(),
            module,
            child: None,
        };
        server.start_again();
        server
    }

    /// Starts it on the same port; what it had in memory is gone unless it was saved.
    pub fn start_again(&mut self) {
        let mut command = Command::new("redis-server");
        command
            .args(["--port", &self.port.to_string(), "--appendonly", "yes"])
            .args(["--appendfsync", "always", "--save", "", "--dir"])
            .arg(self.directory.path())
            .args(["--unixsocket", "socket"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if self.module == Module::Loaded {
            command.arg("--loadmodule").arg(module_path());
        }
        self.child = Some(command.spawn().expect("redis-server is installed"));
        let started = Instant::now();
        while !self.answers() {
            assert!(started.elapsed() < PATIENCE, "redis-server does not answer");
            std::thread::sleep(POLL);
        }
    }

    /// Whether it is up and has loaded what it had saved.
    fn answers(&self) -> bool {
        let client = redis::Client::open(self.url()).unwrap();
        let connection = client.get_connection_with_timeout(PATIENCE);
        connection.is_ok_and(|mut connection| {
            let pong: redis::RedisResult<String> = redis::cmd("PING").query(&mut connection);
            pong.is_ok()
        })
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Runs the killed server on another port for a moment, where the store under test does not find it.
    pub fn elsewhere(&mut self, work: impl FnOnce(&Self)) {
        let port = std::mem::replace(&mut self.port, free_port());
        self.start_again();
        work(self);
        self.kill();
        self.port = port;
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn unix_url(&self) -> String {
        format!("unix://{}/socket", self.directory.path().display())
    }

    /// Sends a command past the store.
    pub fn command(&self, words: &[&str]) -> redis::Value {
        let client = redis::Client::open(self.url()).unwrap();
        let mut connection = client.get_connection().unwrap();
        let (name, arguments) = words.split_first().unwrap();
        redis::cmd(name)
            .arg(arguments)
            .query(&mut connection)
            .unwrap()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A sentinel that knows one service, until it is told otherwise.
pub struct SentinelServer {
    pub port: u16,
    child: Child,
    _directory: tempfile::TempDir,
}

impl SentinelServer {
    /// Starts one that takes the server at `primary` for the primary of `service`, by the configuration of this epoch,
    /// with more lines of configuration.
    pub fn start(service: &str, primary: u16, epoch: u64, lines: &str) -> Self {
        let (port, directory) = (free_port(), tempfile::tempdir().unwrap());
        let path = directory.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor {service} 127.0.0.1 {primary} 2\n\
             sentinel config-epoch {service} {epoch}\n{lines}\n"
        );
        std::fs::write(&path, text).unwrap();
        let child = Command::new("redis-server")
            .arg(&path)
            .arg("--sentinel")
            .current_dir(directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let started = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(started.elapsed() < PATIENCE, "the sentinel does not listen");
            std::thread::sleep(POLL);
        }
        Self {
            port,
            child,
            _directory: directory,
        }
    }

    /// Runs one command of SENTINEL.
    pub fn command(&self, words: &[&str]) {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).unwrap();
        let mut connection = client.get_connection().unwrap();
        let mut command = redis::cmd("SENTINEL");
        command.arg(words);
        command.exec(&mut connection).unwrap();
    }
}

impl Drop for SentinelServer {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A URL as the settings read it.
pub fn redis_url(text: &str) -> RedisUrl {
    RedisUrl::parse(text).unwrap()
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// The module as the workspace builds it, beside this test's own directory.
fn module_path() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join("libmooring.so");
    assert!(
        path.exists(),
        "the module is missing: `cargo build -p mooring-module` makes it"
    );
    path
}

/// Polls until `is_true` is, for [`PATIENCE`] at most.
pub async fn eventually(what: &str, mut is_true: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !is_true().await {
        assert!(started.elapsed() < PATIENCE, "never came true: {what}");
        tokio::time::sleep(POLL).await;
    }
}
