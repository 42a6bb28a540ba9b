//! Step: no descriptor of the host's reaches a program.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, fcntl_dupfd_cloexec};

use super::error::{HelperStep, StepError};
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
        .map_err(HelperStep::DESCRIPTORS.at("descriptor 0"))?;
    let nothing = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(HelperStep::DESCRIPTORS.at("open /dev/null"))?;
    rustix::stdio::dup2_stdin(nothing).map_err(HelperStep::DESCRIPTORS.at("descriptor 0"))?;
    Ok(channel)
}

/// Marks every descriptor except 0, 1 and 2 close-on-exec, including those that the host forgot to mark. Descriptors
/// for the program are passed at its start, see [`inheritable_bridge`].
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
    Err(HelperStep::DESCRIPTORS.at("close_range")(
        std::io::Error::last_os_error(),
    ))
}

/// The bridge at the number where a program has it, not marked to be closed. Whatever process 1 starts has it until this
/// is dropped.
///
/// The number is the one of [`take_channel`], whose channel process 1 inherited and never uses: it has one of its own.
pub(super) fn inheritable_bridge(bridge: &OwnedFd) -> std::io::Result<OwnedFd> {
    // SAFETY: the call takes two numbers: of a descriptor that is open here, and of one that this process has no use for.
    // They differ, because the second was in use when the first was received.
    let result = unsafe { libc::dup2(bridge.as_raw_fd(), BRIDGE) };
    if result != BRIDGE {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the number is open, and what had it before is never used or dropped: process 1 does not return to where
    // that is owned.
    Ok(unsafe { OwnedFd::from_raw_fd(BRIDGE) })
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
            Err(errno) => return Err(HelperStep::SPEC.at(name)(errno)),
        }
    }
    if filled > bytes_max {
        return Err(HelperStep::SPEC.words(format!("{name} is longer than {bytes_max} bytes")));
    }
    bytes.truncate(filled);
    Ok(bytes)
}
