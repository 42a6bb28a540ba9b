//! Other processes: the test binary started again, for one ignored test that does what it is told.
//!
//! The child says a line when it is where it was told to go, and then waits for its standard input to say something or
//! to close.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use mooring_sandbox::tree::SessionDirectory;

use super::super::{Opening, Retired, TreeOrigin, Volume, directory, second_process};
use super::{PATIENCE, blank, nothing, options, place_of};

/// What the child is to do.
const ROLE: &str = "MOORING_TEST_ROLE";
/// Where the volume is.
const BASE: &str = "MOORING_TEST_BASE";
/// What a child's own lines begin with, among those of the test harness.
const MARK: &str = "@ ";

/// The arguments that make the test binary run one of the ignored tests of this file.
pub(crate) fn arguments(test: &str) -> Vec<OsString> {
    let path = format!("code::volume::tests::processes::{test}");
    [
        "--exact",
        path.as_str(),
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ]
    .map(OsString::from)
    .to_vec()
}

/// Another process; killed when it is dropped.
pub(super) struct Other {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Other {
    pub(super) fn start(role: &str, base: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(arguments("the_other_process"))
            .env(ROLE, role)
            .env(BASE, base)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// The next line that it says.
    pub(super) fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(
                self.output.read_line(&mut line).unwrap(),
                0,
                "the other process ended"
            );
            if let Some((_, said)) = line.trim_end().split_once(MARK) {
                return said.to_owned();
            }
        }
    }

    /// Tells it something.
    pub(super) fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
        self.input.flush().unwrap();
    }

    /// Kills it at once, as an operator's `kill -9` does.
    pub(super) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(text: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{MARK}{text}").unwrap();
    output.flush().unwrap();
}

fn heard() -> Option<String> {
    let mut line = String::new();
    let count = std::io::stdin().lock().read_line(&mut line).unwrap();
    (count > 0).then(|| line.trim_end().to_owned())
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
    let role = std::env::var(ROLE).unwrap();
    let base = std::env::var_os(BASE).unwrap();
    let volume = Volume::open(options(Path::new(&base))).unwrap();
    match role.as_str() {
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
        place.server().as_str(),
        place.slug().as_str(),
        place.id().as_str(),
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
            Retired::Moved => "moved",
            Retired::InUse => "in use",
            Retired::TakenOver => "taken over",
            Retired::Absent => "absent",
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
