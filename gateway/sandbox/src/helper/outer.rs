//! The outer helper: builds what every run is surrounded by, starts process 1, waits for a run, completes its root, and
//! relays the messages of process 1.
//!
//! It stays outside of the run's control group and process namespace, so that it can report how the run ended and pass
//! on what it wrote, whatever killed it.
//!
//! Invariant: a helper that was begun in advance takes the same steps in the same order as any other. It only waits
//! longer between two of them.

use std::os::fd::{AsFd, OwnedFd};

use super::conversation::{
    Request, announce, hand_over, is_told_to_go, pair, receive_request, until_confined,
};
use super::error::{HelperStep, StepError};
use super::first_process::{self, ExistingIsolation, FirstProcess, FirstProcessMessage};
use super::identity::{self, Outside};
use super::places::Places;
use super::process::{self, ChildProcess, ForkSide};
use super::process_limit::KernelSettings;
use super::program::text_path;
use super::root::{Root, Upper};
use super::{degraded, descriptors, namespaces, network, trees};
use crate::protocol::{
    FinishReport, FromHelper, ProgramDescriptors, Spec, SpecDescriptors, StepFailure, ToHelper,
    receive, send,
};
use crate::tier::Tier;

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
            Tier::Strict => strict(host, doors),
            Tier::Degraded => degraded::course(host, doors),
        },
        Some(_) => Err(HelperStep::SPEC.words("not begun")),
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
    let trees = trees::reopen(&passed)?;
    let program = passed.program;
    let path = text_path(&spec.runtime, &Places::beneath("/"));
    let text = match &path {
        Some(path) => Some((path.as_path(), descriptors::read_program(&program)?)),
        None => None,
    };
    Ok((root.complete(spec, &trees, text)?, program))
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
        .map_err(HelperStep::FORK.at("wait for process 1"))?;
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
