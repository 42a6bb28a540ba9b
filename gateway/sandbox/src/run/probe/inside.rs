//! The attempts that the self-test makes from inside, and their expected results.

use super::super::probe_error::ProbeError;
use crate::job::Program;
use crate::tier::Tier;

/// Each line of its output is a name and a result: the system's error number, or 0. It leaves a process in its own
/// session, if it can create one, and waits to be inspected and killed.
const SOURCE: &str = r#"
import os, time

SCRATCH, TOOLS = os.environ["MOORING_SCRATCH"], os.environ["MOORING_TOOLS"]

def attempt(name, action):
    try:
        action()
        number = 0
    except OSError as error:
        number = error.errno
    lines.append(f"{name} {number}\n")

def fill():
    with open(SCRATCH + "/fill", "wb", buffering=0) as file:
        for _ in range(64):
            file.write(bytes(16384))

def connect():
    import _socket
    _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)

def daemon():
    if os.fork() == 0:
        try:
            os.setsid()
        finally:
            while True:
                time.sleep(60)

lines = []
attempt("write_tools", lambda: open(TOOLS + "/new", "w"))
attempt("write_scratch", lambda: open(SCRATCH + "/new", "w").close())
if IS_DISK_FULL:
    attempt("disk", fill)
attempt("host_file", lambda: open("/etc/passwd"))
attempt("own_environment", lambda: open("/proc/self/environ"))
attempt("socket", connect)
attempt("session", os.setsid)
attempt("group", lambda: os.setpgid(0, 0))
attempt("signal", lambda: os.kill(HOST, 0))
attempt("daemon", daemon)
os.write(1, "".join(lines).encode())
while True:
    time.sleep(60)
"#;

/// The program for this tier, with the pid of the host's process.
pub(super) fn program(tier: Tier, host: u32) -> Program {
    // If the disk limit is enforced by the watchdog, reaching it would end the self-test.
    let is_disk_full = if tier == Tier::Strict {
        "True"
    } else {
        "False"
    };
    Program::Python {
        source: format!("HOST = {host}\nIS_DISK_FULL = {is_disk_full}\n{SOURCE}"),
    }
}

const OK: &[i32] = &[0];
const EPERM: i32 = 1;
const ENOSYS: i32 = 38;
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;

/// A name of the answer, and the numbers that it may have.
type Expected = (&'static str, &'static [i32]);

const STRICT: &[Expected] = &[
    ("write_tools", &[EROFS, EACCES]),
    ("write_scratch", OK),
    ("disk", &[ENOSPC]),
    ("host_file", &[ENOENT, EACCES]),
    ("own_environment", &[ENOENT, EACCES]),
    ("socket", &[EPERM, EACCES, ENOSYS]),
    ("daemon", OK),
];

/// Without mounts, the disk's limit is not the kernel's. Without namespaces, no process may leave the group that it is
/// killed by, nor reach one outside.
const DEGRADED: &[Expected] = &[
    ("write_tools", &[EACCES]),
    ("write_scratch", OK),
    ("host_file", &[EACCES]),
    ("own_environment", &[EACCES]),
    ("socket", &[EPERM, EACCES, ENOSYS]),
    ("session", &[ENOSYS]),
    ("group", &[ENOSYS]),
    ("signal", &[EPERM]),
    ("daemon", OK),
];

/// Checks that every attempt had its expected result.
pub(super) fn judge(tier: Tier, answer: &[u8]) -> Result<(), ProbeError> {
    let answer = String::from_utf8_lossy(answer);
    let expected = match tier {
        Tier::Strict => STRICT,
        Tier::Degraded => DEGRADED,
    };
    for (name, allowed) in expected {
        let found = answer
            .lines()
            .filter_map(|line| line.split_once(' '))
            .find(|(found, _)| found == name)
            .and_then(|(_, number)| number.parse::<i32>().ok());
        match found {
            Some(number) if allowed.contains(&number) => {}
            Some(number) => {
                return Err(ProbeError::wall(
                    name,
                    format!("came to error number {number}"),
                ));
            }
            None => return Err(ProbeError::wall(name, "was not tried")),
        }
    }
    Ok(())
}
