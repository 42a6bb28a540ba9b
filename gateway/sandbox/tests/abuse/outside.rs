//! The control: the same attack without a sandbox, in a throw-away directory, where it has to work.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::arena::Arena;

/// How the control of an attack is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    /// As this user.
    Plain,
    /// With every capability over namespaces of its own: what code could do that was put into a user namespace and
    /// left its capabilities.
    Privileged,
}

/// Longest time of a control, in seconds.
const SECONDS_MAX: &str = "60";

impl Arena<'_> {
    /// Runs Python without a sandbox. What it said, however it ended.
    pub(crate) fn python_outside(&self, source: &str, control: Control) -> String {
        let mut command = bounded(control);
        command.args(["/usr/bin/python3", "-I", "-S", "-c", source]);
        self.outside(command)
    }

    /// Runs TypeScript without a sandbox and with every permission.
    pub(crate) fn typescript_outside(&self, source: &str) -> String {
        let file = self.planted.outside().join("control.ts");
        fs::write(&file, source).unwrap();
        let mut command = bounded(Control::Plain);
        command
            .arg(&self.binaries.deno)
            .args(["run", "--quiet", "--allow-all", "--no-lock"])
            .arg(&file);
        let said = self.outside(command);
        fs::remove_file(&file).unwrap();
        said
    }

    fn outside(&self, mut command: Command) -> String {
        let directory = self.planted.outside().join("scratch");
        command
            .current_dir(&directory)
            .env("GATEWAY_SECRET", self.planted.secret());
        command
            .env("DENO_DIR", self.planted.outside().join("deno"))
            .env("DENO_NO_UPDATE_CHECK", "1");
        let said = text(
            &command
                .stdin(Stdio::null())
                .output()
                .expect("run the control"),
        );
        remove_new(&directory);
        let _ = fs::remove_dir_all(self.planted.outside().join("deno"));
        said
    }
}

fn bounded(control: Control) -> Command {
    let mut command = Command::new("/usr/bin/timeout");
    command.args(["--signal=KILL", SECONDS_MAX]);
    if control == Control::Privileged {
        command.args([
            "/usr/bin/unshare",
            "--user",
            "--map-root-user",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
        ]);
        command.args(["--net", "--ipc", "--uts"]);
    }
    command
}

/// Removes what controls wrote, for the next one.
fn remove_new(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        if entry.file_name() == "link" {
            continue;
        }
        let path = entry.path();
        if path.is_dir() {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        }
        .unwrap();
    }
}

fn text(output: &Output) -> String {
    let both = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&both).into_owned()
}
