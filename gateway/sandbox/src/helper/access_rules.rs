//! Step: access rules on files (Landlock), and none to processes and sockets outside.
//!
//! The rules are applied in the new root, after its mounts: a rule on a path that a later mount covers matches nothing.
//! A version of Landlock is a hard requirement as a whole, so that an older kernel fails the run instead of enforcing
//! less.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, make_bitflags,
};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;

use super::error::{HelperStep, StepError};
use super::places::Places;
use super::root::{DEVICES, LIBRARIES};
use crate::job::PROXY_PORT;
use crate::protocol::{Spec, WireNetwork, WireRuntime};
use crate::tree::VirtualPath;

/// With namespaces and a private root, the newest version of the kernel. Other isolation layers cover what the later
/// versions add: truncation of files on read-only mounts, ports, devices, and (from the sixth on) signals and abstract
/// sockets outside. The second (Linux 5.19) is the first that allows moving files between directories.
const VERSIONS_IN_ROOT: &[ABI] = &[ABI::V6, ABI::V5, ABI::V4, ABI::V3, ABI::V2];

/// Without namespaces, the version that first kept signals and abstract sockets inside (Linux 6.12).
const VERSIONS_AROUND: &[ABI] = &[ABI::V6];

/// The paths of programs, the loader and libraries that exist in a root.
const PROGRAMS: &[&str] = &["/usr", "/lib", "/lib64"];

/// A place and what may be done there.
type Rule = (OwnedFd, BitFlags<AccessFs>);

/// Restricts this process and its descendants, inside their private root.
pub(super) fn apply_in_root(spec: &Spec) -> Result<(), StepError> {
    // If the Landlock version has no port rules, the network namespace suffices: nothing else listens in it.
    let port = (spec.network != WireNetwork::None).then_some(PROXY_PORT);
    apply(in_root(spec), port, VERSIONS_IN_ROOT)
}

/// Restricts this process and its descendants to the run's private directory, and to the files of the host that a root
/// would contain.
pub(super) fn apply_around(spec: &Spec, places: &Places) -> Result<(), StepError> {
    apply(around(spec, places), None, VERSIONS_AROUND)
}

/// `port` is the one that may be connected to.
fn apply(
    rules: Result<Vec<Rule>, OpenError>,
    port: Option<u16>,
    versions: &[ABI],
) -> Result<(), StepError> {
    let status = rules
        .map_err(RulesError::from)
        .and_then(|rules| restrict(&rules, port, versions))
        .map_err(|error| HelperStep::LANDLOCK.words(error.to_string()))?;
    match status {
        RulesetStatus::FullyEnforced => Ok(()),
        _ => Err(HelperStep::LANDLOCK.words("the rules are not fully enforced")),
    }
}

#[derive(Debug, thiserror::Error)]
enum RulesError {
    #[error(transparent)]
    Ruleset(#[from] RulesetError),
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// A path of a rule could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("open {}: {errno}", path.display())]
struct OpenError {
    path: PathBuf,
    errno: Errno,
}

/// A reference to the entry at a path of the root or of the host.
fn hold(path: impl AsRef<Path>) -> Result<OwnedFd, OpenError> {
    let path = path.as_ref();
    open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| OpenError {
        path: path.to_owned(),
        errno,
    })
}

const fn read() -> BitFlags<AccessFs> {
    make_bitflags!(AccessFs::{ReadFile | ReadDir})
}

const fn run() -> BitFlags<AccessFs> {
    make_bitflags!(AccessFs::{ReadFile | ReadDir | Execute})
}

const fn run_file() -> BitFlags<AccessFs> {
    make_bitflags!(AccessFs::{ReadFile | Execute})
}

const fn write() -> BitFlags<AccessFs> {
    make_bitflags!(AccessFs::{
        ReadFile | ReadDir | WriteFile | Truncate | MakeReg | MakeDir | RemoveFile | RemoveDir | Refer
    })
}

fn in_root(spec: &Spec) -> Result<Vec<Rule>, OpenError> {
    let mut rules = vec![
        (hold("/")?, read()),
        (
            hold("/dev")?,
            make_bitflags!(AccessFs::{ReadFile | ReadDir | WriteFile}),
        ),
    ];
    for path in PROGRAMS {
        if std::fs::exists(path).unwrap_or(false) {
            rules.push((hold(path)?, run()));
        }
    }
    if let WireRuntime::Python { binary } = &spec.runtime {
        rules.push((hold(binary)?, run_file()));
    }
    rules.push((hold("/tmp")?, write()));
    for path in spec.access.writable() {
        // If a directory is missing, a file is at its path, and nothing can be written there.
        if let Some(directory) = hold_directory(&path)? {
            rules.push((directory, write()));
        }
    }
    Ok(rules)
}

/// A directory of the trees, reached through no link.
fn hold_directory(path: &VirtualPath) -> Result<Option<OwnedFd>, OpenError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match openat2(CWD, path.to_string(), flags, Mode::empty(), resolve) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(OpenError {
            path: path.to_string().into(),
            errno,
        }),
    }
}

fn around(spec: &Spec, places: &Places) -> Result<Vec<Rule>, OpenError> {
    let mut rules = vec![(hold(places.root())?, read())];
    for path in places.writable() {
        rules.push((hold(path)?, write()));
    }
    for device in DEVICES {
        let path = Path::new("/dev").join(device);
        rules.push((
            hold(path)?,
            make_bitflags!(AccessFs::{ReadFile | WriteFile}),
        ));
    }
    let libraries = LIBRARIES.iter().map(Path::new);
    for path in libraries.chain(spec.seen.iter().map(PathBuf::as_path)) {
        if let Ok(metadata) = std::fs::metadata(path) {
            let access = if metadata.is_dir() { run() } else { run_file() };
            rules.push((hold(path)?, access));
        }
    }
    let binaries: Vec<&PathBuf> = match &spec.runtime {
        WireRuntime::Python { binary } | WireRuntime::Deno { binary, .. } => vec![binary],
        WireRuntime::Tools { binaries } => binaries.values().collect(),
    };
    for binary in binaries {
        rules.push((hold(binary)?, run_file()));
    }
    Ok(rules)
}

/// Restricts this thread by the first of these versions that the kernel has; none of them is the last one's error.
fn restrict(
    rules: &[Rule],
    port: Option<u16>,
    versions: &[ABI],
) -> Result<RulesetStatus, RulesError> {
    let mut status = Ok(RulesetStatus::NotEnforced);
    for version in versions {
        status = restrict_by(rules, port, *version);
        if status.is_ok() {
            break;
        }
    }
    status
}

fn restrict_by(
    rules: &[Rule],
    port: Option<u16>,
    version: ABI,
) -> Result<RulesetStatus, RulesError> {
    let known = AccessFs::from_all(version);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(known)?;
    // Earlier versions have no ports or scopes, and an empty set of them is refused.
    let (ports, scopes) = (AccessNet::from_all(version), Scope::from_all(version));
    if !ports.is_empty() {
        ruleset = ruleset.handle_access(ports)?;
    }
    if !scopes.is_empty() {
        ruleset = ruleset.scope(scopes)?;
    }
    let mut ruleset = ruleset.create()?;
    for (path, access) in rules {
        ruleset = ruleset.add_rule(PathBeneath::new(path, *access & known))?;
    }
    if let Some(port) = port.filter(|_| !ports.is_empty()) {
        ruleset = ruleset.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?;
    }
    Ok(ruleset.restrict_self()?.ruleset)
}

#[cfg(test)]
#[path = "access_rules_tests.rs"]
mod tests;
