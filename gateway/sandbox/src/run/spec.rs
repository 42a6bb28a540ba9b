//! A job in the helper's words.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};

use super::error::RunError;
use crate::job::{Program, SessionTrees, Stage};
use crate::limits::Limits;
use crate::protocol::{Spec, WireLimits, WireNetwork, WireRuntime};
use crate::runtimes::{Runtime, Runtimes};
use crate::tier::{Layer, Tier};
use crate::tree::{self, TreeAccess};

/// Least that a run may add to its trees: with less, its layer cannot be created. Files beyond the session's limits are
/// refused by the commit.
const UPPER_BYTES_MIN: u64 = 64 * 1024;
const UPPER_INODES_MIN: u64 = 16;
/// One more inode for this many entries of a session: a layer needs some for attributes while it empties directories.
const ENTRIES_PER_SPARE_INODE: u64 = 4;
/// Room for this many concurrent workers of deno.
const WORKERS: u64 = 4;
/// Size of `/tmp`. It counts as the run's memory.
const TEMPORARY_BYTES: u64 = 16 * 1024 * 1024;

/// The spec for the helper, and the program's source.
pub(super) fn spec(
    counter: Layer,
    runtimes: &Runtimes,
    program: &Program,
    limits: WireLimits,
    access: TreeAccess,
) -> Result<(Spec, OwnedFd), RunError> {
    let (runtime, seen, bytes) = match program {
        Program::Python { source } => {
            let binary = present("python3", &runtimes.python)?.to_owned();
            (
                WireRuntime::Python { binary },
                runtimes.python_library.clone(),
                source.clone().into_bytes(),
            )
        }
        Program::TypeScript { source } => {
            let binary = present("deno", &runtimes.deno)?.to_owned();
            let data_bytes = deno_data_bytes(counter);
            (
                WireRuntime::Deno { binary, data_bytes },
                Vec::new(),
                source.clone().into_bytes(),
            )
        }
        Program::Pipeline { stages } => {
            let binaries = binaries(runtimes, stages)?;
            let bytes = serde_json::to_vec(stages).map_err(|error| RunError::Protocol {
                text: error.to_string(),
            })?;
            (WireRuntime::Tools { binaries }, Vec::new(), bytes)
        }
    };
    let program = in_memory("program", &bytes).map_err(RunError::host("hold the program"))?;
    Ok((
        Spec {
            runtime,
            seen,
            limits,
            access,
            has_bridge: false,
            network: WireNetwork::None,
        },
        program,
    ))
}

/// The same, reaching so much of the network. Who reaches something sees which authorities are to be trusted.
pub(super) fn connected(mut spec: Spec, network: WireNetwork) -> Spec {
    if let WireNetwork::Proxy { certificates } = &network {
        spec.seen.extend(certificates.clone());
    }
    Spec { network, ..spec }
}

/// The memory that deno may reserve in addition to its program's. If a control group counts touched pages, room for
/// some workers costs nothing; if nothing counts between two checks of the watchdog, workers are refused memory.
const fn deno_data_bytes(counter: Layer) -> u64 {
    match counter {
        Layer::CgroupV1 | Layer::CgroupV2 => {
            WireRuntime::DENO_DATA_BYTES + WORKERS * WireRuntime::DENO_WORKER_DATA_BYTES
        }
        _ => WireRuntime::DENO_DATA_BYTES,
    }
}

/// The binaries of those tools that the stages name; nothing else is seen inside.
fn binaries(runtimes: &Runtimes, stages: &[Stage]) -> Result<BTreeMap<String, PathBuf>, RunError> {
    let mut binaries = BTreeMap::new();
    for Stage { tool, .. } in stages {
        let Some(runtime) = runtimes.tool(tool) else {
            return Err(RunError::ToolUnknown { name: tool.clone() });
        };
        binaries.insert(tool.clone(), present(tool, runtime)?.to_owned());
    }
    Ok(binaries)
}

fn present<'a>(name: &str, runtime: &'a Runtime) -> Result<&'a Path, RunError> {
    match runtime {
        Runtime::Present { path, .. } => Ok(path),
        Runtime::Missing { remedy } => Err(RunError::RuntimeMissing {
            name: name.to_owned(),
            remedy: remedy.clone(),
        }),
    }
}

/// The limits as numbers that the kernel takes. What earlier runs left counts against the disk's bytes. It does not count
/// against the layer's inodes: each deletion takes one, so that a session at its limit could not be cleaned up. What a
/// run makes beyond the limit is refused when it is committed.
pub(super) fn wire_limits(
    tier: Tier,
    limits: &Limits,
    trees: &SessionTrees,
) -> io::Result<WireLimits> {
    let (mut bytes, mut entries) = (limits.disk_bytes, 0_u64);
    // In the degraded tier the program writes into the trees themselves, and there is no layer to size.
    if tier == Tier::Strict {
        for lower in [&trees.scratch, &trees.results] {
            let used = tree::usage(lower.as_fd())?;
            bytes = bytes.saturating_sub(used.bytes);
            entries = entries.saturating_add(used.inodes);
        }
    }
    Ok(WireLimits {
        cpu_seconds: limits.cpu_time.as_millis().div_ceil(1000).max(1) as u64,
        memory_bytes: limits.memory_bytes,
        file_bytes: limits.file_bytes,
        upper_bytes: bytes.max(UPPER_BYTES_MIN),
        upper_inodes: (limits.inodes.max(entries).max(UPPER_INODES_MIN))
            .saturating_add(entries / ENTRIES_PER_SPARE_INODE),
        temporary_bytes: TEMPORARY_BYTES.min(limits.disk_bytes),
        processes: limits.processes,
    })
}

/// The bytes as an anonymous file in memory.
pub(super) fn in_memory(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file.into())
}
