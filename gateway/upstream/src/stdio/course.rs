//! The lifecycle of a child's connection: serving, ending, gone.
//!
//! Invariant: the reason of the end is set before the last message is read, and `gone` is reported only when no process
//! of the child is left, whatever ended it.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use bytes::Bytes;
use tokio::net::unix::pipe;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::command::Traffic;
use super::input;
use super::label::Label;
use super::output::{Output, OutputEnd};
use super::protocol::Report;
use super::reports::Reports;
use super::stderr::RecentLines;
use super::strays::MainProcess;
use crate::connection::link::{LinkEnd, TransportEnd};

/// A child that closes its streams has usually just exited: how long to wait for its exit status.
const EXIT_STATUS_WITHIN: Duration = Duration::from_secs(1);

/// stderr is read to its end after the child is gone. A process outside the child's tree may keep the stream open, so
/// the wait is limited.
const STDERR_WITHIN: Duration = Duration::from_secs(1);

/// Everything that belongs to a running child.
pub(super) struct RunningChild {
    pub(super) transport_end: TransportEnd,
    /// `None` if nothing is ever sent to it.
    pub(super) input: Option<pipe::Sender>,
    pub(super) output: Output,
    pub(super) reports: Reports,
    pub(super) guard: tokio::process::Child,
    /// `None` if it had exited before it could be opened.
    pub(super) main: Option<MainProcess>,
    pub(super) traffic: Traffic,
    /// Reads its stderr to the end.
    pub(super) errors: JoinHandle<()>,
    pub(super) message_bytes_max: usize,
    pub(super) label: Label,
    pub(super) recent: RecentLines,
    /// Released when the child is gone.
    pub(super) slot: OwnedSemaphorePermit,
}

/// The first sign of a child's end.
enum ChildEndEvent {
    Ended(LinkEnd),
    /// It closed a stream, and may be about to exit.
    Closed(&'static str),
}

impl RunningChild {
    /// Runs from the first message until the child is gone.
    pub(super) async fn run(mut self) {
        let TransportEnd {
            mut outgoing,
            incoming,
            ending,
            stop,
            gone,
        } = self.transport_end;
        let end = {
            // Dropped only after the reason is determined, because closing stdin makes the child exit.
            let mut writing = pin!(write(self.input, &mut outgoing));
            let reading = read(&mut self.output, &incoming, self.traffic);
            let seen = tokio::select! {
                biased;
                () = stop.cancelled() => ChildEndEvent::Ended(LinkEnd::Closed),
                end = exit_status(&mut self.reports) => ChildEndEvent::Ended(end),
                _ = self.guard.wait() => ChildEndEvent::Ended(LinkEnd::Broken("its guard ended".into())),
                written = &mut writing => match written {
                    Ok(()) => ChildEndEvent::Ended(LinkEnd::Closed),
                    Err(_) => ChildEndEvent::Closed("it does not read its standard input"),
                },
                end = reading => match end {
                    OutputEnd::Closed => ChildEndEvent::Closed("it closed its standard output"),
                    OutputEnd::TooLong => ChildEndEvent::Ended(LinkEnd::MessageTooLong {
                        bytes_max: self.message_bytes_max,
                    }),
                },
            };
            reason_of(seen, &mut self.reports).await
        };
        outgoing.close();
        report(&end, self.traffic, &self.label, &self.recent);
        let may_have_more = matches!(end, LinkEnd::Exited(_) | LinkEnd::Broken(_));
        ending.set(end);
        self.reports.stop().await;

        let all_gone = CancellationToken::new();
        let rest = async {
            if may_have_more {
                tokio::select! {
                    _ = self.output.forward(&incoming) => {}
                    () = stop.cancelled() => {}
                }
            }
            drop(incoming);
            tokio::select! {
                () = self.output.discard() => {}
                () = all_gone.cancelled() => {}
            }
        };
        let cleanup = async {
            until_gone(&mut self.reports, self.main.as_ref()).await;
            let _ = self.guard.wait().await;
            let _ = timeout(STDERR_WITHIN, self.errors).await;
            drop((self.slot, gone));
            all_gone.cancel();
        };
        tokio::join!(rest, cleanup);
    }
}

/// Writes the queued messages. Without `input` it closes the queue and never returns.
async fn write(
    input: Option<pipe::Sender>,
    outgoing: &mut mpsc::Receiver<Bytes>,
) -> io::Result<()> {
    match input {
        Some(input) => input::write(input, outgoing).await,
        None => {
            outgoing.close();
            std::future::pending().await
        }
    }
}

/// Forwards what the child prints. The end of stdout is a sign of the end for [`Traffic::Messages`]; for
/// [`Traffic::Output`] it is not, and this never returns.
async fn read(output: &mut Output, incoming: &mpsc::Sender<Bytes>, traffic: Traffic) -> OutputEnd {
    match (output.forward(incoming).await, traffic) {
        (OutputEnd::Closed, Traffic::Output) => std::future::pending().await,
        (end, _) => end,
    }
}

/// Waits for the child's exit status, or for the end of its supervisors.
async fn exit_status(reports: &mut Reports) -> LinkEnd {
    match reports.next().await {
        Some(Report::Exited { status }) => LinkEnd::Exited(ExitStatus::from_raw(status)),
        _ => LinkEnd::Broken("its supervisor ended".into()),
    }
}

/// The reason of the end. After a closed stream, the exit status is awaited for a moment.
async fn reason_of(seen: ChildEndEvent, reports: &mut Reports) -> LinkEnd {
    match seen {
        ChildEndEvent::Ended(end) => end,
        ChildEndEvent::Closed(sign) => timeout(EXIT_STATUS_WITHIN, exit_status(reports))
            .await
            .unwrap_or_else(|_| LinkEnd::Broken(sign.into())),
    }
}

/// Reads the remaining reports. If both supervisors were killed before they finished, this process kills the rest of
/// the tree.
async fn until_gone(reports: &mut Reports, main: Option<&MainProcess>) {
    let mut is_gone = false;
    while let Some(report) = reports.next().await {
        is_gone |= matches!(report, Report::Gone);
    }
    if let (false, Some(main)) = (is_gone, main) {
        main.end();
    }
}

fn report(end: &LinkEnd, traffic: Traffic, label: &Label, recent: &RecentLines) {
    let Label { server, session } = label;
    match end {
        LinkEnd::Exited(_) if traffic == Traffic::Output => {
            tracing::debug!(%server, %session, %end, "a program ended");
        }
        LinkEnd::Closed => tracing::debug!(%server, %session, "stopping a server process"),
        LinkEnd::Exited(_) | LinkEnd::Broken(_) | LinkEnd::MessageTooLong { .. } => {
            let stderr = recent.tail();
            tracing::warn!(%server, %session, %end, stderr, "connection to a server process ended");
        }
    }
}
