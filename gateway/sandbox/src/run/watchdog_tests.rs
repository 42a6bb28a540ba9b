//! Measured on real processes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what it expects by failing"
)]

use super::*;

use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// A tree of shells and its end.
struct Tree(Child);

impl Drop for Tree {
    fn drop(&mut self) {
        // Its children end when the pipe that they read closes with it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// For a child to be seen.
const WAIT: Duration = Duration::from_secs(10);

#[test]
fn descendants_of_every_generation_are_counted() {
    let child = Command::new("/bin/sh")
        .args(["-c", "(cat; :) | (cat; :) | cat; :"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell");
    let tree = Tree(child);
    let own = rustix::process::getpid();
    let deadline = Instant::now() + WAIT;
    loop {
        let found = descendants(own).expect("this process's descendants");
        // The shell, two more in the pipe, and three cats.
        if found.len() >= 6 {
            let tree = measure(own).expect("what they use");
            assert!(tree.usage.memory_bytes >= 6 * 4096, "{tree:?}");
            assert!(tree.threads >= 6, "{tree:?}");
            break;
        }
        assert!(
            Instant::now() < deadline,
            "six processes were not seen: {found:?}"
        );
        std::thread::yield_now();
    }
    drop(tree);
}
