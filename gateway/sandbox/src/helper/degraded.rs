//! The outer helper in the degraded tier, which has no process namespace whose end would end all its processes.
//!
//! Instead the run is one process group that none of its processes can leave, because the filter allows neither
//! `setsid` nor `setpgid`; its leader confines itself like process 1 of a namespace. The run's orphans are reparented
//! to the leader, and after its end to this process, which kills the group and replies when no child is left. The
//! host's death is detected by the end of the channel; if this process dies, the leader gets its death signal.
//!
//! Invariant: after the leader was begun, this process ends only when nothing of the run is left.

use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Pid, Signal, kill_process_group};

use super::conversation::{
    Request, announce, hand_over, is_told_to_go, pair, receive_request, until_confined,
};
use super::descriptors;
use super::error::{HelperStep, StepError};
use super::first_process::{self, ExistingIsolation, FirstProcess, FirstProcessMessage};
use super::own_user::OwnUser;
use super::private::PrivateDirectoryView;
use super::process::{self, ForkSide};
use super::program::text_path;
use super::refused_calls::RefusedCalls;
use crate::protocol::{
    FinishReport, FromHelper, ProgramDescriptors, Spec, StepFailure, ToHelper, WireNetwork,
    receive, send,
};

/// Serves the host's request.
pub(super) fn course(host: &OwnedFd, doors: Vec<OwnedFd>) -> Result<(), StepError> {
    let Some(request) = receive_request(host)? else {
        return Ok(());
    };
    let Request { spec, passed } = request;
    if spec.network != WireNetwork::None {
        return Err(HelperStep::NETWORK.words("there is no network namespace"));
    }
    // The host's death is noticed below: dying at once would leave the run.
    process::outlive_parent()?;
    process::hide_memory()?;
    process::adopt_orphans()?;
    let directory = PrivateDirectoryView::find(&passed)?;
    let passed = passed.program;
    if let Some(path) = text_path(&spec.runtime, &directory.places) {
        directory.write_text(&path, &descriptors::read_program(&passed)?)?;
    }
    let user = OwnUser::choose()?;
    if let Some(user) = &user {
        directory.give_to(user)?;
    }
    let (near, far) = pair()?;
    match process::fork()? {
        ForkSide::Child => {
            drop((near, passed));
            first_process::run(FirstProcess {
                isolation: ExistingIsolation::Private {
                    places: directory.places,
                    user,
                },
                doors,
                channel: far,
            })
        }
        ForkSide::Parent(leader) => {
            drop((far, doors));
            let last = converse(host, &near, leader, (spec, passed));
            conclude(host, leader, last)
        }
    }
}

/// The leader's report before the rest of the run was killed.
enum LeaderResult {
    /// The wait status of the program, if it is known, and its refused calls.
    Ended(Option<i32>, RefusedCalls),
    /// No program runs.
    Failed(StepFailure),
}

/// Ends the run, and reports its end.
fn conclude(
    host: &OwnedFd,
    leader: Pid,
    last: Result<LeaderResult, StepError>,
) -> Result<(), StepError> {
    // The leader has not been reaped yet, so its pid cannot belong to another group. If it has not created the group
    // yet, it has no other processes.
    let _ = kill_process_group(leader, Signal::KILL);
    let _ = rustix::process::kill_process(leader, Signal::KILL);
    let used = process::wait_for_all().map_err(HelperStep::FORK.at("wait for the run"))?;
    let told = match last? {
        LeaderResult::Failed(failed) => FromHelper::Failed(failed),
        LeaderResult::Ended(status, refused_calls) => FromHelper::Finished(FinishReport {
            status,
            refused_calls: refused_calls.into_counts(),
            cpu_us: used.cpu_us,
            memory_peak_bytes: used.memory_peak_bytes,
        }),
    };
    Ok(send(host.as_fd(), &told, &[])?)
}

/// Passes the run to the leader, and relays its messages until it or the host is gone.
fn converse(
    host: &OwnedFd,
    first: &OwnedFd,
    leader: Pid,
    (spec, program): (Box<Spec>, ProgramDescriptors<OwnedFd>),
) -> Result<LeaderResult, StepError> {
    announce(host, leader)?;
    hand_over(first, spec, program);
    let mut refused_calls = match until_confined(first)? {
        Ok(refused_calls) => refused_calls,
        Err(failed) => return Ok(LeaderResult::Failed(failed)),
    };
    if !is_told_to_go(host, None)? {
        return Ok(LeaderResult::Ended(None, refused_calls));
    }
    // If the leader has already exited, its last message is still unread.
    let _ = send(first.as_fd(), &ToHelper::Go, &[]);
    let mut status = None;
    // A message of the leader precedes the host's end.
    while refused_calls.answer_until_ready(&[first, host])? == 0 {
        match receive::<FirstProcessMessage>(first.as_fd())? {
            Some((FirstProcessMessage::Started, _)) => {
                send(host.as_fd(), &FromHelper::Started, &[])?
            }
            Some((FirstProcessMessage::Ended(ended), _)) => status = Some(ended),
            Some((FirstProcessMessage::Confined, _)) => {}
            Some((FirstProcessMessage::Failed(failed), _)) => {
                return Ok(LeaderResult::Failed(failed));
            }
            None => break,
        }
    }
    Ok(LeaderResult::Ended(status, refused_calls))
}
