//! The events that the loop that watches a run waits for.
//!
//! Invariant: nothing is waited on for longer than until the run's next deadline.

use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::error::RunError;
use super::watch::Watch;

/// The descriptors that are ready.
#[derive(Default)]
pub(super) struct Ready {
    pub(super) message: bool,
    pub(super) helper_ended: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) asked: bool,
}

impl Ready {
    /// Waits for the next thing to happen, at most until the next deadline.
    pub(super) fn next(watch: &Watch<'_, '_>) -> Result<Self, RunError> {
        let is_running = watch.state.started.is_some() && watch.state.stopped.is_none();
        let until = if is_running {
            watch.state.deadline.min(watch.state.next_look)
        } else {
            watch.state.deadline
        };
        let wait = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(wait).map_err(|_| RunError::Protocol {
            text: "endless wait".to_owned(),
        })?;
        let helper = watch.begun.helper.process().descriptor();
        let mut descriptors = vec![
            PollFd::from_borrowed_fd(watch.begun.helper.socket(), PollFlags::IN),
            PollFd::from_borrowed_fd(helper, PollFlags::IN),
        ];
        // A descriptor that is not waited for keeps its place with no events requested: that of the helper, which has
        // no new messages.
        for pump in [&watch.stdout, &watch.stderr] {
            let wanted = pump
                .descriptor()
                .map(|pipe| PollFd::from_borrowed_fd(pipe, PollFlags::IN));
            descriptors
                .push(wanted.unwrap_or(PollFd::from_borrowed_fd(helper, PollFlags::empty())));
        }
        // A stop that is requested before the program runs takes effect when it does.
        let stop = if is_running {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        descriptors.push(PollFd::new(watch.stop, stop));
        match poll(&mut descriptors, Some(&timeout)) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Self::default()),
            Err(error) => {
                return Err(RunError::Host {
                    step: "poll",
                    source: error.into(),
                });
            }
        }
        let mut ready = descriptors
            .iter()
            .map(|descriptor| !descriptor.revents().is_empty());
        let mut next = || ready.next().unwrap_or(false);
        Ok(Self {
            message: next(),
            helper_ended: next(),
            stdout: next(),
            stderr: next(),
            asked: next(),
        })
    }
}
