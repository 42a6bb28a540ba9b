//! Real child processes, and what is left of them.
//!
//! The supervisors are this test binary, which runs the ignored test below.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod ends;
mod kills;
mod messages;
mod prints;
mod starts;

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{
    Child, ChildLimits, ChildSpec, Children, Environment, Label, Launcher, Traffic, supervisor,
};
use crate::connection::link::LinkEnd;
use mooring_test_support::processes::{PATIENCE, PAUSE, is_alive, kill, until_dead};

/// A grace that does not expire in a test.
const LONG: Duration = Duration::from_secs(600);
/// A grace that expires soon.
const SHORT: Duration = Duration::from_millis(50);

/// Makes a Python program ignore SIGTERM and the end of stdin.
const AND_STAYS: &str = "
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(100000)
";

/// Starts a daemon (two forks and its own session) that ignores signals, prints its process id, and then answers like
/// `cat`.
const WITH_DAEMON: &str = r#"
import json, os, signal, sys, time
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.write(write, str(os.getpid()).encode())
        os.close(0), os.close(1), os.close(2), os.close(read), os.close(write)
        time.sleep(100000)
    os._exit(0)
os.wait()
print(json.dumps({"daemon": int(os.read(read, 20))}), flush=True)
for line in sys.stdin:
    print(line.strip(), flush=True)
"#;

/// The arguments that make this binary run one ignored test of this file.
fn arguments(test: &str) -> Vec<OsString> {
    let path = format!("stdio::tests::{test}");
    let flags = ["--ignored", "--nocapture", "--test-threads=1"];
    ["--exact", path.as_str()]
        .into_iter()
        .chain(flags)
        .map(OsString::from)
        .collect()
}

#[test]
#[ignore = "started by other tests, as a supervisor"]
fn the_supervisor() {
    assert!(supervisor::is_supervisor());
    let _ = supervisor::supervise();
}

fn children() -> Children {
    Children::new(100, launcher())
}

fn launcher() -> Launcher {
    Launcher {
        arguments: arguments("the_supervisor"),
    }
}

fn label() -> Label {
    Label {
        server: "tested".into(),
        session: "01234567".into(),
    }
}

/// A program with the environment that it needs.
fn program(program: &str, arguments: &[&str]) -> ChildSpec {
    ChildSpec {
        program: program.into(),
        arguments: arguments.iter().copied().map(str::to_owned).collect(),
        directory: None,
        environment: Environment::default(),
        traffic: Traffic::Messages,
        limits: ChildLimits {
            start_within: PATIENCE,
            stop_grace: LONG,
            terminate_grace: LONG,
            ..ChildLimits::default()
        },
    }
}

fn shell(script: &str) -> ChildSpec {
    program("/bin/sh", &["-c", script])
}

fn python(script: &str) -> ChildSpec {
    program("python3", &["-c", script])
}

/// The same, with short graces.
fn hurried(mut spec: ChildSpec) -> ChildSpec {
    spec.limits.stop_grace = SHORT;
    spec.limits.terminate_grace = SHORT;
    spec
}

async fn start(spec: &ChildSpec) -> Child {
    children().start(spec, label()).await.unwrap()
}

async fn next_message(child: &mut Child) -> Bytes {
    let message = tokio::time::timeout(PATIENCE, child.link.from_server.recv());
    message.await.unwrap().expect("the connection ended")
}

async fn next_number(child: &mut Child, name: &str) -> i32 {
    let message: serde_json::Value = serde_json::from_slice(&next_message(child).await).unwrap();
    message[name].as_i64().unwrap().try_into().unwrap()
}

/// Why it ended by itself.
async fn end_of(child: &mut Child) -> LinkEnd {
    let end = tokio::time::timeout(PATIENCE, child.link.end.wait_for(Option::is_some));
    end.await.unwrap().unwrap().clone().unwrap()
}

/// Requests its end and waits for it.
async fn stop(child: Child) {
    let gone = child.link.gone.clone();
    drop(child);
    tokio::time::timeout(PATIENCE, gone.cancelled())
        .await
        .unwrap();
}

/// The children of a process.
fn children_of(pid: i32) -> Vec<i32> {
    let mut children = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let list = std::fs::read_to_string(thread.unwrap().path().join("children")).unwrap();
        children.extend(
            list.split_whitespace()
                .map(|pid| pid.parse::<i32>().unwrap()),
        );
    }
    children
}

/// The guard and the keeper of a child.
fn supervisors_of(child: &Child) -> [i32; 2] {
    let guard = child.guard_pid;
    let below = children_of(guard);
    let [keeper] = below[..] else {
        panic!("not one keeper: {below:?}");
    };
    assert!(children_of(keeper).contains(&child.pid));
    [guard, keeper]
}

fn exists(path: &Path) -> bool {
    path.try_exists().unwrap()
}
