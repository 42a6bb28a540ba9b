//! Which directories of the trees code and the file tools may read and write.
//!
//! A pattern names one directory of a tree with everything below it. Others, such as `/scratch/*.csv`, are refused: the
//! sandbox shows, covers and opens directories, so that what has to be enforced is known before a run begins.

use mooring_run_policy::paths::{Mount, TreeAccess, VirtualPath};
use mooring_run_policy::tier::Tier;

use crate::reader::{Reader, Reason};
use crate::rows::inherited;
use crate::setting::List;

type Directories = Vec<VirtualPath>;

inherited! {
    /// The directories that are named.
    pub(super) struct NamedTrees {
        /// What code and the file tools may read; the rest of the trees is hidden. With a part of `/tools` or
        /// `/skills`, the files that their modules are imported with can be read too. Not with `code.isolation =
        /// "degraded"`.
        readable: Directories = List(
            "code.default_filesystem_read_paths" / "sandbox_policy.filesystem_read_paths"
                / "sandbox_policy.permissions.filesystem.read",
            TreeAccess::PATHS_MAX, TreeAccess::PATH_BYTES_MAX, READABLE_SHAPE)
            .contextforge_name("CODE_EXECUTION_DEFAULT_FILESYSTEM_READ_PATHS").unset("all four trees")
            => |reader, row| parse(reader, row, &Mount::ALL),
        /// What code and the file tools may write, if they may also read it. Other files are read-only. Not with
        /// `code.isolation = "degraded"`.
        writable: Directories = List(
            "code.default_filesystem_write_paths" / "sandbox_policy.filesystem_write_paths"
                / "sandbox_policy.permissions.filesystem.write",
            TreeAccess::PATHS_MAX, TreeAccess::PATH_BYTES_MAX, WRITABLE_SHAPE)
            .contextforge_name("CODE_EXECUTION_DEFAULT_FILESYSTEM_WRITE_PATHS").unset("both")
            => |reader, row| parse(reader, row, &WRITABLE),
        /// What code and the file tools may neither read nor write, whatever else is allowed. Parts of the trees not with
        /// `code.isolation = "degraded"`. `/etc`, `/proc` and `/sys` of the machine are never there.
        denied: Directories = List(
            "code.default_filesystem_deny_paths" / "sandbox_policy.filesystem_deny_paths"
                / "sandbox_policy.permissions.filesystem.deny",
            TreeAccess::PATHS_MAX, TreeAccess::PATH_BYTES_MAX, DENIED_SHAPE)
            .contextforge_name("CODE_EXECUTION_DEFAULT_FILESYSTEM_DENY_PATHS").unset("nothing else")
            => parse_denied,
    }
}

const READABLE_SHAPE: &str = "patterns /<tree>/** or /<tree>/<directories>/** of the trees tools, skills, scratch and results";
const WRITABLE_SHAPE: &str =
    "patterns /<tree>/** or /<tree>/<directories>/** of the trees scratch and results";
const DENIED_SHAPE: &str = "patterns /<tree>/<directories>/** of the trees tools, skills, scratch and results, and /etc/**, /proc/** and /sys/**";

const WRITABLE: [Mount; 2] = [Mount::Scratch, Mount::Results];
const NEVER_SHOWN: [&str; 3] = ["/etc", "/proc", "/sys"];

impl NamedTrees {
    /// What the lists of one server allow together. A tier without mounts cannot withhold parts of the trees.
    pub(super) fn access(&self, reader: &mut Reader<'_>, tier: Tier) -> TreeAccess {
        let access = TreeAccess::new(&self.readable, &self.writable, &self.denied);
        if tier == Tier::Degraded && !access.is_whole() {
            let (list, row) = self.narrowest();
            let patterns: Vec<_> = list.iter().map(|path| format!("{path}/**")).collect();
            if let Some(row) = row {
                reader.refuse(
                    row,
                    patterns.join(", "),
                    "to withhold a part of the trees takes mounts of each run's own, and \
                     code.isolation = \"degraded\" has none",
                    "whole trees, or code.isolation = \"strict\"",
                );
            }
        }
        access
    }

    /// The list that withholds something, if one does.
    fn narrowest(&self) -> (&Directories, Option<&'static List>) {
        let has_all = |list: &Directories, trees: &[Mount]| {
            let mut trees = trees.iter().copied().map(VirtualPath::of);
            trees.all(|tree| list.contains(&tree))
        };
        if !self.denied.is_empty() {
            (&self.denied, Self::denied.own.as_ref())
        } else if !has_all(&self.writable, &WRITABLE) {
            (&self.writable, Self::writable.own.as_ref())
        } else {
            (&self.readable, Self::readable.own.as_ref())
        }
    }
}

/// The named directories of these trees; all of the trees if none are named.
fn parse(reader: &mut Reader<'_>, row: &'static List, trees: &[Mount]) -> Directories {
    let named = reader.list(row, |pattern| parse_directory(pattern, trees));
    named.unwrap_or_else(|| trees.iter().copied().map(VirtualPath::of).collect())
}

fn parse_denied(reader: &mut Reader<'_>, row: &'static List) -> Directories {
    let named = reader.list(row, |pattern| {
        let is_never_shown = NEVER_SHOWN.contains(&without_end(pattern));
        (!is_never_shown)
            .then(|| parse_directory(pattern, &Mount::ALL))
            .transpose()
    });
    named.into_iter().flatten().flatten().collect()
}

/// The directory that a pattern means with everything below it.
fn parse_directory(pattern: &str, trees: &[Mount]) -> Result<VirtualPath, Reason> {
    let directory = without_end(pattern);
    if directory.contains(['*', '?', '[']) {
        return Err(
            "only whole directories can be named: * is allowed only in a final /**".to_owned(),
        );
    }
    let path = VirtualPath::parse(directory).map_err(|error| error.to_string())?;
    match path.mount() {
        Some(mount) if trees.contains(&mount) => Ok(path),
        Some(mount) => Err(format!("nothing can be written in /{}", mount.name())),
        None => Err("it names none of the trees".to_owned()),
    }
}

/// A pattern without what says that it means everything below.
fn without_end(pattern: &str) -> &str {
    let ends = ["/**", "/*", "/"];
    let stripped = ends.iter().find_map(|end| pattern.strip_suffix(end));
    stripped.unwrap_or(pattern)
}
