//! The socket to a child's supervisors: the start request, their reports, and the request to stop.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::command::ChildSpec;
use super::error::StartError;
use super::protocol::{Report, StartRequest, line_of};

/// The socket to a child's supervisors.
pub(super) struct Reports {
    lines: tokio::io::Lines<BufReader<OwnedReadHalf>>,
    requests: OwnedWriteHalf,
}

impl Reports {
    pub(super) fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let (read, requests) = tokio::net::UnixStream::from_std(socket)?.into_split();
        Ok(Self {
            lines: BufReader::new(read).lines(),
            requests,
        })
    }

    /// Sends the start request and returns the child's process id.
    pub(super) async fn order(&mut self, spec: &ChildSpec) -> Result<i32, StartError> {
        let order = StartRequest {
            program: spec.program.clone(),
            arguments: spec.arguments.clone(),
            directory: spec.directory.clone(),
            environment: spec.environment.resolve(|name| std::env::var_os(name)),
            limits: spec.limits.process,
            stop_grace_ms: millis(spec.limits.stop_grace),
            terminate_grace_ms: millis(spec.limits.terminate_grace),
        };
        let line = line_of(&order).map_err(|error| StartError::Order(error.into()))?;
        let sent = self.requests.write_all(&line).await;
        // A supervisor whose setup failed does not read the request, but reports why.
        match self.next().await {
            Some(Report::Started { pid }) => Ok(pid),
            Some(Report::Failed(failure)) => Err(failure.into()),
            Some(Report::Exited { .. } | Report::Gone) => Err(StartError::SupervisorLost),
            None => match sent {
                Ok(()) => Err(StartError::SupervisorLost),
                Err(error) => Err(StartError::Order(error)),
            },
        }
    }

    /// The next report; `None` when both supervisors are gone. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Report> {
        let line = self.lines.next_line().await.ok()??;
        serde_json::from_str(&line).ok()
    }

    /// Requests the child's end.
    pub(super) async fn stop(&mut self) {
        // Fails only if the supervisors are gone.
        let _ = self.requests.shutdown().await;
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
