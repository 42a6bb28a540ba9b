//! Answers the refused system calls that the filter reports, and counts them.
//!
//! The filter suspends a caller until it gets an answer. This process answers with the error that the filter gives for
//! every other refused call, so that a program cannot distinguish the two.
//!
//! Invariant: a run has a bounded number of calls answered. After that the listener is closed, and the kernel returns
//! the same error. It does the same if the helper has died.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::error::{HelperStep, StepError};
use super::seccomp::{REFUSED, reported_name};
use crate::outcome::RefusedCall;

/// Most calls of one run that are reported.
const REPORTED_MAX: u32 = 256;

/// The refused calls of one run.
pub(super) struct RefusedCalls {
    /// None once nothing more is reported.
    listener: Option<OwnedFd>,
    reported: u32,
    counts: BTreeMap<&'static str, u32>,
}

impl RefusedCalls {
    /// Those that this listener reports; none without one.
    pub(super) fn new(listener: Option<OwnedFd>) -> Self {
        Self {
            listener,
            reported: 0,
            counts: BTreeMap::new(),
        }
    }

    /// Answers calls until one of these descriptors is readable or closed, and returns its index.
    pub(super) fn answer_until_ready(&mut self, others: &[&OwnedFd]) -> Result<usize, StepError> {
        loop {
            let descriptors = others.iter().copied().chain(&self.listener);
            let mut polled: Vec<_> = descriptors
                .map(|descriptor| PollFd::new(descriptor, PollFlags::IN))
                .collect();
            match poll(&mut polled, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(HelperStep::FORK.at("poll")(errno)),
            }
            let ready = polled.iter().map(PollFd::revents);
            let first = ready.enumerate().find(|(_, events)| !events.is_empty());
            match first {
                Some((index, _)) if index < others.len() => return Ok(index),
                Some((_, events)) if events.contains(PollFlags::IN) => self.answer(),
                // No process of the run is left that could be reported.
                Some(_) => self.listener = None,
                None => {}
            }
        }
    }

    /// Answers one call. A caller that was killed meanwhile needs no answer.
    fn answer(&mut self) {
        let Some(listener) = &self.listener else {
            return;
        };
        // SAFETY: the structure consists of integers.
        let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        let descriptor = listener.as_fd().as_raw_fd();
        // SAFETY: the structure is zeroed, as the kernel wants it, has the size in the request, and outlives the call.
        let received = unsafe { libc::ioctl(descriptor, RECEIVE, &raw mut call) };
        if received != 0 {
            return;
        }
        let response = libc::seccomp_notif_resp {
            id: call.id,
            val: 0,
            error: -REFUSED,
            flags: 0,
        };
        // SAFETY: the structure has the size in the request and outlives the call, which only reads it.
        let _ = unsafe { libc::ioctl(descriptor, SEND, &raw const response) };
        if let Some(name) = reported_name(call.data.nr.into()) {
            *self.counts.entry(name).or_default() += 1;
        }
        self.reported += 1;
        if self.reported >= REPORTED_MAX {
            self.listener = None;
        }
    }

    /// All that were reported.
    pub(super) fn into_counts(self) -> Vec<RefusedCall> {
        let counts = self.counts.into_iter();
        counts
            .map(|(name, count)| RefusedCall {
                name: name.to_owned(),
                count,
            })
            .collect()
    }
}

/// `SECCOMP_IOCTL_NOTIF_RECV` and `SECCOMP_IOCTL_NOTIF_SEND`, which `libc` has not for every target: read and write of a
/// structure, of type `!`, numbers 0 and 1.
const RECEIVE: libc::Ioctl = request(size_of::<libc::seccomp_notif>(), 0);
const SEND: libc::Ioctl = request(size_of::<libc::seccomp_notif_resp>(), 1);

const fn request(size: usize, number: usize) -> libc::Ioctl {
    const READ_AND_WRITE: usize = 3;
    ((READ_AND_WRITE << 30) | (size << 16) | ((b'!' as usize) << 8) | number) as libc::Ioctl
}
