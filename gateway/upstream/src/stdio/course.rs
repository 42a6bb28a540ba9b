//! The course of a child's connection: serving, ending, gone.
//!
//! Invariant: it says why it ends before its last message is taken, and that it is gone only when no process of the
//! child is left, whoever ended it.

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

use super::child::Label;
use super::command::Traffic;
use super::input;
use super::output::{Output, OutputEnd};
use super::protocol::Report;
use super::start::Reports;
use super::stderr::RecentLines;
use super::strays::MainProcess;
use crate::connection::link::{LinkEnd, TransportEnd};

/// A child that closes its streams is mostly one that has just ended: so long is waited for that word.
const EXIT_WORD_WITHIN: Duration = Duration::from_secs(1);

/// What it wrote to its standard error last is read when it is gone. Only a stranger to whom it gave that stream can
/// keep it open for longer: so long is waited.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(1);

/// All that belongs to a running child.
pub(super) struct RunningChild {
    pub(super) transport_end: TransportEnd,
    /// None where nothing is ever sent to it.
    pub(super) input: Option<pipe::Sender>,
    pub(super) output: Output,
    pub(super) reports: Reports,
    pub(super) guard: tokio::process::Child,
    /// None where it had ended before anybody looked.
    pub(super) main: Option<MainProcess>,
    pub(super) traffic: Traffic,
    /// Reads its standard error, until that is closed.
    pub(super) errors: JoinHandle<()>,
    pub(super) message_bytes_max: usize,
    pub(super) label: Label,
    pub(super) recent: RecentLines,
    /// Given back when it is gone.
    pub(super) slot: OwnedSemaphorePermit,
}

/// What is seen first of a child's end.
enum ChildEndEvent {
    Ended(LinkEnd),
    /// It closed a stream, and may be about to end.
    Closed(&'static str),
}

impl RunningChild {
    /// From the first message until it is gone.
    pub(super) async fn follow(mut self) {
        let TransportEnd {
            mut outgoing,
            incoming,
            ending,
            stop,
            gone,
        } = self.transport_end;
        let end = {
            // Dropped only when the reason is settled: the end of its input would be a reason of its own to end.
            let mut writing = pin!(write(self.input, &mut outgoing));
            let reading = read(&mut self.output, &incoming, self.traffic);
            let seen = tokio::select! {
                biased;
                () = stop.cancelled() => ChildEndEvent::Ended(LinkEnd::Closed),
                end = exit_word(&mut self.reports) => ChildEndEvent::Ended(end),
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
            settle(seen, &mut self.reports).await
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
                    _ = self.output.pass_on(&incoming) => {}
                    () = stop.cancelled() => {}
                }
            }
            drop(incoming);
            tokio::select! {
                () = self.output.discard() => {}
                () = all_gone.cancelled() => {}
            }
        };
        let last = async {
            until_gone(&mut self.reports, self.main.as_ref()).await;
            let _ = self.guard.wait().await;
            let _ = timeout(LAST_WORDS_WITHIN, self.errors).await;
            drop((self.slot, gone));
            all_gone.cancel();
        };
        tokio::join!(rest, last);
    }
}

/// Writes what is to be sent. Where nothing ever is, it closes the queue and is never done.
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

/// Passes on what the child prints. The end of that is a sign where it serves; a program that only prints may go on
/// without, and this is never done then.
async fn read(output: &mut Output, incoming: &mpsc::Sender<Bytes>, traffic: Traffic) -> OutputEnd {
    match (output.pass_on(incoming).await, traffic) {
        (OutputEnd::Closed, Traffic::Output) => std::future::pending().await,
        (end, _) => end,
    }
}

/// Waits until the child's end is told, or nobody is left who could tell.
async fn exit_word(reports: &mut Reports) -> LinkEnd {
    match reports.next().await {
        Some(Report::Exited { status }) => LinkEnd::Exited(ExitStatus::from_raw(status)),
        _ => LinkEnd::Broken("its supervisor ended".into()),
    }
}

/// The reason of the end, where a closed stream is a sign and no reason.
async fn settle(seen: ChildEndEvent, reports: &mut Reports) -> LinkEnd {
    match seen {
        ChildEndEvent::Ended(end) => end,
        ChildEndEvent::Closed(sign) => timeout(EXIT_WORD_WITHIN, exit_word(reports))
            .await
            .unwrap_or_else(|_| LinkEnd::Broken(sign.into())),
    }
}

/// Reads what the supervisors still say. Where they were killed before they were done, this process does the rest.
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
        LinkEnd::Closed => tracing::debug!(%server, %session, "a server process is told to end"),
        LinkEnd::Exited(_) | LinkEnd::Broken(_) | LinkEnd::MessageTooLong { .. } => {
            let stderr = recent.lines();
            tracing::warn!(%server, %session, %end, ?stderr, "the connection to a server process ended");
        }
    }
}
