//! Determines how a run ended. Pure.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;

use crate::outcome::{RunEnd, StopReason};

/// The facts at the end of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts {
    /// Why this side killed it, if it did.
    pub(super) stopped: Option<StopReason>,
    /// How the program itself ended. `None` if it was gone before its status could be read.
    pub(super) status: Option<ExitStatus>,
    /// Whether the kernel killed one of its processes because memory ran out.
    pub(super) was_out_of_memory: bool,
    /// Processor time of the whole tree.
    pub(super) cpu_time: Duration,
    pub(super) cpu_time_max: Duration,
}

impl Facts {
    /// A program that exited by itself counts as exited, even if it was about to be stopped. A kill by the kernel for
    /// lack of memory has precedence: the reaction of the program's other processes does not matter.
    pub(super) fn verdict(&self) -> RunEnd {
        if self.was_out_of_memory {
            return RunEnd::Stopped(StopReason::Memory);
        }
        let code = self.status.and_then(|status| status.code());
        if let Some(code) = code {
            return RunEnd::Exited(code);
        }
        if let Some(stopped) = self.stopped {
            return RunEnd::Stopped(stopped);
        }
        let signal = self.status.and_then(|status| status.signal());
        let signal = signal.unwrap_or(Signal::KILL.as_raw());
        if signal == Signal::XCPU.as_raw() {
            return RunEnd::Stopped(StopReason::CpuTime);
        }
        // The hard limit of processor time kills outright.
        if signal == Signal::KILL.as_raw() && self.cpu_time >= self.cpu_time_max {
            return RunEnd::Stopped(StopReason::CpuTime);
        }
        RunEnd::Signalled(signal)
    }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
