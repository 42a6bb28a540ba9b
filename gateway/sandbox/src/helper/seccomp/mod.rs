//! Step: the system call filter.
//!
//! It is a list of what is allowed, so that a call that a later kernel brings is denied. Calls of another architecture
//! (`int 0x80` on x86-64) end the process; the x32 calls of x86-64 are numbers that the list does not have. The host
//! compiles it once; the helper only installs it.

mod calls;

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use super::error::{Cause, StepError};
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

/// Instructions that allow the listed calls and deny all others. The kernel runs a filter once for each number that it
/// knows when the filter is installed, and translates it: a chain of comparisons took three times as long as this
/// search.
fn listed(rules: BTreeMap<i64, Vec<SeccompRule>>) -> Result<BpfProgram, FilterError> {
    // Without a rule all that is left is the check of the architecture, and the answer to any call.
    let mut program = chain(BTreeMap::new())?;
    program.pop();
    program.push(instruction(LOAD_WORD, 0, NUMBER_OFFSET));
    let rules: Vec<_> = rules.into_iter().collect();
    program.extend(search(&rules)?);
    Ok(program)
}

/// Calls that are compared one after the other.
const LEAF_CALLS: usize = 16;

/// Continues with the half of the calls, in the order of their numbers, to which the loaded number belongs.
fn search(rules: &[(i64, Vec<SeccompRule>)]) -> Result<BpfProgram, FilterError> {
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

/// Allows those of a few calls that are allowed with any argument, and leaves the others to their rules.
fn leaf(rules: &[(i64, Vec<SeccompRule>)]) -> Result<BpfProgram, FilterError> {
    let (any, some): (Vec<_>, Vec<_>) = rules.iter().partition(|(_, rules)| rules.is_empty());
    let mut program = BpfProgram::new();
    for (number, _) in any {
        program.push(instruction(SKIP_UNLESS_EQUAL, 1, word(*number)));
        program.push(instruction(ANSWER, 0, libc::SECCOMP_RET_ALLOW));
    }
    program.extend(chain(some.into_iter().cloned().collect())?);
    Ok(program)
}

/// Instructions that compare with one call after the other.
fn chain(rules: BTreeMap<i64, Vec<SeccompRule>>) -> Result<BpfProgram, FilterError> {
    let missing = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
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

/// Installs the filter for this process and its descendants. It cannot be removed.
pub(super) fn install(bytes: &[u8]) -> Result<(), StepError> {
    let program = from_bytes(bytes).ok_or_else(|| {
        StepError::Seccomp(Cause::words("the filter is empty, cut short or too long"))
    })?;
    seccompiler::apply_filter(&program)
        .map_err(|error| StepError::Seccomp(Cause::words(error.to_string())))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
