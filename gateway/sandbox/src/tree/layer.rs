//! The marks that an overlay leaves in a run's layer.
//!
//! Only the kernel can make them, since the run's system calls include neither device nodes nor extended attributes: a
//! character device 0:0 says that the name was deleted, and the attribute `user.overlay.opaque` that a directory
//! replaced the entry there. A forged mark has no other effect: it deletes what the run could have deleted anyway. No
//! other attribute is looked at, `redirect` and `metacopy` in particular.

use std::os::fd::OwnedFd;

use rustix::fs::{self, FileType, Stat};

/// Marks a directory that replaced what stood there.
const OPAQUE: &str = "user.overlay.opaque";

/// How the marks of a layer are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marks {
    /// As the overlay's.
    Overlay,
    /// None: the layer is a whole tree, and anything that looks like a mark is an ordinary device node or attribute.
    None,
}

/// Whether the overlay says by this inode that a name was deleted.
pub(super) fn is_whiteout(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0
}

/// Whether the overlay says that a directory replaced what stood there.
pub(super) fn is_opaque(directory: &OwnedFd) -> bool {
    let mut value = [0_u8; 2];
    matches!(fs::fgetxattr(directory, OPAQUE, &mut value[..]), Ok(1))
        && value.first() == Some(&b'y')
}

pub(super) fn special_name(stat: &Stat) -> &'static str {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "named pipe",
        FileType::Socket => "socket",
        FileType::CharacterDevice | FileType::BlockDevice => "device",
        _ => "special file",
    }
}
