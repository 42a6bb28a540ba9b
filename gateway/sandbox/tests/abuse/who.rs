//! Every scene is played twice: by root, and by an ordinary user.
//!
//! The second time, this very test is executed again under the other identity, with copies of the binaries that it can
//! reach.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use mooring_sandbox::Tier;
use tempfile::TempDir;

use crate::arena::Arena;
use crate::planted::Planted;

/// An ordinary user that owns nothing here.
pub(crate) const ORDINARY_USER: u32 = 61_234;

const LAUNCHER: &str = "MOORING_ABUSE_LAUNCHER";
const DENO: &str = "MOORING_ABUSE_DENO";
const PLANTED: &str = "MOORING_ABUSE_PLANTED";

/// One scene at a time: what is left of a run is looked for in the whole machine.
static STAGE: Mutex<()> = Mutex::new(());

/// The binaries of a scene.
#[derive(Debug, Clone)]
pub(crate) struct Binaries {
    pub(crate) launcher: PathBuf,
    pub(crate) deno: PathBuf,
}

impl Binaries {
    /// Those of this scene: copies where this is the ordinary user.
    pub(crate) fn of_this_process() -> Self {
        let from = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let deno = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/bin/deno");
        Self {
            launcher: from(LAUNCHER)
                .unwrap_or_else(|| env!("CARGO_BIN_EXE_mooring-sandbox").into()),
            deno: from(DENO).unwrap_or_else(|| {
                fs::canonicalize(&deno).expect("deno is missing: run tests/tools/install.sh tools")
            }),
        }
    }
}

/// Both.
pub(crate) const TIERS: [Tier; 2] = [Tier::Strict, Tier::Degraded];

/// Plays `scene` in both tiers as root and as an ordinary user. `name` is the test's, as libtest knows it.
pub(crate) fn everybody(name: &str, scene: impl Fn(&Arena<'_>)) {
    everybody_in(&TIERS, name, scene);
}

/// Likewise, and in the strict tier once more with runs that begin their own helpers: for tables that look at every
/// side of the isolation.
pub(crate) fn everybody_warm_and_cold(name: &str, scene: impl Fn(&Arena<'_>)) {
    as_each(name, |planted| {
        for tier in TIERS {
            scene(&Arena::new(tier, planted));
        }
        scene(&Arena::cold(Tier::Strict, planted));
    });
}

/// Likewise in these tiers only.
pub(crate) fn everybody_in(tiers: &[Tier], name: &str, scene: impl Fn(&Arena<'_>)) {
    as_each(name, |planted| {
        for tier in tiers {
            let arena = Arena::new(*tier, planted);
            scene(&arena);
        }
    });
}

/// Plays `scene` as root and as an ordinary user.
pub(crate) fn as_each(name: &str, scene: impl Fn(&Planted)) {
    let _stage = STAGE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(planted) = std::env::var_os(PLANTED) {
        scene(&Planted::at(PathBuf::from(planted)));
        return;
    }
    assert!(
        rustix::process::geteuid().is_root(),
        "these tests have to be run as root: they show what holds for root and for an ordinary user"
    );
    let directory = directory_for_all();
    scene(&Planted::new(&directory.path().join("root"), 0));
    as_ordinary_user(name, directory.path());
}

/// A directory that every user can reach.
pub(crate) fn directory_for_all() -> TempDir {
    let directory = TempDir::with_prefix("mooring-abuse-").expect("make a directory");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))
        .expect("open it to all");
    directory
}

fn as_ordinary_user(name: &str, directory: &Path) {
    let planted = Planted::new(&directory.join("user"), ORDINARY_USER);
    let own = Binaries::of_this_process();
    let this = std::env::current_exe().expect("this binary");
    let mut command = ordinary_user_command(&copy(&this, &directory.join("scenes")));
    command
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(PLANTED, planted.root())
        .env(LAUNCHER, copy(&own.launcher, &directory.join("launcher")))
        .env(DENO, copy(&own.deno, &directory.join("deno")));
    let output = command.output().expect("run setpriv");
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "as an ordinary user:\n{said}");
    assert!(
        said.contains("1 passed"),
        "no test is called {name:?}:\n{said}"
    );
}

/// `program` as the ordinary user, without a capability and with an empty environment.
pub(crate) fn ordinary_user_command(program: &Path) -> Command {
    let mut command = Command::new("/usr/bin/setpriv");
    command
        .env_clear()
        .args([
            format!("--reuid={ORDINARY_USER}"),
            format!("--regid={ORDINARY_USER}"),
        ])
        .args([
            "--clear-groups",
            "--inh-caps=-all",
            "--bounding-set=-all",
            "--",
        ])
        .arg(program)
        .current_dir("/");
    command
}

/// The same file at a place that all may reach: the original may lie below a directory that only its owner may enter.
fn copy(from: &Path, to: &Path) -> PathBuf {
    let is_for_all = fs::metadata(from).expect("a binary").mode() & 0o005 == 0o005;
    if !is_for_all || fs::hard_link(from, to).is_err() {
        fs::copy(from, to).expect("copy a binary");
        fs::set_permissions(to, fs::Permissions::from_mode(0o755)).expect("make it executable");
    }
    to.to_owned()
}
