//! How long the server's main thread was on a processor: the cost of a call, without that of other load.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use anyhow::{Context, Result};

/// The kernel's count for that thread.
pub(crate) struct Processor {
    count: File,
}

impl Processor {
    pub(crate) fn of(server: u32) -> Result<Self> {
        let path = format!("/proc/{server}/task/{server}/schedstat");
        let count = File::open(&path).context(path)?;
        Ok(Self { count })
    }

    /// Since the server started.
    pub(crate) fn so_far(&self) -> Result<Duration> {
        let mut text = [0; 128];
        let length = self.count.read_at(&mut text, 0)?;
        // Nanoseconds run, nanoseconds waited, turns.
        let text = std::str::from_utf8(&text[..length])?;
        let ran = text.split(' ').next().context("an empty count")?;
        Ok(Duration::from_nanos(ran.parse()?))
    }
}
