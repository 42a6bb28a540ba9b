//! Processes: to begin one, to wait for its end, to die with the parent.

use std::mem::MaybeUninit;

use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Pid, Signal, kill_process, set_child_subreaper, set_dumpable_behavior,
    set_parent_process_death_signal,
};

use super::error::{HelperStep, StepError};

/// The usage of a process and of all children that it waited for.
pub(super) struct ProcessUsage {
    pub(super) cpu_us: u64,
    pub(super) memory_peak_bytes: u64,
}

/// Which side of a fork this is.
pub(super) enum ForkSide {
    Parent(Pid),
    Child,
}

/// Has the kernel kill this process when the thread that started it ends.
pub(super) fn die_with_parent() -> Result<(), StepError> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(HelperStep::PARENT.at("parent death signal"))
}

/// Reverts that.
pub(super) fn outlive_parent() -> Result<(), StepError> {
    set_parent_process_death_signal(None).map_err(HelperStep::PARENT.at("parent death signal"))
}

/// Has this process be the parent of every orphan among its descendants.
pub(super) fn adopt_orphans() -> Result<(), StepError> {
    set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(HelperStep::PARENT.at("child subreaper"))
}

/// The signal that notifies [`end_group_with_parent`]. A process of the run that sends it ends its own run.
const PARENT_GONE: i32 = libc::SIGUSR2;

/// Signals that a program sends to its whole group, to which the process that waits for the program belongs.
const ASKING: [i32; 6] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGALRM,
];

/// Kills this process's whole group, itself included, when its parent ends. Until then it ignores termination signals;
/// programs that it starts get the default dispositions. Must be called after the last change of user, which clears the
/// death signal.
pub(super) fn end_group_with_parent() -> Result<(), StepError> {
    extern "C" fn end_group(_: i32) {
        // SAFETY: the call takes two numbers, and may be made in a handler.
        unsafe { libc::kill(0, libc::SIGKILL) };
    }
    extern "C" fn go_on(_: i32) {}
    // SAFETY: the handler makes one system call that handlers may make, and touches no memory.
    unsafe {
        libc::signal(
            PARENT_GONE,
            end_group as extern "C" fn(i32) as libc::sighandler_t,
        )
    };
    for signal in ASKING {
        // SAFETY: the handler does nothing.
        unsafe { libc::signal(signal, go_on as extern "C" fn(i32) as libc::sighandler_t) };
    }
    set_parent_process_death_signal(Some(Signal::USR2))
        .map_err(HelperStep::PARENT.at("parent death signal"))
}

/// Keeps this process's memory from every other one of the same user.
pub(super) fn hide_memory() -> Result<(), StepError> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(HelperStep::PARENT.at("dumpable"))
}

/// Forks; the child continues from here with a copy of everything.
pub(super) fn fork() -> Result<ForkSide, StepError> {
    // SAFETY: this process has one thread, so that the child finds no lock held by another one.
    match unsafe { libc::fork() } {
        0 => Ok(ForkSide::Child),
        number => match Pid::from_raw(number) {
            Some(pid) if number > 0 => Ok(ForkSide::Parent(pid)),
            _ => Err(HelperStep::FORK.at("fork")(std::io::Error::last_os_error())),
        },
    }
}

/// A child that is killed and reaped when this is dropped, unless its end was waited for: as an orphan it would be a
/// zombie of the first process around, which in a container is the gateway.
pub(super) struct ChildProcess {
    pub(super) pid: Pid,
    is_reaped: bool,
}

impl ChildProcess {
    pub(super) const fn new(pid: Pid) -> Self {
        Self {
            pid,
            is_reaped: false,
        }
    }

    /// Waits for its end.
    pub(super) fn wait(&mut self) -> Result<ProcessUsage, Errno> {
        let used = wait_for(self.pid.as_raw_nonzero().get());
        self.is_reaped = true;
        used
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        if !self.is_reaped {
            // Not reaped yet, so that the number is still its own.
            let _ = kill_process(self.pid, Signal::KILL);
            let _ = self.wait();
        }
    }
}

/// Waits for the end of every child, adopted ones included.
pub(super) fn wait_for_all() -> Result<ProcessUsage, Errno> {
    let mut all = ProcessUsage {
        cpu_us: 0,
        memory_peak_bytes: 0,
    };
    loop {
        match wait_for(ANY_CHILD) {
            Ok(used) => {
                all.cpu_us = all.cpu_us.saturating_add(used.cpu_us);
                all.memory_peak_bytes = all.memory_peak_bytes.max(used.memory_peak_bytes);
            }
            Err(Errno::CHILD) => return Ok(all),
            Err(errno) => return Err(errno),
        }
    }
}

/// In place of a child's number.
const ANY_CHILD: i32 = -1;

fn wait_for(number: i32) -> Result<ProcessUsage, Errno> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both pointers are to values that outlive the call, which writes to them.
        let result = unsafe { libc::wait4(number, &raw mut status, 0, usage.as_mut_ptr()) };
        if result >= 0 {
            break;
        }
        match Errno::from_io_error(&std::io::Error::last_os_error()) {
            Some(Errno::INTR) => {}
            errno => return Err(errno.unwrap_or(Errno::CHILD)),
        }
    }
    // SAFETY: all bytes were zero, which is a value of this structure of numbers, before the call wrote its own.
    let usage = unsafe { usage.assume_init() };
    Ok(ProcessUsage {
        cpu_us: microseconds(usage.ru_utime).saturating_add(microseconds(usage.ru_stime)),
        // The kernel counts kibibytes.
        memory_peak_bytes: u64::try_from(usage.ru_maxrss)
            .unwrap_or(0)
            .saturating_mul(1024),
    })
}

fn microseconds(time: libc::timeval) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000)
        .saturating_add(u64::try_from(time.tv_usec).unwrap_or(0))
}

/// Ends this process. The kernel closes its descriptors.
#[expect(
    clippy::disallowed_methods,
    reason = "a forked process must not return into what its parent was doing"
)]
pub(super) fn end(code: i32) -> ! {
    std::process::exit(code)
}
