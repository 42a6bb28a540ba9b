//! The gateway's end of the bridge: frames from code in the sandbox, within limits, and the answers.
//!
//! A frame is a length in 4 bytes, big end first, and that many bytes of JSON, in both directions:
//!
//! ```text
//! {"id": 1, "server": "github", "tool": "create_issue", "arguments": {..}}
//! {"id": 1, "result": ..}      {"id": 1, "error": {"kind": "not_mounted", "message": ".."}}
//! ```
//!
//! The writer is assumed to be hostile or broken. A valid frame that is not a call is answered with an error. After a
//! frame that makes the rest unreadable (`Violation::ends_reading`), nothing more is read: open calls are answered, and
//! then the socket is shut down, so that a program that waits for an answer learns at once that there is none.
//! Descriptors that a program sends along are closed by the kernel, because nothing here receives any; sending them
//! ends the bridge too.
//!
//! A call takes one of `at_once_max` places until its answer is written out. While all are taken nothing is read, so
//! that what a program sends waits in its own socket: a program that asks without reading answers waits for itself. At
//! the end of the run the socket is closed and what is open is cancelled.
//!
//! Invariant: the memory of a bridge is at most that of `at_once_max` calls and their answers and of one frame,
//! whatever the program does; and nothing that it does is waited for beyond the end of the run.

mod answer;
mod depth;
mod incoming;
mod request;
mod serving;
#[cfg(test)]
mod tests;
mod violation;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::calls::Callee;
use mooring_usage::for_same_user;
use serving::BridgeServer;
pub(crate) use violation::Violation;

/// The limits of one bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BridgeLimits {
    /// Longest frame from the program, without its length, in bytes.
    pub(crate) request_bytes_max: usize,
    /// Longest frame to the program likewise. A longer result is an error.
    pub(crate) result_bytes_max: usize,
    /// Most arrays and objects of the arguments within one another, the arguments themselves included.
    pub(crate) depth_max: usize,
    /// Most calls of the run.
    pub(crate) calls_max: u64,
    /// Most calls at the same time; at least one.
    pub(crate) at_once_max: usize,
}

impl BridgeLimits {
    /// 1 MiB.
    pub(crate) const REQUEST_BYTES_MAX: usize = 1024 * 1024;
    /// 8 MiB.
    pub(crate) const RESULT_BYTES_MAX: usize = 8 * 1024 * 1024;
    /// Half of what the parser would take before it gave up.
    pub(crate) const DEPTH_MAX: usize = 64;

    /// With so many calls, so many of them at the same time, and the sizes above.
    pub const fn new(calls_max: u64, at_once_max: usize) -> Self {
        Self {
            request_bytes_max: Self::REQUEST_BYTES_MAX,
            result_bytes_max: Self::RESULT_BYTES_MAX,
            depth_max: Self::DEPTH_MAX,
            calls_max,
            at_once_max,
        }
    }
}

/// The summary of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BridgeSummary {
    /// Calls that were made, those that were cancelled at the end of the run included.
    pub calls: u64,
    /// Frames that were answered here and never became a call.
    pub refused: u64,
    /// The violations of the protocol: each kind once, in the order of their first occurrence.
    pub(crate) violations: Vec<Violation>,
}

/// A bridge in use. Dropping it does what [`Bridge::end`] does, without an answer.
#[derive(Debug)]
pub struct Bridge {
    /// Ends the bridge when it is dropped.
    end: oneshot::Sender<()>,
    task: JoinHandle<BridgeSummary>,
}

impl Bridge {
    /// Closes the socket, cancels what is open, and waits until nothing of it runs any more.
    pub async fn end(self) -> BridgeSummary {
        drop(self.end);
        // It neither panics nor is cancelled; where the runtime ends first, this is not read.
        self.task.await.unwrap_or_default()
    }
}

/// A bridge's two ends: the host's, and the program's, which is its descriptor 3. To be called within the runtime.
///
/// # Errors
/// Where this process has no descriptor left.
pub fn pair() -> io::Result<(UnixStream, OwnedFd)> {
    let (host, program) = std::os::unix::net::UnixStream::pair()?;
    host.set_nonblocking(true)?;
    Ok((UnixStream::from_std(host)?, program.into()))
}

/// Answers what comes over `host` by `callee`, within `limits`, until the bridge is ended. A call that panics is an
/// error of kind `internal` to the program.
pub fn serve<C: Callee>(host: UnixStream, callee: Arc<C>, limits: BridgeLimits) -> Bridge {
    let (end, ended) = oneshot::channel();
    let task = tokio::spawn(for_same_user(
        BridgeServer::new(callee, limits).until(host, ended),
    ));
    Bridge { end, task }
}
