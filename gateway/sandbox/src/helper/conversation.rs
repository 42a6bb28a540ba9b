//! What the helper outside says to the host and to process 1 before a program is started, the same in every tier.

use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::error::{HelperStep, StepError};
use super::first_process::FirstProcessMessage;
use super::refused_calls::RefusedCalls;
use crate::protocol::{
    FromHelper, ProgramDescriptors, Spec, SpecDescriptors, StepFailure, ToHelper, receive, send,
};

/// The channel between the helper outside and the run's first process.
pub(super) fn pair() -> Result<(OwnedFd, OwnedFd), StepError> {
    socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(HelperStep::FORK.at("socketpair"))
}

/// The host's request.
pub(super) struct Request {
    pub(super) spec: Box<Spec>,
    pub(super) passed: SpecDescriptors<OwnedFd>,
}

/// The request; none if the host is gone.
pub(super) fn receive_request(host: &OwnedFd) -> Result<Option<Request>, StepError> {
    let (spec, passed) = match receive::<ToHelper>(host.as_fd())? {
        Some((ToHelper::Spec(spec), passed)) => (spec, passed),
        Some(_) => return Err(HelperStep::SPEC.words("something else than a spec")),
        None => return Ok(None),
    };
    let passed = SpecDescriptors::from_received(passed, spec.has_bridge)
        .ok_or_else(|| HelperStep::SPEC.words("fewer descriptors than have to be"))?;
    Ok(Some(Request { spec, passed }))
}

/// Tells the host of process 1.
pub(super) fn announce(host: &OwnedFd, pid: Pid) -> Result<(), StepError> {
    let handle = pidfd_open(pid, PidfdFlags::empty()).map_err(HelperStep::FORK.at("pidfd_open"))?;
    let waiting = FromHelper::Waiting {
        pid: pid.as_raw_nonzero().get(),
    };
    Ok(send(host.as_fd(), &waiting, &[handle.as_fd()])?)
}

/// Passes the run to process 1.
pub(super) fn hand_over(first: &OwnedFd, spec: Box<Spec>, program: ProgramDescriptors<OwnedFd>) {
    let program = program.into_vec();
    let passed: Vec<_> = program.iter().map(AsFd::as_fd).collect();
    // If process 1 has already exited, its last message is still unread.
    let _ = send(first.as_fd(), &ToHelper::Spec(spec), &passed);
}

/// Waits until process 1 is confined, which lets this process answer its refused calls; where it is not, why. One that
/// died while it waited is noticed here.
pub(super) fn until_confined(
    first: &OwnedFd,
) -> Result<Result<RefusedCalls, StepFailure>, StepError> {
    match receive::<FirstProcessMessage>(first.as_fd())? {
        Some((FirstProcessMessage::Confined, listener)) => {
            Ok(Ok(RefusedCalls::new(listener.into_iter().next())))
        }
        Some((FirstProcessMessage::Failed(failed), _)) => Ok(Err(failed)),
        _ => Err(HelperStep::FORK.words("process 1 ended before it was confined")),
    }
}

/// Passes the listening socket to the host, and waits for its `Go`; false if the host is gone.
pub(super) fn is_told_to_go(host: &OwnedFd, listener: Option<OwnedFd>) -> Result<bool, StepError> {
    let passed: Vec<_> = listener.iter().map(AsFd::as_fd).collect();
    send(host.as_fd(), &FromHelper::Prepared, &passed)?;
    // From here on only the host has it, which keeps the network namespace alive.
    drop(listener);
    Ok(receive::<ToHelper>(host.as_fd())?.is_some())
}
