//! Counted on a real process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test says what it expects by failing"
)]

use super::*;

use std::io::Read as _;
use std::process::{Child, Command, Stdio};

/// Makes a known number of each, says so, and waits for the end of its standard input.
const HOLDER: &str = "
import os, select, socket, sys
is_idle = 'idle' in sys.argv
pairs = [socket.socketpair() for _ in range(0 if is_idle else 5)]
pipes = [os.pipe() for _ in range(0 if is_idle else 7)]
poll = select.epoll()
for out, _ in pipes:
    poll.register(out)
if 'pass' in sys.argv:
    socket.send_fds(pairs[0][0], [b'x'], [0])
print('ready', end='', flush=True)
sys.stdin.read()
";

/// A child that holds them, beneath a shell.
struct Holder(Child);

impl Holder {
    fn start(arguments: &str) -> Self {
        let mut child = Command::new("/bin/sh")
            .args(["-c", &format!("python3 -c \"$HOLDER\" {arguments}; :")])
            .env("HOLDER", HOLDER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        let mut said = [0; 5];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut said)
            .unwrap();
        assert_eq!(&said, b"ready");
        Self(child)
    }

    fn measure(&self) -> KernelObjects {
        KernelObjects::measure(Pid::from_child(&self.0)).expect("what it has")
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It ends when the pipe that it reads closes.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn sockets_pipes_and_watches_of_a_tree_are_counted() {
    // What the test itself was started with is inherited.
    let idle = Holder::start("idle").measure();
    let found = Holder::start("").measure();
    let expected = KernelObjects {
        sockets: idle.sockets + 10,
        pipes: idle.pipes + 7,
        watches: idle.watches + 7,
        has_passed_descriptors: false,
    };
    assert_eq!(found, expected);
    assert!(!found.is_over_limit());
    assert!(found.memory_bytes() >= 10 * 200 * 1024 + 7 * PIPE_BYTES);
}

#[test]
fn descriptors_that_nobody_received_are_seen() {
    assert!(Holder::start("pass").measure().has_passed_descriptors);
}
