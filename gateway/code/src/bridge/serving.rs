//! The one task of a bridge: it reads frames, runs calls and writes answers.
//!
//! Invariant: `open` has the numbers of the calls that run and of the answers that are not yet written out; at most
//! `at_once_max`.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::mem::discriminant;
use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::oneshot;
use tokio::task::{Id, JoinError, JoinSet};

use super::answer::Answer;
use super::incoming::{Incoming, Next, ReadOutcome};
use super::request::Request;
use super::violation::Violation;
use super::{BridgeLimits, BridgeSummary};
use crate::calls::{CallError, CallErrorKind, Callee};
use mooring_usage::for_same_user;

/// Everything of a bridge but its socket.
pub(super) struct BridgeServer<C> {
    callee: Arc<C>,
    limits: BridgeLimits,
    incoming: Incoming,
    is_reading: bool,
    open: HashSet<u64>,
    running: JoinSet<Answer>,
    /// Which call a task makes: what is left of one that panicked.
    tasks: HashMap<Id, u64>,
    answers: VecDeque<Answer>,
    served: BridgeSummary,
}

impl<C: Callee> BridgeServer<C> {
    pub(super) fn new(callee: Arc<C>, limits: BridgeLimits) -> Self {
        Self {
            callee,
            limits: BridgeLimits {
                at_once_max: limits.at_once_max.max(1),
                ..limits
            },
            incoming: Incoming::new(limits.request_bytes_max),
            is_reading: true,
            open: HashSet::new(),
            running: JoinSet::new(),
            tasks: HashMap::new(),
            answers: VecDeque::new(),
            served: BridgeSummary::default(),
        }
    }

    /// Serves until the bridge is ended, or the program has done what ends it.
    pub(super) async fn until(
        mut self,
        host: UnixStream,
        mut ended: oneshot::Receiver<()>,
    ) -> BridgeSummary {
        let (reader, mut writer) = host.into_split();
        loop {
            self.take_frames();
            if !self.is_reading && self.open.is_empty() {
                break;
            }
            tokio::select! {
                biased;
                // The value is never sent: this is the end of the sender.
                _ = &mut ended => break,
                written = write_some(&mut writer, &mut self.answers) => match written {
                    Ok(None) => {}
                    Ok(Some(id)) => {
                        self.open.remove(&id);
                    }
                    // The program reads no more.
                    Err(_) => break,
                },
                Some(done) = self.running.join_next_with_id() => self.finish(done),
                received = self.incoming.receive(reader.as_ref()),
                    if self.is_reading && self.has_place() => self.has_received(&received),
            }
        }
        // The socket first, so that the program waits for nothing that will not come.
        drop((reader, writer));
        self.running.shutdown().await;
        self.served
    }

    fn has_place(&self) -> bool {
        self.open.len() < self.limits.at_once_max
    }

    fn has_received(&mut self, received: &io::Result<ReadOutcome>) {
        match received {
            Ok(ReadOutcome::Bytes) => {}
            Ok(ReadOutcome::More) => self.note(Violation::Descriptors),
            // An end that is no orderly one is an end.
            Ok(ReadOutcome::End) | Err(_) => {
                self.is_reading = false;
                if self.incoming.len() > 0 {
                    self.note(Violation::CutShort {
                        bytes: self.incoming.len(),
                    });
                }
            }
        }
    }

    /// Begins what was read, as far as there are places.
    fn take_frames(&mut self) {
        while self.is_reading && self.has_place() {
            match self.incoming.next() {
                Next::Part => break,
                Next::Frame(frame) => match Request::parse(&frame) {
                    Ok(request) => self.take(&request),
                    Err(violation) => self.note(violation),
                },
                Next::TooLong(bytes) => self.note(Violation::TooLong {
                    bytes,
                    most: self.limits.request_bytes_max,
                }),
            }
        }
    }

    /// Begins one call, or refuses it.
    fn take(&mut self, request: &Request<'_>) {
        let id = request.id;
        if !self.open.insert(id) {
            return self.note(Violation::OpenId(id));
        }
        if self.served.calls >= self.limits.calls_max {
            let most = self.limits.calls_max;
            let why = format!("the run has made {most} calls, which is the most");
            self.refuse(id, CallErrorKind::Limit.error(why));
            return self.note(Violation::TooManyCalls { most });
        }
        let call = match request.call(self.limits.depth_max) {
            Ok(call) => call,
            Err(error) => {
                if error.kind == CallErrorKind::Limit {
                    let most = self.limits.depth_max;
                    self.note(Violation::TooDeep { most });
                }
                return self.refuse(id, error);
            }
        };
        self.served.calls += 1;
        let (callee, bytes_max) = (Arc::clone(&self.callee), self.limits.result_bytes_max);
        let task = self.running.spawn(for_same_user(async move {
            Answer::new(id, &callee.call(call).await, bytes_max)
        }));
        self.tasks.insert(task.id(), id);
    }

    fn refuse(&mut self, id: u64, error: CallError) {
        self.served.refused += 1;
        let bytes_max = self.limits.result_bytes_max;
        self.answers
            .push_back(Answer::new(id, &Err(error), bytes_max));
    }

    /// One call is over.
    fn finish(&mut self, done: Result<(Id, Answer), JoinError>) {
        match done {
            Ok((task, answer)) => {
                self.tasks.remove(&task);
                self.answers.push_back(answer);
            }
            Err(error) => {
                let Some(id) = self.tasks.remove(&error.id()) else {
                    return;
                };
                tracing::error!(%error, "tool call task failed");
                let error = CallErrorKind::Internal.error("the gateway failed");
                let bytes_max = self.limits.result_bytes_max;
                self.answers
                    .push_back(Answer::new(id, &Err(error), bytes_max));
            }
        }
    }

    /// Each kind once: the list is as long as there are kinds.
    fn note(&mut self, violation: Violation) {
        self.is_reading &= !violation.ends_reading();
        let mut noted = self.served.violations.iter();
        if !noted.any(|other| discriminant(other) == discriminant(&violation)) {
            tracing::info!(kind = violation.as_str(), %violation, "bridge protocol violation");
            self.served.violations.push(violation);
        }
    }
}

/// Writes of the first answer what the socket takes; the number of a call whose answer is out. Without an answer this
/// does not end. Nothing is lost where it is not waited for any more.
async fn write_some(
    writer: &mut OwnedWriteHalf,
    answers: &mut VecDeque<Answer>,
) -> io::Result<Option<u64>> {
    let Some(answer) = answers.front_mut() else {
        return std::future::pending().await;
    };
    if writer.write_buf(&mut answer.rest).await? == 0 {
        return Err(io::ErrorKind::WriteZero.into());
    }
    if !answer.rest.is_empty() {
        return Ok(None);
    }
    Ok(answers.pop_front().map(|answer| answer.id))
}
