//! Step: the limits that the kernel applies to each process.
//!
//! They complement the control group's limits for the whole tree, and give a program an error that it can handle
//! (`MemoryError`, `EFBIG`) before it is killed at the tree's limit.

use rustix::process::{Resource, Rlimit, setrlimit};

use super::error::{HelperStep, StepError};
use crate::protocol::{WireLimits, WireRuntime};

/// Address space that an interpreter and its libraries take before the program's own memory.
const BASE_BYTES: u64 = 64 * 1024 * 1024;

/// Stack of the main thread, and the default of other threads: small, because it counts as address space.
const STACK_BYTES: u64 = 2 * 1024 * 1024;

/// For deno, whose compiler recurses on the main thread, and whose address space is not limited.
const STACK_DENO_BYTES: u64 = 8 * 1024 * 1024;

/// Open files of one process.
const OPEN_FILES: u64 = 256;

/// The helper outside and process 1 belong to the same user namespace, and are counted with the program's.
const OWN_PROCESSES: u64 = 2;

/// How long after the polite signal the processor limit kills.
const CPU_GRACE_SECONDS: u64 = 1;

/// One limit, soft and hard.
type Entry = (Resource, u64, u64);

/// The limits of a run of this kind.
fn table(runtime: &WireRuntime, limits: &WireLimits) -> Vec<Entry> {
    let (memory, stack) = match runtime {
        // V8 reserves gigabytes of address space that it never uses: only written memory can be counted.
        WireRuntime::Deno { data_bytes, .. } => (
            (
                Resource::Data,
                data_bytes.saturating_add(limits.memory_bytes),
            ),
            STACK_DENO_BYTES,
        ),
        WireRuntime::Python { .. } | WireRuntime::Tools { .. } => (
            (Resource::As, limits.memory_bytes.saturating_add(BASE_BYTES)),
            STACK_BYTES,
        ),
    };
    let cpu = limits.cpu_seconds.max(1);
    let processes = u64::from(limits.processes).saturating_add(OWN_PROCESSES);
    vec![
        (memory.0, memory.1, memory.1),
        (Resource::Stack, stack, stack),
        (Resource::Cpu, cpu, cpu.saturating_add(CPU_GRACE_SECONDS)),
        (Resource::Fsize, limits.file_bytes, limits.file_bytes),
        (Resource::Nofile, OPEN_FILES, OPEN_FILES),
        (Resource::Nproc, processes, processes),
        (Resource::Core, 0, 0),
        (Resource::Memlock, 0, 0),
        (Resource::Msgqueue, 0, 0),
        (Resource::Nice, 0, 0),
        (Resource::Rtprio, 0, 0),
        (Resource::Sigpending, OPEN_FILES, OPEN_FILES),
    ]
}

/// Sets them for this process and its descendants. A limit that is already lower is left.
pub(super) fn apply(runtime: &WireRuntime, limits: &WireLimits) -> Result<(), StepError> {
    // A write beyond the limit is an error that the program can tell, as python has it, not its silent end.
    // SAFETY: this process has one thread, and nothing that is called back is installed.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    for (resource, soft, hard) in table(runtime, limits) {
        let now = rustix::process::getrlimit(resource);
        let hard = now.maximum.map_or(hard, |maximum| maximum.min(hard));
        let limit = Rlimit {
            current: Some(soft.min(hard)),
            maximum: Some(hard),
        };
        setrlimit(resource, limit)
            .map_err(HelperStep::RLIMITS.at(format!("setrlimit {resource:?}")))?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "rlimits_tests.rs"]
mod tests;
