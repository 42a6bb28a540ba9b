//! A commit keeps exactly what a real overlay showed: random changes are made through one, in a process with its own
//! user and mount namespaces, and the layer that it leaves is committed.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use mooring_sandbox::tree::commit;
use proptest::prelude::*;

use crate::support::{Picture, Session, picture, roomy};

const VARIABLE: &str = "MOORING_TEST_OVERLAY";

/// One change to a tree. Where it cannot be made, nothing is changed.
#[derive(Debug, Clone)]
enum Change {
    Write(PathBuf, Vec<u8>),
    Append(PathBuf, Vec<u8>),
    Truncate(PathBuf),
    MakeDirectory(PathBuf),
    RemoveFile(PathBuf),
    RemoveTree(PathBuf),
    Rename(PathBuf, PathBuf),
    Link(PathBuf, PathBuf),
    Executable(PathBuf),
}

impl Change {
    fn make(&self, base: &Path) -> io::Result<()> {
        use std::io::Write as _;

        match self {
            Self::Write(path, bytes) => fs::write(base.join(path), bytes),
            Self::Append(path, bytes) => fs::OpenOptions::new()
                .append(true)
                .open(base.join(path))?
                .write_all(bytes),
            Self::Truncate(path) => fs::OpenOptions::new()
                .write(true)
                .open(base.join(path))?
                .set_len(1),
            Self::MakeDirectory(path) => fs::create_dir(base.join(path)),
            Self::RemoveFile(path) => fs::remove_file(base.join(path)),
            Self::RemoveTree(path) => fs::remove_dir_all(base.join(path)),
            Self::Rename(from, to) => fs::rename(base.join(from), base.join(to)),
            Self::Link(from, to) => fs::hard_link(base.join(from), base.join(to)),
            Self::Executable(path) => {
                let is_file = fs::symlink_metadata(base.join(path))?.is_file();
                let mode = if is_file { 0o744 } else { 0o700 };
                fs::set_permissions(base.join(path), fs::Permissions::from_mode(mode))
            }
        }
    }

    /// A line that says the same, for the process that makes it.
    fn encode(&self) -> String {
        let hex = |bytes: &[u8]| {
            bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
        match self {
            Self::Write(path, bytes) => format!("write {} {}", path.display(), hex(bytes)),
            Self::Append(path, bytes) => format!("append {} {}", path.display(), hex(bytes)),
            Self::Truncate(path) => format!("truncate {} -", path.display()),
            Self::MakeDirectory(path) => format!("mkdir {} -", path.display()),
            Self::RemoveFile(path) => format!("rm {} -", path.display()),
            Self::RemoveTree(path) => format!("rmtree {} -", path.display()),
            Self::Rename(from, to) => format!("mv {} {}", from.display(), to.display()),
            Self::Link(from, to) => format!("ln {} {}", from.display(), to.display()),
            Self::Executable(path) => format!("chmod {} -", path.display()),
        }
    }

    fn decode(line: &str) -> Self {
        let mut words = line.split(' ');
        let (verb, path, rest) = (
            words.next().unwrap(),
            words.next().unwrap(),
            words.next().unwrap(),
        );
        let path = PathBuf::from(path);
        let bytes = || -> Vec<u8> {
            (0..rest.len() / 2)
                .map(|index| u8::from_str_radix(&rest[2 * index..2 * index + 2], 16).unwrap())
                .collect()
        };
        match verb {
            "write" => Self::Write(path, bytes()),
            "append" => Self::Append(path, bytes()),
            "truncate" => Self::Truncate(path),
            "mkdir" => Self::MakeDirectory(path),
            "rm" => Self::RemoveFile(path),
            "rmtree" => Self::RemoveTree(path),
            "mv" => Self::Rename(path, rest.into()),
            "ln" => Self::Link(path, rest.into()),
            "chmod" => Self::Executable(path),
            other => panic!("{other}"),
        }
    }
}

fn some_path() -> impl Strategy<Value = PathBuf> {
    let name = prop::sample::select(vec!["a", "b", "c", ".h"]);
    prop::collection::vec(name, 1..4).prop_map(|names| names.iter().collect())
}

fn some_change() -> impl Strategy<Value = Change> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        5 => (some_path(), bytes()).prop_map(|(path, bytes)| Change::Write(path, bytes)),
        1 => (some_path(), bytes()).prop_map(|(path, bytes)| Change::Append(path, bytes)),
        1 => some_path().prop_map(Change::Truncate),
        5 => some_path().prop_map(Change::MakeDirectory),
        2 => some_path().prop_map(Change::RemoveFile),
        3 => some_path().prop_map(Change::RemoveTree),
        3 => (some_path(), some_path()).prop_map(|(from, to)| Change::Rename(from, to)),
        1 => (some_path(), some_path()).prop_map(|(from, to)| Change::Link(from, to)),
        1 => some_path().prop_map(Change::Executable),
    ]
}

/// The process in its own namespaces: mounts the overlay, makes the changes, and says what it sees then.
#[test]
fn changes_in_a_child() {
    let Ok(base) = std::env::var(VARIABLE) else {
        return;
    };
    let base = Path::new(&base);
    let options = format!(
        "lowerdir={0}/root/scratch,upperdir={0}/layer/upper,workdir={0}/layer/work,userxattr",
        base.display()
    );
    let options = std::ffi::CString::new(options).unwrap();
    rustix::mount::mount(
        "overlay",
        base.join("merged"),
        "overlay",
        rustix::mount::MountFlags::empty(),
        options.as_c_str(),
    )
    .unwrap();
    for line in fs::read_to_string(base.join("changes")).unwrap().lines() {
        // Changes that cannot be made are part of the game.
        let _ = Change::decode(line).make(&base.join("merged"));
    }
    // The links that the layer holds are told apart by the commit, so the picture here may not look at them.
    let status = Command::new("cp")
        .arg("-r")
        .arg(base.join("merged"))
        .arg(base.join("seen"))
        .status()
        .unwrap();
    assert!(status.success());
}

/// What a picture looks like once it was committed.
fn kept(seen: Picture) -> Picture {
    seen.into_iter()
        .map(|(path, (content, mode))| {
            let is_executable = path.ends_with('/') || mode & 0o100 != 0;
            (
                path.replacen("seen", "scratch", 1),
                (content, if is_executable { 0o755 } else { 0o644 }),
            )
        })
        .collect()
}

fn check(before: &[Change], during: &[Change]) -> Result<(), TestCaseError> {
    // The layer is on a tmpfs, as the sandbox's is.
    let session = Session::within(Path::new("/dev/shm"));
    for change in before
        .iter()
        .filter(|change| !matches!(change, Change::Link(..)))
    {
        let _ = change.make(&session.scratch(""));
    }
    for name in ["layer/upper", "layer/work", "merged"] {
        fs::create_dir_all(session.path(name)).unwrap();
    }
    let lines: String = during.iter().map(|change| change.encode() + "\n").collect();
    fs::write(session.path("changes"), lines).unwrap();
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount"])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "overlay::changes_in_a_child",
            "--nocapture",
            "--test-threads",
            "1",
        ])
        .env(VARIABLE, session.path(""))
        .output()
        .unwrap();
    prop_assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let seen = kept(picture(&session.path(""), &["seen"]));
    let changes = mooring_sandbox::Changes {
        scratch: crate::support::directory(&session.path("layer/upper")),
        results: crate::support::directory(&session.path("upper/results")),
        is_copy: false,
    };
    let committed = commit(&session.directory, &changes, &roomy(), Some(1)).unwrap();
    prop_assert_eq!(committed.refused_total, 0);
    let now = session.picture();
    let all_kept = kept(now.clone());
    prop_assert_eq!(&all_kept, &seen);
    let bytes: usize = now.values().map(|(content, _)| content.len()).sum();
    prop_assert_eq!(
        (committed.usage.bytes, committed.usage.inodes),
        (bytes as u64, now.len() as u64)
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_commit_keeps_what_the_overlay_showed(
        before in prop::collection::vec(some_change(), 0..25),
        during in prop::collection::vec(some_change(), 0..25),
    ) {
        check(&before, &during)?;
    }
}
