//! The outer helper: builds what every run is surrounded by, starts process 1, waits for a run, completes its root, and
//! relays the messages of process 1.
//!
//! It stays outside of the run's control group and process namespace, so that it can report how the run ended and pass
//! on what it wrote, whatever killed it.
//!
//! Invariant: a helper that was begun in advance takes the same steps in the same order as any other. It only waits
//! longer between two of them.

use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::error::{Cause, StepError, at};
use super::first_process::{self, ExistingIsolation, FirstProcess, FirstProcessMessage};
use super::identity::{self, Outside};
use super::places::Places;
use super::process::{self, ChildProcess, ForkSide};
use super::process_limit::KernelSettings;
use super::program::text_path;
use super::refused_calls::RefusedCalls;
use super::root::{Root, Text, Upper};
use super::trees::NamespaceTrees;
use super::{degraded, descriptors, namespaces, network};
use crate::protocol::{
    FinishReport, FromHelper, ProgramDescriptors, Spec, SpecDescriptors, StepFailure, ToHelper,
    WireTier, receive, send,
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
    match receive::<ToHelper>(host.as_fd())? {
        Some((ToHelper::Begin { tier }, doors)) => match tier {
            WireTier::Strict => strict(host, doors),
            WireTier::Degraded => degraded::course(host, doors),
        },
        Some(_) => Err(StepError::Spec(Cause::words("not begun"))),
        None => Ok(()),
    }
}

fn strict(host: &OwnedFd, doors: Vec<OwnedFd>) -> Result<(), StepError> {
    let settings = KernelSettings::open();
    let root = begin()?;
    let (near, far) = pair()?;
    match process::fork()? {
        ForkSide::Child => {
            drop(near);
            first_process::run(FirstProcess {
                isolation: ExistingIsolation::Root { settings, root },
                doors,
                channel: far,
            })
        }
        ForkSide::Parent(pid) => {
            drop((far, doors, settings));
            serve_run(host, ChildProcess::new(pid), &near, root)
        }
    }
}

/// Waits for the run, completes its root, and has process 1 start its program.
fn serve_run(
    host: &OwnedFd,
    child: ChildProcess,
    first: &OwnedFd,
    root: Root,
) -> Result<(), StepError> {
    announce(host, child.pid)?;
    let Some(Request { spec, passed }) = receive_request(host)? else {
        // The host has no use for this helper.
        return Ok(());
    };
    let (upper, program) = complete(&root, &spec, passed)?;
    let listener = network::listen(&spec.network)?;
    // Process 1 confines itself while the host's root is detached, which takes as long.
    hand_over(first, spec, program);
    root.enter()?;
    accompany(host, child, first, &upper, listener)
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
pub(super) fn receive_request(host: &OwnedFd) -> Result<Option<Request>, StepError> {
    let (spec, passed) = match receive::<ToHelper>(host.as_fd())? {
        Some((ToHelper::Spec(spec), passed)) => (spec, passed),
        Some(_) => return Err(StepError::Spec(Cause::words("something else than a spec"))),
        None => return Ok(None),
    };
    let passed = SpecDescriptors::from_received(passed, spec.has_bridge)
        .ok_or_else(|| StepError::Spec(Cause::words("fewer descriptors than have to be")))?;
    Ok(Some(Request { spec, passed }))
}

/// Leaves the host's namespaces, and begins the root: from here on this process is in the run's namespaces.
fn begin() -> Result<Root, StepError> {
    let outside = Outside::read();
    namespaces::enter()?;
    outside.map()?;
    // Not earlier: the kernel makes root the owner of a hidden process's id maps.
    process::hide_memory()?;
    identity::name_host()?;
    Root::begin()
}

/// Adds the run's own trees to the root. What process 1 needs is returned.
fn complete(
    root: &Root,
    spec: &Spec,
    passed: SpecDescriptors<OwnedFd>,
) -> Result<(Upper, ProgramDescriptors<OwnedFd>), StepError> {
    let trees = NamespaceTrees::reopen(&passed)?;
    let program = passed.program;
    let path = text_path(&spec.runtime, &Places::beneath("/"));
    let upper = match path {
        Some(path) => {
            let bytes = descriptors::read_program(&program)?;
            let text = Text {
                path: &path,
                bytes: &bytes,
            };
            root.complete(spec, &trees, Some(&text))?
        }
        None => root.complete(spec, &trees, None)?,
    };
    Ok((upper, program))
}

/// Tells the host of process 1.
pub(super) fn announce(host: &OwnedFd, pid: Pid) -> Result<(), StepError> {
    let handle = pidfd_open(pid, PidfdFlags::empty())
        .map_err(at("pidfd_open"))
        .map_err(StepError::Fork)?;
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

/// Waits until process 1 is confined, which lets this process answer its refused calls; where it is not, why. One that died while it waited is noticed here.
pub(super) fn until_confined(
    first: &OwnedFd,
) -> Result<Result<RefusedCalls, StepFailure>, StepError> {
    match receive::<FirstProcessMessage>(first.as_fd())? {
        Some((FirstProcessMessage::Confined, listener)) => {
            Ok(Ok(RefusedCalls::new(listener.into_iter().next())))
        }
        Some((FirstProcessMessage::Failed(failed), _)) => Ok(Err(failed)),
        _ => Err(StepError::Fork(Cause::words(
            "process 1 ended before it was confined",
        ))),
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

/// Relays the messages of process 1 until it has ended.
fn accompany(
    host: &OwnedFd,
    mut child: ChildProcess,
    first: &OwnedFd,
    upper: &Upper,
    listener: Option<OwnedFd>,
) -> Result<(), StepError> {
    let mut refused_calls = match until_confined(first)? {
        Ok(refused_calls) => refused_calls,
        Err(failed) => return Ok(send(host.as_fd(), &FromHelper::Failed(failed), &[])?),
    };
    if !is_told_to_go(host, listener)? {
        return Ok(());
    }
    // If process 1 has already exited, its last message is still unread.
    let _ = send(first.as_fd(), &ToHelper::Go, &[]);

    let layers = [upper.scratch.as_fd(), upper.results.as_fd()];
    let mut status = None;
    loop {
        refused_calls.answer_until_ready(&[first])?;
        let Some((told, _)) = receive::<FirstProcessMessage>(first.as_fd())? else {
            break;
        };
        match told {
            FirstProcessMessage::Started => send(host.as_fd(), &FromHelper::Started, &layers)?,
            FirstProcessMessage::Ended(ended) => status = Some(ended),
            FirstProcessMessage::Confined => {}
            FirstProcessMessage::Failed(failed) => {
                return Ok(send(host.as_fd(), &FromHelper::Failed(failed), &[])?);
            }
        }
    }
    let used = child
        .wait()
        .map_err(at("wait for process 1"))
        .map_err(StepError::Fork)?;
    let finished = FinishReport {
        status,
        cpu_us: used.cpu_us,
        memory_peak_bytes: used.memory_peak_bytes,
        refused_calls: refused_calls.into_counts(),
    };
    Ok(send(
        host.as_fd(),
        &FromHelper::Finished(finished),
        &layers,
    )?)
}
