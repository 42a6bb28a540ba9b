//! The outer helper: builds the root, starts process 1, and relays its messages.
//!
//! It stays outside of the run's control group and process namespace, so that it can report how the run ended and pass
//! on what it wrote, whatever killed it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::error::{Cause, StepError, at};
use super::first_process::{self, ExistingIsolation, FirstProcess, FirstProcessMessage};
use super::identity::{self, Outside};
use super::places::Places;
use super::process::{self, ForkSide};
use super::process_limit::KernelSettings;
use super::program::PreparedProgram;
use super::root::{Root, Text, Upper};
use super::trees::NamespaceTrees;
use super::{degraded, descriptors, namespaces, network, seccomp};
use crate::limits::Limits;
use crate::protocol::{
    FinishReport, FromHelper, Spec, SpecDescriptors, StepFailure, ToHelper, WireTier, receive, send,
};

/// Serves one request of the host.
pub(super) fn run() -> Result<(), StepError> {
    let host = descriptors::take_channel()?;
    let result = course(&host);
    if let Err(error) = &result {
        send(
            host.as_fd(),
            &FromHelper::Failed(StepFailure::from(error)),
            &[],
        )?;
    }
    result
}

fn course(host: &OwnedFd) -> Result<(), StepError> {
    process::die_with_parent()?;
    // None: the host was gone before its death could be noticed.
    let Some(request) = receive_request(host)? else {
        return Ok(());
    };
    match request.spec.tier {
        WireTier::Strict => strict(host, request),
        WireTier::Degraded => degraded::course(host, request),
    }
}

fn strict(host: &OwnedFd, request: Request) -> Result<(), StepError> {
    let Request { spec, mut passed } = request;
    let doors = std::mem::take(&mut passed.doors);
    let bridge = passed.bridge.take();
    let bytes = descriptors::read_all(passed.program.as_fd(), Limits::SOURCE_BYTES_MAX, "program")?;
    let places = Places::beneath("/");
    let program = PreparedProgram::new(&spec, &places, bytes)?;
    let filter =
        descriptors::read_all(passed.filter.as_fd(), seccomp::PROGRAM_BYTES_MAX, "filter")?;
    let settings = KernelSettings::open();
    let upper = build(&spec, &program, passed)?;
    let listener = network::listen(&spec.network)?;

    let (near, far) = pair()?;
    match process::fork()? {
        ForkSide::Child => {
            drop((near, upper, listener));
            first_process::run(FirstProcess {
                spec: &spec,
                program: &program,
                filter: &filter,
                isolation: ExistingIsolation::Root { settings, places },
                doors,
                bridge,
                channel: far,
            })
        }
        ForkSide::Parent(pid) => {
            drop((far, bridge));
            accompany(host, &near, pid, &upper, listener)
        }
    }
}

/// The channel between the helper outside and the run's first process.
pub(super) fn pair() -> Result<(OwnedFd, OwnedFd), StepError> {
    socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(at("socketpair"))
    .map_err(StepError::Fork)
}

/// The host's request.
pub(super) struct Request {
    pub(super) spec: Box<Spec>,
    pub(super) passed: SpecDescriptors<OwnedFd>,
}

/// The request; none if the host is gone.
fn receive_request(host: &OwnedFd) -> Result<Option<Request>, StepError> {
    let (spec, passed) = match receive::<ToHelper>(host.as_fd())? {
        Some((ToHelper::Spec(spec), passed)) => (spec, passed),
        Some((ToHelper::Go, _)) => return Err(StepError::Spec(Cause::words("go before the spec"))),
        None => return Ok(None),
    };
    let passed = SpecDescriptors::from_received(passed, spec.has_bridge)
        .ok_or_else(|| StepError::Spec(Cause::words("fewer descriptors than have to be")))?;
    Ok(Some(Request { spec, passed }))
}

/// Leaves the host's namespaces: from here on this process is in the run's namespaces and root.
fn build(
    spec: &Spec,
    program: &PreparedProgram,
    passed: SpecDescriptors<OwnedFd>,
) -> Result<Upper, StepError> {
    let outside = Outside::read();
    namespaces::enter()?;
    outside.map()?;
    // Not earlier: the kernel makes root the owner of a hidden process's id maps.
    process::hide_memory()?;
    identity::name_host()?;
    let trees = NamespaceTrees::reopen(&passed)?;
    drop(passed);
    let text = program.text().map(|(path, bytes)| Text { path, bytes });
    Root::build(spec, &trees, text.as_ref())?.enter()
}

/// Passes the prepared process and the listening socket to the host, and waits for its `Go`; false if the host is gone.
pub(super) fn is_told_to_go(
    host: &OwnedFd,
    pid: Pid,
    listener: Option<OwnedFd>,
) -> Result<bool, StepError> {
    let handle = pidfd_open(pid, PidfdFlags::empty())
        .map_err(at("pidfd_open"))
        .map_err(StepError::Fork)?;
    let prepared = FromHelper::Prepared {
        pid: pid.as_raw_nonzero().get(),
    };
    let passed: Vec<_> = std::iter::once(&handle)
        .chain(&listener)
        .map(AsFd::as_fd)
        .collect();
    send(host.as_fd(), &prepared, &passed)?;
    // From here on only the host has it, which keeps the network namespace alive.
    drop(listener);
    Ok(receive::<ToHelper>(host.as_fd())?.is_some())
}

/// Relays the messages of process 1 until it has ended.
fn accompany(
    host: &OwnedFd,
    first: &OwnedFd,
    pid: Pid,
    upper: &Upper,
    listener: Option<OwnedFd>,
) -> Result<(), StepError> {
    if !is_told_to_go(host, pid, listener)? {
        return Ok(());
    }
    // If process 1 has already exited, its last message is still unread.
    let _ = send(first.as_fd(), &ToHelper::Go, &[]);

    let layers = [upper.scratch.as_fd(), upper.results.as_fd()];
    let mut status = None;
    while let Some((told, _)) = receive::<FirstProcessMessage>(first.as_fd())? {
        match told {
            FirstProcessMessage::Started => send(host.as_fd(), &FromHelper::Started, &layers)?,
            FirstProcessMessage::Ended(ended) => status = Some(ended),
            FirstProcessMessage::Failed(failed) => {
                return Ok(send(host.as_fd(), &FromHelper::Failed(failed), &[])?);
            }
        }
    }
    let used = process::wait(pid)
        .map_err(at("wait for process 1"))
        .map_err(StepError::Fork)?;
    let finished = FinishReport {
        status,
        cpu_us: used.cpu_us,
        memory_peak_bytes: used.memory_peak_bytes,
    };
    Ok(send(
        host.as_fd(),
        &FromHelper::Finished(finished),
        &layers,
    )?)
}
