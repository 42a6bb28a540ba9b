//! Ports for programs that cannot choose one themselves.
//!
//! Invariant: no port is returned twice by the test processes that run at a time. They are below the range from which
//! Linux picks ports for outgoing connections (32768 and up), so that no client can take one by accident before its
//! server is up, or while a test has stopped a server.

use std::net::TcpListener;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use anyhow::Context;

const FIRST: u16 = 20_000;
const BLOCKS: u16 = 120;
const BLOCK_PORTS: u16 = 100;

/// The ports that this process may give out next, and what keeps other processes from them.
struct Claims {
    blocks: Vec<TcpListener>,
    left: Range<u16>,
}

/// An unused TCP port of 127.0.0.1.
pub fn free_port() -> anyhow::Result<u16> {
    static CLAIMS: Mutex<Claims> = Mutex::new(Claims {
        blocks: Vec::new(),
        left: 0..0,
    });
    let mut claims = CLAIMS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        // What a test process that is gone has left running may still be there.
        if let Some(port) = claims.left.find(|port| listen(*port).is_some()) {
            return Ok(port);
        }
        claims.next_block()?;
    }
}

impl Claims {
    /// A block belongs to the process that listens at its first port, and is no longer claimed when that process ends.
    fn next_block(&mut self) -> anyhow::Result<()> {
        let mut starts = (0..BLOCKS).map(|block| FIRST + block * BLOCK_PORTS);
        let (start, listener) = starts
            .find_map(|start| Some((start, listen(start)?)))
            .context("every block of ports for tests is taken")?;
        self.blocks.push(listener);
        self.left = start + 1..start + BLOCK_PORTS;
        Ok(())
    }
}

fn listen(port: u16) -> Option<TcpListener> {
    TcpListener::bind(("127.0.0.1", port)).ok()
}
