//! Ports for programs that cannot choose one themselves.
//!
//! Invariant: no port is returned twice in one test process. They are below the range from which Linux picks ports for
//! outgoing connections (32768 and up), so that no client can take one by accident before its server is up, or while a
//! test has stopped a server.

use std::net::TcpListener;
use std::sync::{Mutex, PoisonError};

use anyhow::bail;

const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;

/// An unused TCP port of 127.0.0.1.
pub fn free_port() -> anyhow::Result<u16> {
    static TRIED: Mutex<u32> = Mutex::new(0);
    let mut tried = TRIED.lock().unwrap_or_else(PoisonError::into_inner);
    // Test processes that run side by side begin at different places.
    let start = std::process::id().wrapping_mul(97) % COUNT;
    while *tried < COUNT {
        let port = u16::try_from(FIRST + (start + *tried) % COUNT)?;
        *tried += 1;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port is left of the {COUNT} from {FIRST} on")
}
