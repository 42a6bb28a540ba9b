//! The self-test of the isolation: an ordinary run that attacks it from inside while the host inspects its processes
//! from outside. Performed once, when a sandbox is created.
//!
//! Invariant: every isolation layer of a tier has passed its test, or there is no sandbox.

mod inside;
mod outside;

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Pid;

use super::error::RunError;
use super::probe_error::ProbeError;
use super::sandbox::{Filters, Sandbox, layers};
use super::stop::StopHandle;
use crate::cgroup::CgroupBackend;
use crate::job::{Argument, Job, Network, Program, SessionTrees, Stage};
use crate::limits::Limits;
use crate::options::Options;
use crate::outcome::{Outcome, RunEnd, StopReason};
use crate::runtimes::Runtimes;
use crate::tier::Tier;

use crate::tree;

/// The limits of the self-test. Low, so that it reaches them quickly.
const LIMITS: Limits = Limits {
    wall_time: Duration::from_secs(10),
    cpu_time: Duration::from_secs(10),
    cpu_percent: 100,
    memory_bytes: 128 * 1024 * 1024,
    file_bytes: 8 * 1024 * 1024,
    disk_bytes: 128 * 1024,
    inodes: 64,
    processes: 16,
    access: crate::tree::TreeAccess::WHOLE,
    output_bytes: 16 * 1024,
};

/// In `/tools` of the self-test.
const READY_FILE: &str = "ready";

impl Sandbox {
    /// Tests the isolation layers of the tier with a run, and searches for the runtimes. Removes what runs of killed
    /// processes left.
    ///
    /// # Errors
    /// [`ProbeError`], which names the isolation layer that failed.
    pub fn probe(options: Options) -> Result<Self, ProbeError> {
        let filters = Filters::compile(options.tier)?;
        let groups = Arc::new(CgroupBackend::probe());
        if options.tier == Tier::Degraded {
            super::private::sweep().map_err(RunError::host("sweep the directories of runs"))?;
        }
        let mut sandbox = Self {
            warm: None,
            layers: layers(options.tier, groups.layer()),
            runtimes: Runtimes::find(&options),
            options,
            groups,
            filters,
        };
        prove(&sandbox)?;
        sandbox.warm = sandbox.warm_helpers()?;
        Ok(sandbox)
    }
}

/// Runs the self-test and judges it.
fn prove(sandbox: &Sandbox) -> Result<(), ProbeError> {
    let ground = Ground::make().map_err(ProbeError::Trees)?;
    let trees = ground.trees().map_err(ProbeError::Trees)?;
    let stop = StopHandle::new().map_err(RunError::host("eventfd"))?;
    let has_python = sandbox.runtimes().python.path().is_some();
    let program = if has_python {
        inside::program(sandbox.tier(), std::process::id())
    } else {
        waiting_tool()
    };
    let mut seen = None;
    let mut witness = |helper: Pid| {
        seen = Some(outside::inspect(helper, sandbox.tier()));
        stop.ask();
    };
    let job = Job {
        program,
        trees,
        limits: LIMITS,
        bridge: None,
        network: Network::None,
    };
    let outcome = sandbox.run_witnessed(job, &stop, Some(&mut witness))?;
    match seen {
        Some(verdict) => verdict?,
        None => return Err(silent(&outcome)),
    }
    if outcome.ended != RunEnd::Stopped(StopReason::Asked) {
        return Err(ProbeError::wall("kill", format!("{:?}", outcome.ended)));
    }
    if has_python {
        inside::judge(sandbox.tier(), &outcome.stdout.bytes)
    } else {
        Ok(())
    }
}

/// The self-test has written nothing.
fn silent(outcome: &Outcome) -> ProbeError {
    let text = String::from_utf8_lossy(&outcome.stderr.bytes);
    ProbeError::wall("self-test", format!("{:?} {}", outcome.ended, text.trim()))
}

/// Without Python: a tool that writes one line and waits.
fn waiting_tool() -> Program {
    // By this path it is found in both tiers.
    let words = ["-f", "../tools/ready"];
    let arguments = words
        .map(|word| Argument::Literal(word.to_owned()))
        .to_vec();
    Program::Pipeline {
        stages: vec![Stage {
            tool: "tail".to_owned(),
            arguments,
        }],
    }
}

/// Directories for one self-test, removed with it.
struct Ground(PathBuf);

impl Ground {
    fn make() -> io::Result<Self> {
        // One that was killed may have left a directory, with the same process number in a container.
        let name = format!("mooring-probe-{}", tree::unique_name()?);
        let path = std::env::temp_dir().join(&name);
        // Containers often have a read-only root, but they have writable memory.
        let path = match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                let path = PathBuf::from("/dev/shm").join(&name);
                fs::create_dir(&path).map(|()| path)?
            }
            made => made.map(|()| path)?,
        };
        let ground = Self(path);
        for name in ["tools", "skills", "scratch", "results"] {
            fs::create_dir(ground.0.join(name))?;
        }
        fs::write(ground.0.join("tools").join(READY_FILE), "ready\n")?;
        Ok(ground)
    }

    fn trees(&self) -> io::Result<SessionTrees> {
        let open = |name| Ok::<OwnedFd, io::Error>(fs::File::open(self.0.join(name))?.into());
        Ok(SessionTrees {
            tools: open("tools")?,
            skills: open("skills")?,
            scratch: open("scratch")?,
            results: open("results")?,
        })
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // Only the self-test writes here, and leftovers are harmless.
        let _ = fs::remove_dir_all(&self.0);
    }
}
