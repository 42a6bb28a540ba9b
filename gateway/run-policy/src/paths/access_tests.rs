//! What lists of directories come to: each row is a policy, a path and what may be done with it.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::*;

fn at(path: &str) -> VirtualPath {
    VirtualPath::parse(path).unwrap()
}

fn access(readable: &[&str], writable: &[&str], denied: &[&str]) -> TreeAccess {
    let paths = |list: &[&str]| list.iter().map(|path| at(path)).collect::<Vec<_>>();
    TreeAccess::new(&paths(readable), &paths(writable), &paths(denied))
}

const ALL: [&str; 4] = ["/tools", "/skills", "/scratch", "/results"];
const BOTH: [&str; 2] = ["/scratch", "/results"];

#[test]
fn lists_of_whole_trees_withhold_nothing() {
    assert_eq!(access(&ALL, &BOTH, &[]), TreeAccess::WHOLE);
    assert_eq!(
        access(
            &["/results", "/scratch", "/tools", "/skills", "/scratch/a"],
            &BOTH,
            &[]
        ),
        TreeAccess::WHOLE
    );
    assert!(!access(&ALL, &["/results"], &[]).is_whole());
    assert!(!access(&ALL[1..], &BOTH, &[]).is_whole());
    assert!(!access(&ALL, &BOTH, &["/scratch/a"]).is_whole());
}

#[test]
fn each_path_is_readable_and_writable_as_the_lists_say() {
    let narrow = access(
        &[
            "/tools/files",
            "/scratch/in",
            "/scratch/out",
            "/results",
            "/skills",
        ],
        &["/scratch", "/results/mine", "/tools"],
        &["/scratch/out/secret", "/results/mine/a"],
    );
    let rows = [
        // A path, and whether it can be read, leads to something that can, and can be written.
        ("/", false, true, false),
        ("/tools", false, true, false),
        ("/tools/files", true, true, false),
        ("/tools/files/read.py", true, false, false),
        ("/tools/filesystem", false, false, false),
        ("/tools/_runtime.py", true, true, false),
        ("/tools/_catalog.json", false, false, false),
        ("/skills/sum.py", true, false, false),
        ("/scratch", false, true, false),
        ("/scratch/in", true, true, false),
        ("/scratch/in/a", true, false, true),
        ("/scratch/inner", false, false, false),
        ("/scratch/out/a/b", true, false, true),
        ("/scratch/out/secret", false, false, false),
        ("/scratch/out/secret/a", false, false, false),
        ("/scratch/out/secrets", true, false, true),
        ("/results/a", true, false, false),
        ("/results/mine", true, false, false),
        ("/results/mine/b", true, false, true),
        ("/results/mine/a/b", false, false, false),
    ];
    for (path, reads, leads, writes) in rows {
        let path = at(path);
        assert_eq!(
            (
                narrow.allows_reading(&path),
                narrow.leads_to_readable(&path),
                narrow.allows_writing(&path)
            ),
            (reads, leads, writes),
            "{path}"
        );
    }
    assert_eq!(
        narrow.writable(),
        [at("/scratch/in"), at("/scratch/out"), at("/results/mine")]
    );
}

#[test]
fn what_is_denied_is_neither_readable_nor_writable_by_another_list() {
    let narrow = access(&["/scratch/a/b", "/results"], &BOTH, &["/scratch/a"]);
    assert!(narrow.readable(Mount::Scratch).is_empty());
    assert!(narrow.denied().is_empty(), "nothing is left to cover");
    assert_eq!(narrow.writable(), [at("/results")]);
    assert!(!narrow.allows_reading(&at("/scratch/a/b/c")));
}
