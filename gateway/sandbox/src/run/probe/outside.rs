//! The host's inspection of the self-test's processes while they run: what the kernel reports of each isolation layer.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::process::Pid;

use super::super::kernel_objects::KernelObjects;
use super::super::probe_error::ProbeError;
use super::super::watchdog::descendants;
use crate::helper::{HostKind, kind_of_host};
use crate::tier::Tier;

/// Each has to be another one than the host's.
const NAMESPACES: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];

/// Inspects the program, which is the helper's last descendant: isolation only increases from parent to child.
pub(super) fn inspect(helper: Pid, tier: Tier) -> Result<(), ProbeError> {
    let processes = descendants(helper).map_err(|error| ProbeError::wall("processes", error))?;
    let Some(program) = processes.last() else {
        return Err(ProbeError::wall("processes", "none runs"));
    };
    let status = read(*program, "status").map_err(|error| ProbeError::wall("status", error))?;
    expect(&status, "NoNewPrivs", "1")?;
    expect(&status, "Seccomp", "2")?;
    expect(&status, "CapEff", "0000000000000000")?;
    expect(&status, "CapPrm", "0000000000000000")?;
    let environment =
        read(*program, "environ").map_err(|error| ProbeError::wall("environment", error))?;
    check_environment(&environment)?;
    let objects =
        KernelObjects::measure(helper).map_err(|error| ProbeError::wall("descriptors", error))?;
    if objects.is_empty() {
        // Its output is a pipe: what it keeps in the kernel could not be bounded.
        return Err(ProbeError::wall("descriptors", "are not shown in /proc"));
    }
    match tier {
        Tier::Strict => {
            for name in NAMESPACES {
                check_namespace(*program, name)?;
            }
            check_uid_map(*program)
        }
        Tier::Degraded => check_user(&status),
    }
}

/// The run of a host that is root is another user's.
fn check_user(status: &str) -> Result<(), ProbeError> {
    if kind_of_host() == HostKind::Root && expect(status, "Uid", "0\t0\t0\t0").is_ok() {
        return Err(ProbeError::wall("user", "is root"));
    }
    Ok(())
}

fn read(pid: i32, name: &str) -> io::Result<String> {
    fs::read_to_string(format!("/proc/{pid}/{name}"))
}

/// One line is a name, a colon, a tab and the value.
fn expect(status: &str, name: &'static str, wanted: &str) -> Result<(), ProbeError> {
    let found = status
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(found, _)| *found == name)
        .map(|(_, value)| value.trim());
    if found == Some(wanted) {
        return Ok(());
    }
    Err(ProbeError::wall(
        name,
        format!("is {}, it has to be {wanted}", found.unwrap_or("missing")),
    ))
}

/// Variables that the helper sets to the same values on every machine, so that they reveal nothing about the host.
const OWN_VARIABLES: [&str; 12] = [
    "HOME",
    "PATH",
    "LANG",
    "TMPDIR",
    "NO_COLOR",
    "MALLOC_ARENA_MAX",
    "PYTHONPATH",
    "PYTHONSAFEPATH",
    "MOORING_SCRATCH",
    "MOORING_RESULTS",
    "MOORING_TOOLS",
    "MOORING_SKILLS",
];

/// The helper chooses the program's variables: there are no others.
fn check_environment(environment: &str) -> Result<(), ProbeError> {
    for entry in environment.split_terminator('\0') {
        let (name, _) = entry.split_once('=').unwrap_or((entry, ""));
        if !OWN_VARIABLES.contains(&name) {
            return Err(ProbeError::wall(
                "environment",
                "holds an unexpected variable",
            ));
        }
    }
    Ok(())
}

fn check_namespace(pid: i32, name: &'static str) -> Result<(), ProbeError> {
    let inode =
        |pid: &str| fs::metadata(format!("/proc/{pid}/ns/{name}")).map(|metadata| metadata.ino());
    let both = inode("self").and_then(|own| Ok((own, inode(&pid.to_string())?)));
    match both {
        Ok((own, other)) if own != other => Ok(()),
        Ok(_) => Err(ProbeError::wall(
            "namespaces",
            format!("{name} is the host's"),
        )),
        Err(error) => Err(ProbeError::wall("namespaces", format!("{name}: {error}"))),
    }
}

/// One user, who is not root inside.
fn check_uid_map(pid: i32) -> Result<(), ProbeError> {
    let map = read(pid, "uid_map").map_err(|error| ProbeError::wall("uid_map", error))?;
    let fields: Vec<&str> = map.split_whitespace().collect();
    match fields.as_slice() {
        [inside, _, "1"] if *inside != "0" => Ok(()),
        _ => Err(ProbeError::wall("uid_map", format!("is {}", map.trim()))),
    }
}
