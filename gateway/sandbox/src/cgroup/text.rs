//! Reads and writes the files of a control group, and finds this process's groups.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Writes a value into an existing file of the kernel.
pub(super) fn write(directory: &Path, name: &str, value: impl ToString) -> io::Result<()> {
    use std::io::Write as _;
    open(directory, name)?
        .write_all(value.to_string().as_bytes())
        .map_err(|error| named(&directory.join(name), error))
}

/// Opens such a file for writing.
pub(super) fn open(directory: &Path, name: &str) -> io::Result<fs::File> {
    let path = directory.join(name);
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .map_err(|error| named(&path, error))
}

/// A file with one number.
pub(super) fn read_number(directory: &Path, name: &str) -> io::Result<u64> {
    let path = directory.join(name);
    let text = fs::read_to_string(&path).map_err(|error| named(&path, error))?;
    text.trim()
        .parse()
        .map_err(|_| named(&path, io::Error::from(io::ErrorKind::InvalidData)))
}

/// A file of lines "key number".
pub(super) fn read(directory: &Path, name: &str) -> io::Result<String> {
    let path = directory.join(name);
    fs::read_to_string(&path).map_err(|error| named(&path, error))
}

/// The number after `key`, 0 if the kernel does not have the key.
pub(super) fn value(text: &str, key: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(name, _)| *name == key)
        .and_then(|(_, number)| number.trim().parse().ok())
        .unwrap_or(0)
}

/// An error with the name of the file.
fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        NamedError {
            path: path.to_owned(),
            error,
        },
    )
}

#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}", path = path.display())]
struct NamedError {
    path: PathBuf,
    error: io::Error,
}

/// The version of control groups, and for version 1 the hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CgroupVersion<'a> {
    V2,
    /// The one with this controller.
    V1(&'a str),
}

/// This process's own group in a hierarchy, from `/proc/self/mountinfo`, which has the mount points, and
/// `/proc/self/cgroup`, which has the group's path in the hierarchy. `None` if the hierarchy is not mounted, or its
/// mounted part does not contain the group.
pub(super) fn own_group(
    kind: CgroupVersion<'_>,
    mountinfo: &str,
    membership: &str,
) -> Option<PathBuf> {
    let group = membership.lines().find_map(|line| group_of(kind, line))?;
    mountinfo
        .lines()
        .filter_map(|line| mount_of(kind, line))
        .find_map(|(root, mount)| {
            let below = Path::new(group).strip_prefix(root).ok()?;
            Some(Path::new(mount).join(below))
        })
}

/// A line "5:cpu,cpuacct:/group"; version 2 is "0::/group".
fn group_of<'a>(kind: CgroupVersion<'_>, line: &'a str) -> Option<&'a str> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
    let is_meant = match kind {
        CgroupVersion::V2 => number == "0" && controllers.is_empty(),
        CgroupVersion::V1(controller) => controllers.split(',').any(|name| name == controller),
    };
    is_meant.then_some(group)
}

/// A line "36 35 0:30 /root /mount/point rw - cgroup cgroup rw,memory": the root and the mount point. Mount points with
/// octal escapes are not supported; no hierarchy is mounted at such a path.
fn mount_of<'a>(kind: CgroupVersion<'_>, line: &'a str) -> Option<(&'a str, &'a str)> {
    let (front, back) = line.split_once(" - ")?;
    let mut front = front.split(' ').skip(3);
    let (root, mount) = (front.next()?, front.next()?);
    let mut back = back.split(' ');
    let (filesystem, options) = (back.next()?, back.nth(1)?);
    let is_meant = match kind {
        CgroupVersion::V2 => filesystem == "cgroup2",
        CgroupVersion::V1(controller) => {
            filesystem == "cgroup" && options.split(',').any(|name| name == controller)
        }
    };
    is_meant.then_some((root, mount))
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
