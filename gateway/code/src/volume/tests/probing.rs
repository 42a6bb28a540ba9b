//! The probe: a volume that works, and each step that does not.

use std::os::unix::fs::PermissionsExt;

use super::super::VolumeProblem;
use super::*;

#[test]
fn a_base_is_made_for_the_gateway_alone_and_left_clean() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().join("a/b");
    let volume = Volume::open(options(&base)).unwrap();
    let mode = std::fs::metadata(&base).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o700);
    assert_eq!(names(&base), [".locks", ".runs", ".tools", ".trash"]);
    let room = volume.health().unwrap();
    assert!(room.free_bytes > 0);
    assert_eq!(names(&base).len(), 4);
}

#[test]
fn a_base_with_the_mode_of_a_shared_volume_is_taken_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().join("base");
    std::fs::create_dir(&base).unwrap();
    std::fs::set_permissions(&base, PermissionsExt::from_mode(0o2775)).unwrap();
    Volume::open(options(&base)).unwrap();
    let mode = std::fs::metadata(&base).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o2775);
}

#[test]
fn a_base_that_cannot_be_trusted_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    std::fs::write(root.join("file"), "x").unwrap();
    std::fs::create_dir(root.join("open")).unwrap();
    std::fs::set_permissions(root.join("open"), PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::create_dir(root.join("real")).unwrap();
    std::os::unix::fs::symlink(root.join("real"), root.join("link")).unwrap();
    let refused = |name: &str| Volume::open(options(&root.join(name))).unwrap_err();
    assert!(matches!(refused("file"), VolumeProblem::Open(_)));
    assert!(matches!(refused("file/below"), VolumeProblem::Open(_)));
    assert!(matches!(refused("link"), VolumeProblem::Open(_)));
    assert_eq!(
        refused("open"),
        VolumeProblem::WritableByAll { mode: 0o777 }
    );
    assert_eq!(names(&root.join("real")), [""; 0]);
}

#[test]
fn a_second_process_that_says_something_else_is_a_problem() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().join("base");
    for (script, expected) in [
        ("exit 11", Some(VolumeProblem::LockIsPrivate)),
        ("exit 12", None),
        ("exit 0", None),
        ("kill -9 $$", None),
    ] {
        let mut options = options(&base);
        options.second_process = SecondProcess {
            program: PathBuf::from("/bin/sh"),
            arguments: ["-c", script].map(OsString::from).to_vec(),
        };
        let problem = Volume::open(options).unwrap_err();
        match expected {
            Some(expected) => assert_eq!(problem, expected, "{script}"),
            None => assert!(
                matches!(problem, VolumeProblem::SecondProcess { .. }),
                "{script}: {problem}"
            ),
        }
    }
    assert_eq!(names(&base).len(), 4, "{:?}", names(&base));
}

#[test]
fn a_volume_that_goes_away_is_said() {
    let fixture = Fixture::new();
    std::fs::remove_dir_all(&fixture.base).unwrap();
    let problem = super::super::probe::prove_here(&fixture.volume.shared.base).unwrap_err();
    assert!(
        matches!(problem, VolumeProblem::MakeDirectory(_)),
        "{problem}"
    );
    let in_place =
        || super::super::probe::is_in_place(&fixture.volume.shared.base, fixture.volume.base_dir());
    assert_eq!(in_place(), Err(VolumeProblem::Replaced));
    std::fs::create_dir(&fixture.base).unwrap();
    assert_eq!(in_place(), Err(VolumeProblem::Replaced), "it is another");
}

#[test]
fn a_base_that_somebody_emptied_is_filled_again() {
    let fixture = Fixture::new();
    let place = place_of("zoe");
    fixture.open(&place, blank(1_000));
    let empty = || {
        for name in names(&fixture.base) {
            std::fs::remove_dir_all(fixture.base.join(name)).unwrap();
        }
    };
    empty();
    let opened = fixture.open(&place, Incarnation::StoreAway);
    assert_eq!(opened.opening, super::super::Opening::Initialised);
    drop(opened);
    let long_after_ms = super::super::unix_now_ms() + 3 * super::super::directory::millis(TTL);
    assert_eq!(fixture.volume.sweep(long_after_ms).unwrap().sessions, 1);
    assert!(!fixture.in_trash().is_empty());
    empty();
    assert_eq!(fixture.volume.sweep(long_after_ms).unwrap().failed, 0);
    empty();
    assert_eq!(fixture.volume.empty_trash(9).unwrap().left, 0);
}
