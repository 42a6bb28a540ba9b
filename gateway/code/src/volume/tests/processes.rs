//! What other processes do at a volume. Each says a line when it is where it was told to go, and then waits to hear
//! something.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::path::Path;

use mooring_sandbox::tree::SessionDirectory;

use super::super::{Opening, RetireOutcome, TreeOrigin, Volume, directory, second_process};
use super::{PATIENCE, blank, nothing, options, place_of};
use mooring_test_support::processes::{self, TestProcess, heard, place, role, say};

/// The arguments that make the test binary run one of the ignored tests of this file.
pub(crate) fn arguments(test: &str) -> Vec<OsString> {
    processes::arguments(&path(test))
}

fn path(test: &str) -> String {
    format!("volume::tests::processes::{test}")
}

/// Another process in this role, on this volume.
pub(super) fn other(role: &str, base: &Path) -> TestProcess {
    TestProcess::in_role(&path("the_other_process"), role, base)
}

#[test]
#[ignore = "started by the volume's probe, as its second process"]
#[expect(clippy::disallowed_methods, reason = "the exit code is what is said")]
fn the_second_process() {
    std::process::exit(second_process::look().into());
}

#[test]
#[ignore = "started by other tests, as a process of its own"]
fn the_other_process() {
    let volume = Volume::open(options(&place())).unwrap();
    match role().as_str() {
        "opens" => opens(&volume),
        "holds" => holds(&volume),
        "half-made" => half_made(&volume),
        "reaps" => reaps(&volume),
        "empties" => empties(&volume),
        other => panic!("no such role: {other}"),
    }
}

/// Opens the session it is told, and says what it found.
fn opens(volume: &Volume) {
    say("ready");
    while let Some(user) = heard() {
        let place = place_of(&user);
        let opened = volume
            .session(&place)
            .open(blank(1_000), &nothing(&place), PATIENCE)
            .unwrap();
        let opening = match opened.opening {
            Opening::Initialised => "initialised",
            Opening::Found => "found",
            other => panic!("{other:?}"),
        };
        let trees = match opened.trees {
            TreeOrigin::Made => "made",
            TreeOrigin::Found => "found",
        };
        say(&format!("{opening} {trees}"));
    }
}

/// Takes the lock of the session it is told, and keeps it.
fn holds(volume: &Volume) {
    let user = heard().unwrap();
    let _lock = volume.session(&place_of(&user)).lock(PATIENCE).unwrap();
    say("locked");
    heard();
}

/// Makes half of a session under its lock: everything but the stamp, and half of a tree of tools.
fn half_made(volume: &Volume) {
    let place = place_of(&heard().unwrap());
    let _lock = volume.session(&place).lock(PATIENCE).unwrap();
    let base = volume.shared.base.as_fd();
    let names = [
        place.server.as_str(),
        place.slug.as_str(),
        place.id.as_str(),
    ];
    let root = directory::make_directories(base, &names).unwrap();
    SessionDirectory::create(root).unwrap();
    let session = volume.base_dir().join(place.relative_path());
    std::fs::write(session.join(".mooring/stamp.json.tmp"), "{\"version\":1,").unwrap();
    std::fs::create_dir_all(volume.base_dir().join(".tools/.new-half/tools")).unwrap();
    say("half made");
    heard();
}

/// Retires the generation of the session that it is told, again and again.
fn reaps(volume: &Volume) {
    let place = place_of(&heard().unwrap());
    say("ready");
    while let Some(generation) = heard() {
        let retired = volume.retire(&place, generation.parse().unwrap()).unwrap();
        say(match retired {
            RetireOutcome::Moved => "moved",
            RetireOutcome::InUse => "in use",
            RetireOutcome::TakenOver => "taken over",
            RetireOutcome::Absent => "absent",
        });
    }
}

/// Empties the trash until nothing is left, and says how much it deleted.
fn empties(volume: &Volume) {
    say("ready");
    heard();
    let mut removed = 0;
    loop {
        let emptied = volume.empty_trash(5).unwrap();
        removed += emptied.removed;
        if emptied.left == 0 {
            break;
        }
    }
    say(&removed.to_string());
}
