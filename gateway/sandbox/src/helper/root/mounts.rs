//! The few kinds of mount of a root. They are made by descriptor, never by a path that could change meanwhile.
//!
//! Invariant: a mount gets its attributes before it gets its place.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use super::super::error::{Cause, at};

/// Attributes of mounts with data: no devices, no setuid, no programs.
pub(super) const DATA: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID
    .union(MountAttrFlags::MOUNT_ATTR_NODEV)
    .union(MountAttrFlags::MOUNT_ATTR_NOEXEC);

/// Attributes of mounts with programs and libraries: read and execute.
pub(super) const PROGRAMS: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_RDONLY
    .union(MountAttrFlags::MOUNT_ATTR_NOSUID)
    .union(MountAttrFlags::MOUNT_ATTR_NODEV);

/// Attributes of a device node's mount.
pub(super) const DEVICE: MountAttrFlags =
    MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NOEXEC);

/// `struct mount_attr` of the kernel, which `libc` has not for every target.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Adds attributes to a mount, and with `AT_RECURSIVE` in `flags` also to all mounts below it. Attributes from the host
/// remain: a mount that came from there must not lose any. What the host mounts below it later does not appear.
pub(super) fn add_attributes(
    mount: BorrowedFd<'_>,
    attributes: MountAttrFlags,
    flags: i32,
) -> Result<(), Errno> {
    let wanted = MountAttributes {
        set: attributes.bits().into(),
        clear: 0,
        propagation: libc::MS_PRIVATE,
        user_namespace: 0,
    };
    let empty: &CStr = c"";
    // SAFETY: the path is a terminated string, the attributes are a whole `struct mount_attr` of the size given, and
    // both outlive the call, which only reads them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            empty.as_ptr(),
            libc::AT_EMPTY_PATH | flags,
            &raw const wanted,
            size_of::<MountAttributes>(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}

/// A new memory file system that is not mounted yet. `nr_inodes` and `size_bytes` are hard limits; neither is ever
/// zero, which the kernel takes for "no limit".
pub(super) fn memory(
    size_bytes: u64,
    inodes: u64,
    mode: &str,
    attributes: MountAttrFlags,
) -> Result<OwnedFd, Cause> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(at("fsopen tmpfs"))?;
    for (key, value) in [
        ("size", size_bytes.max(1).to_string()),
        ("nr_inodes", inodes.max(2).to_string()),
        ("mode", mode.to_owned()),
    ] {
        fsconfig_set_string(&context, key, value.as_str())
            .map_err(at(format!("tmpfs {key}={value}")))?;
    }
    fsconfig_create(&context).map_err(at("create tmpfs"))?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(at("mount tmpfs"))
}

/// A writable layer over a lower directory, not yet in a place.
pub(super) fn overlay(
    lower: BorrowedFd<'_>,
    upper: BorrowedFd<'_>,
    work: BorrowedFd<'_>,
) -> Result<OwnedFd, Cause> {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).map_err(at("fsopen overlay"))?;
    for (key, directory) in [("lowerdir", lower), ("upperdir", upper), ("workdir", work)] {
        let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
        fsconfig_set_string(&context, key, path.as_str()).map_err(at(key))?;
    }
    fsconfig_set_flag(&context, "userxattr").map_err(at("overlay userxattr"))?;
    fsconfig_create(&context).map_err(at("create overlay"))?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, DATA).map_err(at("mount overlay"))
}

/// Mounts it at a path below `root`.
pub(super) fn place(mount: &OwnedFd, root: BorrowedFd<'_>, target: &Path) -> Result<(), Cause> {
    move_mount(
        mount.as_fd(),
        "",
        root,
        target,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )
    .map_err(at(format!("place mount at /{}", target.display())))
}

/// Mounts a file or directory of the host at a path below `root`, with all mounts below it: the kernel does not allow
/// to bind a part of them.
pub(super) fn show(
    source: &Path,
    root: BorrowedFd<'_>,
    target: &Path,
    attributes: MountAttrFlags,
) -> Result<(), Cause> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let tree =
        open_tree(CWD, source, flags).map_err(at(format!("open tree {}", source.display())))?;
    add_attributes(tree.as_fd(), attributes, libc::AT_RECURSIVE)
        .map_err(at(format!("set attributes of {}", source.display())))?;
    place(&tree, root, target)
}

/// The same for an open file or directory.
pub(super) fn show_open(
    source: BorrowedFd<'_>,
    root: BorrowedFd<'_>,
    target: &Path,
    attributes: MountAttrFlags,
) -> Result<(), Cause> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree =
        open_tree(source, "", flags).map_err(at(format!("open tree of /{}", target.display())))?;
    add_attributes(tree.as_fd(), attributes, libc::AT_RECURSIVE)
        .map_err(at(format!("set attributes of /{}", target.display())))?;
    place(&tree, root, target)
}
