//! Which directories a policy says that code sees. Every run sees whole trees, and no others; a list that says just that is
//! accepted, so that a policy of ContextForge's works, and any other would promise what nothing keeps.

use crate::globs::{GLOB_BYTES_MAX, GLOBS_MAX};
use crate::reader::{Reader, Reason, list};
use crate::rows::inherited;
use crate::setting::List;

type Trees = Vec<&'static str>;

inherited! {
    /// The trees that are named.
    #[allow(dead_code, reason = "they are refused or the trees that every run sees")]
    pub(super) struct NamedTrees {
        /// What code and the file tools may read. This version knows the whole four trees and nothing less, and refuses
        /// any other list.
        readable: Trees = List(
            "code.default_filesystem_read_paths" / "sandbox_policy.filesystem_read_paths"
                / "sandbox_policy.permissions.filesystem.read",
            GLOBS_MAX, GLOB_BYTES_MAX, "/tools/**, /skills/**, /scratch/** and /results/**, all four")
            .contextforge_name("CODE_EXECUTION_DEFAULT_FILESYSTEM_READ_PATHS").unset("all four")
            => |reader, row| parse_all(reader, row, &READABLE),
        /// What code and the file tools may write. This version knows the whole two trees and nothing less, and refuses
        /// any other list.
        writable: Trees = List(
            "code.default_filesystem_write_paths" / "sandbox_policy.filesystem_write_paths"
                / "sandbox_policy.permissions.filesystem.write",
            GLOBS_MAX, GLOB_BYTES_MAX, "/scratch/** and /results/**, both")
            .contextforge_name("CODE_EXECUTION_DEFAULT_FILESYSTEM_WRITE_PATHS").unset("both")
            => |reader, row| parse_all(reader, row, &WRITABLE),
        /// What code may not see whatever else is allowed. These directories of the machine are never shown to code;
        /// this version denies no others by name.
        denied: Trees = List(
            "code.default_filesystem_deny_paths" / "sandbox_policy.filesystem_deny_paths"
                / "sandbox_policy.permissions.filesystem.deny",
            GLOBS_MAX, GLOB_BYTES_MAX, "/etc/**, /proc/** and /sys/**")
            .contextforge_name("CODE_EXECUTION_DEFAULT_FILESYSTEM_DENY_PATHS").unset("all three")
            => list(|text| whole_tree(text, &NEVER_SHOWN)),
    }
}

const READABLE: [&str; 4] = ["/tools", "/skills", "/scratch", "/results"];
const WRITABLE: [&str; 2] = ["/scratch", "/results"];
const NEVER_SHOWN: [&str; 3] = ["/etc", "/proc", "/sys"];

/// The list has to name every one of `trees`, and may do so in any order and spelling.
fn parse_all(reader: &mut Reader<'_>, row: &'static List, trees: &[&'static str]) -> Trees {
    let Some(named) = reader.list(row, |text| whole_tree(text, trees)) else {
        return Trees::new();
    };
    let missing = trees.iter().find(|tree| !named.contains(tree));
    if let Some(tree) = missing
        && !reader.was_refused(row)
    {
        reader.refuse(
            row,
            format!("{named:?}"),
            format!(
                "{tree} is missing; a part of the trees is not served by this version of mooring"
            ),
            row.shape,
        );
    }
    named
}

/// Which of `trees` a pattern means, all of it.
fn whole_tree(pattern: &str, trees: &[&'static str]) -> Result<&'static str, Reason> {
    let tree = pattern.trim_end_matches(['*', '/']);
    trees
        .iter()
        .find(|known| **known == tree)
        .copied()
        .ok_or_else(|| "it is not served by this version of mooring".to_owned())
}
