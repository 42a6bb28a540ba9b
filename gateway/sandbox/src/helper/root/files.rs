//! The parts of the host that a program sees: its runtime, the shared libraries, five devices, and nothing else.

use std::fs;
use std::io::Write as _;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2, statat, symlinkat,
};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;

use super::super::error::{Cause, at};
use super::mounts;
use crate::protocol::{Spec, WireRuntime};
use crate::tree::VirtualPath;

/// Where distributions keep shared libraries and the loader. Those that a machine has are shown.
pub(in super::super) const LIBRARIES: &[&str] = &[
    #[cfg(target_arch = "x86_64")]
    "/usr/lib/x86_64-linux-gnu",
    #[cfg(target_arch = "aarch64")]
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/lib64",
    "/etc/ld.so.cache",
];

/// Names that are links on machines with a merged `/usr`, and that loaders and scripts are found by.
const LINKS: &[&str] = &["bin", "lib", "lib64"];

/// Devices without state that could carry information.
pub(in super::super) const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom"];

/// The path of deno inside, independent of its path on the host.
pub(in super::super) const DENO: &str = "/usr/bin/deno";

const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o755);
const FILE_MODE: Mode = Mode::from_raw_mode(0o444);

/// Shows what every program sees below `root`.
pub(super) fn show_system(root: BorrowedFd<'_>) -> Result<(), Cause> {
    for name in LINKS {
        if let Ok(target) = fs::read_link(Path::new("/").join(name)) {
            symlinkat(target.as_path(), root, *name).map_err(at(format!("link /{name}")))?;
        }
    }
    for library in LIBRARIES {
        if let Ok(path) = fs::canonicalize(library) {
            show_at(root, &path, &path, mounts::PROGRAMS)?;
        }
    }
    make_directory(root, Path::new("dev"))?;
    for device in DEVICES {
        let path = Path::new("/dev").join(device);
        show_at(root, &path, &path, mounts::DEVICE)?;
    }
    // Shared memory and named semaphores of the C library are files of this directory.
    symlinkat("/tmp", root, "dev/shm").map_err(at("link /dev/shm"))
}

/// Shows the runtime of one program.
pub(super) fn show_runtime(root: BorrowedFd<'_>, spec: &Spec) -> Result<(), Cause> {
    for path in &spec.seen {
        show_at(root, path, path, mounts::PROGRAMS)?;
    }
    match &spec.runtime {
        // It locates its library relative to its own path.
        WireRuntime::Python { binary } => show_at(root, binary, binary, mounts::PROGRAMS)?,
        WireRuntime::Deno { binary, .. } => {
            show_at(root, binary, Path::new(DENO), mounts::PROGRAMS)?;
            // It queries its own path as soon as a module of node is imported, and aborts if there is none.
            make_directory(root, Path::new("proc/self"))?;
            symlinkat(DENO, root, "proc/self/exe").map_err(at("link /proc/self/exe"))?;
        }
        WireRuntime::Tools { binaries } => {
            for (name, binary) in binaries {
                show_at(root, binary, &tool_path(name)?, mounts::PROGRAMS)?;
            }
        }
    }
    Ok(())
}

/// The path of a tool inside, independent of the name of its binary on the host.
pub(in super::super) fn tool_path(name: &str) -> Result<PathBuf, Cause> {
    let mut components = Path::new(name).components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(one)), None) => Ok(Path::new("/usr/bin").join(one)),
        _ => Err(Cause::words("a tool's name is not a file name")),
    }
}

fn show_at(
    root: BorrowedFd<'_>,
    source: &Path,
    target: &Path,
    attributes: MountAttrFlags,
) -> Result<(), Cause> {
    let inside = target
        .strip_prefix("/")
        .map_err(|_| Cause::words(format!("{} is relative", target.display())))?;
    if inside
        .components()
        .any(|component| !matches!(component, Component::Normal(_)))
    {
        return Err(Cause::words(format!(
            "{} is not a plain path",
            target.display()
        )));
    }
    let found = statat(CWD, source, AtFlags::empty()).map_err(at(source.display().to_string()))?;
    if let Ok(already) = statat(root, inside, AtFlags::empty())
        && (already.st_dev, already.st_ino) == (found.st_dev, found.st_ino)
    {
        return Ok(());
    }
    if let Some(parent) = inside.parent() {
        make_directory(root, parent)?;
    }
    if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
        make_directory(root, inside)?;
    } else {
        make_file(root, inside)?;
    }
    mounts::show(source, root, inside, attributes)
}

/// Creates a directory and its missing parents.
pub(super) fn make_directory(root: BorrowedFd<'_>, path: &Path) -> Result<(), Cause> {
    let mut made = PathBuf::new();
    for component in path.components() {
        made.push(component);
        match mkdirat(root, &made, DIRECTORY_MODE) {
            // Nothing can be created below a mounted path, and existing directories suffice.
            Ok(()) | Err(Errno::EXIST | Errno::ROFS) => {}
            Err(errno) => return Err(at(format!("make /{}", made.display()))(errno)),
        }
    }
    Ok(())
}

/// Creates an empty file, if it is missing.
pub(super) fn make_file(root: BorrowedFd<'_>, path: &Path) -> Result<(), Cause> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(root, path, flags, FILE_MODE)
        .map(drop)
        .map_err(at(format!("make /{}", path.display())))
}

/// Writes the program's source to the path that the runtime reads.
pub(super) fn write_program(root: BorrowedFd<'_>, path: &Path, bytes: &[u8]) -> Result<(), Cause> {
    let inside = path.strip_prefix("/").unwrap_or(path);
    if let Some(parent) = inside.parent() {
        make_directory(root, parent)?;
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(root, inside, flags, FILE_MODE).map_err(at("make the program's file"))?;
    let written = fs::File::from(file).write_all(bytes);
    written.map_err(at("write the program"))
}

/// The place of a path of the trees, relative to the root.
pub(super) fn place_of(path: &VirtualPath) -> PathBuf {
    PathBuf::from(path.to_string().trim_start_matches('/'))
}

/// Opens the entry at a path of the trees within the root, across its mounts and through no link.
pub(super) fn open_place(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(root, path, flags, Mode::empty(), resolve)
}
