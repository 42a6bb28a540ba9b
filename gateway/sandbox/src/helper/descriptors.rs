//! Step: no descriptor of the host's reaches a program.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, fcntl_dupfd_cloexec};

use super::error::{Cause, StepError, at};
use crate::limits::Limits;
use crate::protocol::ProgramDescriptors;

/// The first descriptor after the standard ones.
const FIRST_OTHER: i32 = 3;

/// The program's descriptor of the bridge.
const BRIDGE: i32 = FIRST_OTHER;

/// Takes the channel to the host from descriptor 0, which is replaced by an empty input. From then on the bridge's
/// number is in use, in this process and its children, either by the channel or by whatever had it before.
pub(super) fn take_channel() -> Result<OwnedFd, StepError> {
    // What the host inherited itself and forgot to mark: a helper may wait for hours.
    close_range(0)?;
    let channel = fcntl_dupfd_cloexec(rustix::stdio::stdin(), FIRST_OTHER)
        .map_err(at("descriptor 0"))
        .map_err(StepError::Descriptors)?;
    let nothing = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(at("open /dev/null"))
        .map_err(StepError::Descriptors)?;
    rustix::stdio::dup2_stdin(nothing)
        .map_err(at("descriptor 0"))
        .map_err(StepError::Descriptors)?;
    Ok(channel)
}

/// Marks every descriptor except 0, 1 and 2 close-on-exec, including those that the host forgot to mark. Descriptors
/// for the program are passed at each start, see [`pass_bridge`].
pub(super) fn close_on_exec() -> Result<(), StepError> {
    close_range(libc::CLOSE_RANGE_CLOEXEC as i32)
}

/// Of all descriptors but the standard ones.
fn close_range(flags: i32) -> Result<(), StepError> {
    // SAFETY: the call takes three numbers. With the flag it closes nothing that this process still owns; without it,
    // it is made before this process has opened anything.
    let result = unsafe { libc::close_range(FIRST_OTHER.unsigned_abs(), u32::MAX, flags) };
    if result == 0 {
        return Ok(());
    }
    Err(StepError::Descriptors(at("close_range")(
        std::io::Error::last_os_error(),
    )))
}

/// Passes the bridge, and nothing else, to the program that `command` starts, after the standard descriptors.
///
/// The standard library reports a failed start through a pipe, which must not have the bridge's number. It does not:
/// [`take_channel`] ensured that the number is in use.
pub(super) fn pass_bridge(command: &mut Command, bridge: OwnedFd) {
    let put = move || {
        // Never the same number as its own, at which it would stay marked to be closed. SAFETY: the call takes two
        // numbers, of a descriptor that is open here and of one that this process, about to be another program, has no
        // use for.
        let result = unsafe { libc::dup2(bridge.as_raw_fd(), BRIDGE) };
        if result == BRIDGE {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error())
        }
    };
    // SAFETY: between fork and exec the closure makes one system call, and touches no memory.
    unsafe { command.pre_exec(put) };
}

/// The bytes of a program.
pub(super) fn read_program(passed: &ProgramDescriptors<OwnedFd>) -> Result<Vec<u8>, StepError> {
    read_all(passed.source.as_fd(), Limits::SOURCE_BYTES_MAX, "program")
}

/// Reads a regular file from its beginning without moving its offset, because other runs may share it.
pub(super) fn read_all(
    file: BorrowedFd<'_>,
    bytes_max: usize,
    name: &'static str,
) -> Result<Vec<u8>, StepError> {
    let mut bytes = vec![0; bytes_max.saturating_add(1)];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..)
        && !rest.is_empty()
    {
        match rustix::io::pread(file.as_fd(), rest, filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(StepError::Spec(at(name)(errno))),
        }
    }
    if filled > bytes_max {
        return Err(StepError::Spec(Cause::words(format!(
            "{name} is longer than {bytes_max} bytes"
        ))));
    }
    bytes.truncate(filled);
    Ok(bytes)
}
