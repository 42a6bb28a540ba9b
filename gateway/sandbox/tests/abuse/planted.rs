//! What stands around a run for it to steal or spoil: its own trees, another session, the gateway's files.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

/// Whom the planted setuid program becomes: nobody that runs here.
pub(crate) const SETUID_USER: u32 = 61_235;

/// A base directory with two sessions, and the gateway's own files beside it.
#[derive(Debug)]
pub(crate) struct Planted {
    root: PathBuf,
    secret: String,
}

impl Planted {
    /// Lays everything out below `root`, for `user`. Needs root, because of the setuid program.
    pub(crate) fn new(root: &Path, user: u32) -> Self {
        let secret = format!("secret-{:016x}-of-the-gateway", random());
        let planted = Self {
            root: root.to_owned(),
            secret,
        };
        for directory in [
            planted.tools(),
            planted.skills(),
            planted.scratch(),
            planted.results(),
            planted.root.join("base/sandbox/ada-1/own/root/.mooring"),
            planted.root.join("base/sandbox/eve-2/other/root/scratch"),
            planted.outside().join("system"),
            planted.outside().join("scratch"),
            planted.outside().join("tools"),
            planted.outside().join("skills"),
        ] {
            fs::create_dir_all(directory).unwrap();
        }
        for file in [
            planted.other_session(),
            planted.host_only(),
            planted.settings(),
            planted.root.join("secret"),
        ] {
            fs::write(file, &planted.secret).unwrap();
        }
        for tools in [planted.tools(), planted.outside().join("tools")] {
            fs::write(tools.join("stub.py"), "def call(): return 1\n").unwrap();
            fs::write(tools.join("_import_map.json"), "{}").unwrap();
        }
        for skills in [planted.skills(), planted.outside().join("skills")] {
            fs::write(skills.join("skill.py"), "def help(): return 1\n").unwrap();
        }
        fs::write(planted.scratch().join("old.txt"), "from an earlier run\n").unwrap();
        for scratch in [planted.scratch(), planted.outside().join("scratch")] {
            symlink(planted.other_session(), scratch.join("link")).unwrap();
        }
        chown_all(root, user);

        for tools in [planted.tools(), planted.outside().join("tools")] {
            let setuid = tools.join("as-another");
            fs::copy("/usr/bin/id", &setuid).unwrap();
            chown(&setuid, Some(SETUID_USER), Some(SETUID_USER)).unwrap();
            fs::set_permissions(&setuid, fs::Permissions::from_mode(0o4755)).unwrap();
        }
        planted
    }

    /// What [`Planted::new`] laid out there.
    pub(crate) fn at(root: PathBuf) -> Self {
        let secret = fs::read_to_string(root.join("secret")).unwrap();
        Self { root, secret }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// What must never be seen inside.
    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }

    pub(crate) fn tools(&self) -> PathBuf {
        self.root.join("base/.tools/0123")
    }

    pub(crate) fn skills(&self) -> PathBuf {
        self.root.join("base/.skills/4567")
    }

    pub(crate) fn scratch(&self) -> PathBuf {
        self.session().join("scratch")
    }

    pub(crate) fn results(&self) -> PathBuf {
        self.session().join("results")
    }

    /// The directory of the run's own session.
    pub(crate) fn session(&self) -> PathBuf {
        self.root.join("base/sandbox/ada-1/own/root")
    }

    /// A file of another session.
    pub(crate) fn other_session(&self) -> PathBuf {
        self.root
            .join("base/sandbox/eve-2/other/root/scratch/mine.txt")
    }

    /// A file of its own session that is the host's.
    pub(crate) fn host_only(&self) -> PathBuf {
        self.session().join(".mooring/stamp.json")
    }

    /// The gateway's settings.
    pub(crate) fn settings(&self) -> PathBuf {
        self.root.join("mooring.toml")
    }

    /// A throw-away directory for what controls write.
    pub(crate) fn outside(&self) -> PathBuf {
        self.root.join("outside")
    }
}

fn chown_all(path: &Path, user: u32) {
    std::os::unix::fs::lchown(path, Some(user), Some(user)).unwrap();
    if path.is_dir() && !path.is_symlink() {
        for entry in fs::read_dir(path).unwrap() {
            chown_all(&entry.unwrap().path(), user);
        }
    }
}

/// Unlike any other run's.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).unwrap();
    u64::from_ne_bytes(bytes)
}
