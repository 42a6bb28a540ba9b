//! Step: the system call filter.
//!
//! It is a list of what is allowed, so that a call that a later kernel brings is denied. Some of the denied ones are
//! reported to the helper outside, which answers them with the same error. Calls of another architecture
//! (`int 0x80` on x86-64) end the process; the x32 calls of x86-64 are numbers that the list does not have. The host
//! compiles it once; the helper only installs it.

mod calls;

use std::collections::BTreeMap;
use std::os::fd::{FromRawFd, OwnedFd};

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use super::error::{HelperStep, StepError};
use crate::tier::Tier;
use calls::{ArgumentRule, ArgumentTest, Call};

/// Bytes of one instruction: code, two jumps, a value.
const INSTRUCTION_BYTES: usize = 8;

/// Most instructions that the kernel accepts.
const INSTRUCTIONS_MAX: usize = 4096;

/// Why the filter could not be compiled.
#[derive(Debug, thiserror::Error)]
#[error("system call filter: {0}")]
pub struct FilterError(#[from] seccompiler::BackendError);

/// Whether a program may make connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connections {
    /// Not even a socket.
    Refused,
    /// By TCP, in a private network namespace.
    Allowed,
}

/// The system call filter of a tier, as the raw program that the helper installs. Compiled once by the host.
///
/// # Errors
///
/// [`FilterError`] where the list cannot be compiled.
pub fn filter(tier: Tier, connections: Connections) -> Result<Vec<u8>, FilterError> {
    Ok(to_bytes(&compile(tier, connections)?))
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: TargetArch = TargetArch::aarch64;

fn compile(tier: Tier, connections: Connections) -> Result<BpfProgram, FilterError> {
    let mut program = match tier {
        Tier::Strict => BpfProgram::new(),
        Tier::Degraded => pretend(calls::MODES.iter().chain(calls::OLDER_MODES)),
    };
    program.extend(listed(rules(tier, connections)?)?);
    Ok(program)
}

/// What the filter does with a listed call.
#[derive(Clone)]
enum CallRule {
    Allow,
    /// Allows it with some arguments, and denies it with others.
    Test(Vec<SeccompRule>),
    /// Denies it, and reports that.
    Report,
}

/// The listed calls with their rules, in the order of their numbers.
fn rule_of_each(rules: BTreeMap<i64, Vec<SeccompRule>>) -> Vec<(i64, CallRule)> {
    let mut listed: BTreeMap<i64, CallRule> = (calls::REPORTED.iter())
        .map(|(_, number)| (*number, CallRule::Report))
        .collect();
    listed.extend(
        rules
            .into_iter()
            .map(|(number, rules)| match rules.is_empty() {
                true => (number, CallRule::Allow),
                false => (number, CallRule::Test(rules)),
            }),
    );
    listed.into_iter().collect()
}

/// The name of a reported call.
pub(super) fn reported_name(number: i64) -> Option<&'static str> {
    let found = calls::REPORTED.iter().find(|(_, known)| *known == number);
    found.map(|(name, _)| name.trim_start_matches("SYS_"))
}

/// The error of every denied call.
pub(super) const REFUSED: i32 = libc::ENOSYS;

/// Instructions that allow the listed calls and deny all others. The kernel runs a filter once for each number that it
/// knows when the filter is installed, and translates it: a chain of comparisons took three times as long as this
/// search.
fn listed(rules: BTreeMap<i64, Vec<SeccompRule>>) -> Result<BpfProgram, FilterError> {
    // Without a rule all that is left is the check of the architecture, and the answer to any call.
    let mut program = chain(BTreeMap::new())?;
    program.pop();
    program.push(instruction(LOAD_WORD, 0, NUMBER_OFFSET));
    program.extend(search(&rule_of_each(rules))?);
    Ok(program)
}

/// Calls that are compared one after the other.
const LEAF_CALLS: usize = 16;

/// Continues with the half of the calls, in the order of their numbers, to which the loaded number belongs.
fn search(rules: &[(i64, CallRule)]) -> Result<BpfProgram, FilterError> {
    let (lower, upper) = rules.split_at(rules.len() / 2);
    let Some((first, _)) = upper.first().filter(|_| rules.len() > LEAF_CALLS) else {
        return leaf(rules);
    };
    let (lower, upper) = (search(lower)?, search(upper)?);
    let mut program = vec![
        instruction(SKIP_UNLESS_AT_LEAST, 1, word(*first)),
        instruction(SKIP, 0, u32::try_from(lower.len()).unwrap_or(u32::MAX)),
    ];
    program.extend(lower);
    program.extend(upper);
    Ok(program)
}

/// Allows those of a few calls that are allowed with any argument, reports those that are to be, and leaves the others to
/// their rules.
fn leaf(rules: &[(i64, CallRule)]) -> Result<BpfProgram, FilterError> {
    let mut program = BpfProgram::new();
    let mut tested = BTreeMap::new();
    for (number, rule) in rules {
        let answer = match rule {
            CallRule::Allow => libc::SECCOMP_RET_ALLOW,
            CallRule::Report => libc::SECCOMP_RET_USER_NOTIF,
            CallRule::Test(rules) => {
                tested.insert(*number, rules.clone());
                continue;
            }
        };
        program.push(instruction(SKIP_UNLESS_EQUAL, 1, word(*number)));
        program.push(instruction(ANSWER, 0, answer));
    }
    program.extend(chain(tested)?);
    Ok(program)
}

/// Instructions that compare with one call after the other.
fn chain(rules: BTreeMap<i64, Vec<SeccompRule>>) -> Result<BpfProgram, FilterError> {
    let missing = SeccompAction::Errno(REFUSED.unsigned_abs());
    let filter = SeccompFilter::new(rules, missing, SeccompAction::Allow, ARCHITECTURE)?;
    Ok(filter.try_into()?)
}

/// The system calls that a program of this tier may make.
fn rules(
    tier: Tier,
    connections: Connections,
) -> Result<BTreeMap<i64, Vec<SeccompRule>>, FilterError> {
    let within_namespaces: [&[Call]; 4] = match tier {
        Tier::Strict => [
            calls::GROUPS,
            calls::PROCESSES,
            calls::MODES,
            calls::OLDER_MODES,
        ],
        Tier::Degraded => [&[]; 4],
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = [calls::ANY, calls::OLDER]
        .into_iter()
        .chain(within_namespaces)
        .flatten()
        .map(|(_, number)| (*number, Vec::new()))
        .collect();
    let (connect, connect_together) = match connections {
        Connections::Refused => (&[][..], &[][..]),
        Connections::Allowed => (calls::CONNECT, calls::CONNECT_TOGETHER),
    };
    rules.extend(connect.iter().map(|(_, number)| (*number, Vec::new())));
    let alone = calls::SOME.iter().map(std::slice::from_ref);
    let together = calls::TOGETHER.iter().chain(connect_together).copied();
    for tests in alone.chain(together) {
        if let Some(first) = tests.first() {
            rules.entry(first.call.1).or_default().push(rule(tests)?);
        }
    }
    Ok(rules)
}

/// Instructions that return success for these calls without executing them; all others continue with the next rules.
/// Programs that copy files set modes and times, and would report a failed copy. A call of another architecture with
/// such a number has no effect either.
fn pretend<'a>(calls: impl Iterator<Item = &'a Call>) -> BpfProgram {
    let mut program = vec![instruction(LOAD_WORD, 0, NUMBER_OFFSET)];
    for (_, number) in calls {
        program.push(instruction(SKIP_UNLESS_EQUAL, 1, word(*number)));
        program.push(instruction(ANSWER, 0, libc::SECCOMP_RET_ERRNO));
    }
    program
}

/// `BPF_LD | BPF_W | BPF_ABS`: loads a word of `struct seccomp_data`.
const LOAD_WORD: u16 = 0x20;

/// The offset of the call's number in that structure.
const NUMBER_OFFSET: u32 = 0;

/// `BPF_JMP | BPF_JEQ | BPF_K`.
const SKIP_UNLESS_EQUAL: u16 = 0x15;

/// `BPF_JMP | BPF_JGE | BPF_K`.
const SKIP_UNLESS_AT_LEAST: u16 = 0x35;

/// `BPF_JMP | BPF_JA`.
const SKIP: u16 = 0x05;

/// `BPF_RET | BPF_K`.
const ANSWER: u16 = 0x06;

/// `jf` is how many instructions are skipped where a comparison fails.
const fn instruction(code: u16, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf, k }
}

/// The number of a call. Those of the kernel are small.
fn word(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// All of these tests must pass. The kernel uses only the lower half of these arguments, and so does the filter.
fn rule(together: &[ArgumentRule]) -> Result<SeccompRule, FilterError> {
    let condition = |allowed: &ArgumentRule| {
        let (operation, value) = match allowed.test {
            ArgumentTest::Is(value) => (SeccompCmpOp::Eq, value),
            ArgumentTest::HasNone(mask) => (SeccompCmpOp::MaskedEq(mask.into()), 0),
            ArgumentTest::IsBut(mask, value) => (SeccompCmpOp::MaskedEq((!mask).into()), value),
        };
        SeccompCondition::new(
            allowed.argument,
            SeccompCmpArgLen::Dword,
            operation,
            value.into(),
        )
    };
    let conditions = together.iter().map(condition).collect::<Result<_, _>>()?;
    Ok(SeccompRule::new(conditions)?)
}

fn to_bytes(program: &[sock_filter]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(program.len() * INSTRUCTION_BYTES);
    for instruction in program {
        bytes.extend(instruction.code.to_ne_bytes());
        bytes.extend([instruction.jt, instruction.jf]);
        bytes.extend(instruction.k.to_ne_bytes());
    }
    bytes
}

fn from_bytes(bytes: &[u8]) -> Option<BpfProgram> {
    if bytes.is_empty() || bytes.len() > INSTRUCTIONS_MAX * INSTRUCTION_BYTES {
        return None;
    }
    let (instructions, rest) = bytes.as_chunks::<INSTRUCTION_BYTES>();
    let program = instructions
        .iter()
        .map(
            |&[code_0, code_1, jt, jf, k_0, k_1, k_2, k_3]| sock_filter {
                code: u16::from_ne_bytes([code_0, code_1]),
                jt,
                jf,
                k: u32::from_ne_bytes([k_0, k_1, k_2, k_3]),
            },
        )
        .collect();
    rest.is_empty().then_some(program)
}

/// Longest raw program.
pub(super) const PROGRAM_BYTES_MAX: usize = INSTRUCTIONS_MAX * INSTRUCTION_BYTES;

/// Installs the filter for this process and its descendants. It cannot be removed. The listener by which its reported
/// calls are answered is returned; without one the kernel answers them with the same error, and nothing is reported.
pub(super) fn install(bytes: &[u8]) -> Result<Option<OwnedFd>, StepError> {
    let program = from_bytes(bytes)
        .ok_or_else(|| HelperStep::SECCOMP.words("the filter is empty, cut short or too long"))?;
    match install_with_listener(&program) {
        Ok(listener) => Ok(Some(listener)),
        // A process has one listener at most, and that of a container engine may be there already.
        Err(Errno::BUSY) => seccompiler::apply_filter(&program)
            .map(|()| None)
            .map_err(|error| HelperStep::SECCOMP.words(error.to_string())),
        Err(errno) => Err(HelperStep::SECCOMP.at("seccomp")(errno)),
    }
}

fn install_with_listener(program: &[sock_filter]) -> Result<OwnedFd, Errno> {
    rustix::thread::set_no_new_privs(true)?;
    let length = program.len().try_into().map_err(|_| Errno::TOOBIG)?;
    let filter = libc::sock_fprog {
        len: length,
        // The kernel's structure and that of `seccompiler` are the same; it is only read.
        filter: program.as_ptr().cast_mut().cast(),
    };
    // SAFETY: the structure and the instructions that it names outlive the call, which only reads them.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const filter,
        )
    };
    let error = || Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO);
    match i32::try_from(descriptor) {
        // SAFETY: the kernel has just opened it for this process, close-on-exec, and nothing else has it.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(error()),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
