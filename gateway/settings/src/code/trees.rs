//! Which directories a policy says that code sees. Every run sees whole trees, and no others; a list that says just that is
//! accepted, so that a policy of ContextForge's works, and any other would promise what nothing keeps.

use super::pair::{Pair, lists};
use crate::reader::{Reader, Reason};
use crate::setting::{List, Setting, SettingInfo};

const NOT_SERVED: &str = "it is not served by this version of mooring";

const READ: &str = "What code and the file tools may read. This version knows the whole four trees and nothing less, and \
                    refuses any other list.";
const READ_SHAPE: &str = "/tools/**, /skills/**, /scratch/** and /results/**, all four";

const READ_PATHS: Pair<List> = lists(
    SettingInfo::new("code.default_filesystem_read_paths", READ)
        .seed("CODE_EXECUTION_DEFAULT_FILESYSTEM_READ_PATHS")
        .unset("all four"),
    SettingInfo::new("servers.sandbox_policy.filesystem_read_paths", READ)
        .aliases(&["sandbox_policy.permissions.filesystem.read"])
        .unset("all four"),
    READ_SHAPE,
);

const WRITE: &str = "What code and the file tools may write. This version knows the whole two trees and nothing less, and \
                     refuses any other list.";
const WRITE_SHAPE: &str = "/scratch/** and /results/**, both";

const WRITE_PATHS: Pair<List> = lists(
    SettingInfo::new("code.default_filesystem_write_paths", WRITE)
        .seed("CODE_EXECUTION_DEFAULT_FILESYSTEM_WRITE_PATHS")
        .unset("both"),
    SettingInfo::new("servers.sandbox_policy.filesystem_write_paths", WRITE)
        .aliases(&["sandbox_policy.permissions.filesystem.write"])
        .unset("both"),
    WRITE_SHAPE,
);

const DENY: &str = "What code may not see whatever else is allowed. These directories of the machine are never shown to \
                    code; this version denies no others by name.";
const DENY_SHAPE: &str = "/etc/**, /proc/** and /sys/**";

const DENY_PATHS: Pair<List> = lists(
    SettingInfo::new("code.default_filesystem_deny_paths", DENY)
        .seed("CODE_EXECUTION_DEFAULT_FILESYSTEM_DENY_PATHS")
        .unset("all three"),
    SettingInfo::new("servers.sandbox_policy.filesystem_deny_paths", DENY)
        .aliases(&["sandbox_policy.permissions.filesystem.deny"])
        .unset("all three"),
    DENY_SHAPE,
);

/// The rows of `[code]`.
pub(super) const INHERITED_SETTINGS: &[Setting] = &[
    Setting::List(&READ_PATHS.standard),
    Setting::List(&WRITE_PATHS.standard),
    Setting::List(&DENY_PATHS.standard),
];

/// The rows of `sandbox_policy`.
pub(super) const OWN_SETTINGS: &[Setting] = &[
    Setting::List(&READ_PATHS.own),
    Setting::List(&WRITE_PATHS.own),
    Setting::List(&DENY_PATHS.own),
];

/// Checks what `[code]` says of these.
pub(super) fn check_standard(reader: &mut Reader<'_>) {
    refuse_other_trees(reader, &READ_PATHS.standard, &READABLE);
    refuse_other_trees(reader, &WRITE_PATHS.standard, &WRITABLE);
    refuse_unknown_denials(reader, &DENY_PATHS.standard);
}

/// Checks what a server's `sandbox_policy` says of these.
pub(super) fn check_own(reader: &mut Reader<'_>) {
    refuse_other_trees(reader, &READ_PATHS.own, &READABLE);
    refuse_other_trees(reader, &WRITE_PATHS.own, &WRITABLE);
    refuse_unknown_denials(reader, &DENY_PATHS.own);
}

const READABLE: [&str; 4] = ["/tools", "/skills", "/scratch", "/results"];
const WRITABLE: [&str; 2] = ["/scratch", "/results"];
const NEVER_SHOWN: [&str; 3] = ["/etc", "/proc", "/sys"];

/// The list has to name every one of `trees`, and may do so in any order and spelling.
fn refuse_other_trees(reader: &mut Reader<'_>, setting: &'static List, trees: &[&'static str]) {
    let Some(named) = reader.list(setting, |text| whole_tree(text, trees)) else {
        return;
    };
    let missing = trees.iter().find(|tree| !named.contains(tree));
    if let Some(tree) = missing
        && !reader.was_refused(&setting.about)
    {
        reader.refuse(
            &setting.about,
            format!("{named:?}"),
            format!(
                "{tree} is missing; a part of the trees is not served by this version of mooring"
            ),
            setting.shape.to_owned(),
        );
    }
}

fn refuse_unknown_denials(reader: &mut Reader<'_>, setting: &'static List) {
    reader.list(setting, |text| whole_tree(text, &NEVER_SHOWN));
}

/// Which of `trees` a pattern means, all of it.
fn whole_tree(pattern: &str, trees: &[&'static str]) -> Result<&'static str, Reason> {
    let tree = pattern.trim_end_matches(['*', '/']);
    trees
        .iter()
        .find(|known| **known == tree)
        .copied()
        .ok_or_else(|| NOT_SERVED.to_owned())
}
