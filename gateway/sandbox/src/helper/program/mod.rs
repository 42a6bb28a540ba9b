//! The program's command line and environment.
//!
//! Source is data. It is a file that the runtime reads, so that no quoting can change it and its line numbers are the
//! author's own.

mod environment;
mod pipeline;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::descriptors;
use super::error::{HelperStep, StepError};
use super::places::Places;
use super::root::{DENO, tool_path};
use crate::job::Stage;
use crate::limits::Limits;
use crate::protocol::{Spec, WireNetwork, WireRuntime};
use crate::tier::Tier;

/// The file with the text of a python program.
const PYTHON_TEXT: &str = "main.py";

/// The file with the text of a deno program.
const DENO_TEXT: &str = "main.ts";

/// Python's flags: without site packages of the user or machine, without byte code, and unbuffered, so that the output
/// of a stopped program is complete.
const PYTHON_ARGUMENTS: &[&str] = &["-s", "-S", "-B", "-u"];

/// Runs a Python program that may use `await` outside of functions, which the interpreter itself refuses, or that may
/// call `exit` or `quit`, which do not exist without site packages.
const PYTHON_LAUNCHER: &str = include_str!("python_launcher.py");

/// The words without which no program needs [`PYTHON_LAUNCHER`].
const PYTHON_LAUNCHER_WORDS: [&[u8]; 3] = [b"await", b"exit", b"quit"];

/// In the tools' directory: by which names deno's modules are found.
const IMPORT_MAP: &str = "_import_map.json";

/// Deno's own permissions, in addition to the isolation layers.
const DENO_ARGUMENTS: &[&str] = &[
    "run",
    "--quiet",
    "--no-prompt",
    "--no-remote",
    "--no-npm",
    "--no-config",
    "--no-lock",
    "--cached-only",
    // Nothing of its directory outlives the run.
    "--no-code-cache",
];

/// A program that is parsed and not yet started.
pub(super) struct PreparedProgram {
    what: ProgramForm,
    /// The whole of it.
    environment: Vec<environment::Variable>,
    group: ProcessGroup,
}

enum ProgramForm {
    /// One binary with the path of its source.
    Source {
        /// The runtime.
        binary: PathBuf,
        /// Its arguments.
        arguments: Vec<String>,
    },
    /// Tools.
    Pipeline {
        /// In the order of the pipe.
        stages: Vec<Stage>,
        /// The known tools and their paths.
        known: BTreeMap<String, PathBuf>,
    },
}

/// The process group of a main process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessGroup {
    /// Its own.
    Own,
    /// That of the process that starts it, which the whole tree is killed by.
    Shared,
}

/// The main processes of a run: it ends when all of them have.
#[derive(Debug)]
pub(super) struct MainProcesses {
    /// The processes that still run.
    pub(super) running: BTreeSet<i32>,
    /// The process whose status is that of the run.
    pub(super) last: LastProcess,
}

/// The last process of a pipeline. A run of one process is a pipeline of one.
#[derive(Debug, Clone, Copy)]
pub(super) enum LastProcess {
    /// It runs.
    Process(i32),
    /// It could not be started; this is its wait status.
    Status(i32),
}

impl PreparedProgram {
    /// Understands the bytes that were passed.
    pub(super) fn new(
        tier: Tier,
        spec: &Spec,
        places: &Places,
        bytes: &[u8],
    ) -> Result<Self, StepError> {
        if bytes.len() > Limits::SOURCE_BYTES_MAX {
            return Err(HelperStep::SPEC.words("the program is longer than 1 MiB"));
        }
        let what = match &spec.runtime {
            WireRuntime::Python { binary } => python(binary, &places.text(PYTHON_TEXT), bytes),
            WireRuntime::Deno { binary, .. } => {
                let binary = match tier {
                    Tier::Strict => Path::new(DENO),
                    Tier::Degraded => binary,
                };
                deno(binary, places, spec)
            }
            WireRuntime::Tools { binaries } => pipeline(tier, binaries, bytes)?,
        };
        let group = match tier {
            Tier::Strict => ProcessGroup::Own,
            Tier::Degraded => ProcessGroup::Shared,
        };
        Ok(Self {
            what,
            environment: environment::of(spec, places),
            group,
        })
    }

    /// Starts it. The output goes to descriptors 1 and 2 of this process. Of a pipeline, nothing has the bridge.
    pub(super) fn start(&self, bridge: Option<OwnedFd>) -> Result<MainProcesses, StepError> {
        match &self.what {
            ProgramForm::Source { binary, arguments } => {
                let mut command = self.command(binary);
                command.args(arguments);
                // Without a step between fork and exec, the standard library does not copy this process for the start.
                let bridge = bridge
                    .map(|bridge| descriptors::inheritable_bridge(&bridge))
                    .transpose()
                    .map_err(HelperStep::EXEC.at("pass the bridge"))?;
                let process =
                    spawn(command).map_err(HelperStep::EXEC.at(binary.display().to_string()))?;
                drop(bridge);
                Ok(MainProcesses {
                    running: BTreeSet::from([process]),
                    last: LastProcess::Process(process),
                })
            }
            ProgramForm::Pipeline { stages, known } => {
                pipeline::start(stages, known, |binary| self.command(binary))
            }
        }
    }

    /// A command in the common environment, which reads nothing.
    fn command(&self, binary: &Path) -> Command {
        let mut command = Command::new(binary);
        command
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        if self.group == ProcessGroup::Own {
            command.process_group(0);
        }
        command
    }
}

/// The path inside of the program's source, if its bytes are one.
pub(super) fn text_path(runtime: &WireRuntime, places: &Places) -> Option<PathBuf> {
    match runtime {
        WireRuntime::Python { .. } => Some(places.text(PYTHON_TEXT)),
        WireRuntime::Deno { .. } => Some(places.text(DENO_TEXT)),
        WireRuntime::Tools { .. } => None,
    }
}

fn python(binary: &Path, path: &Path, text: &[u8]) -> ProgramForm {
    let mut arguments: Vec<String> = PYTHON_ARGUMENTS
        .iter()
        .map(|&argument| argument.to_owned())
        .collect();
    let has = |word: &&[u8]| text.windows(word.len()).any(|part| part == *word);
    if PYTHON_LAUNCHER_WORDS.iter().any(has) {
        arguments.extend(["-c".to_owned(), PYTHON_LAUNCHER.to_owned()]);
    }
    arguments.push(path.display().to_string());
    ProgramForm::Source {
        binary: binary.to_owned(),
        arguments,
    }
}

fn deno(binary: &Path, places: &Places, spec: &Spec) -> ProgramForm {
    let mut arguments: Vec<String> = DENO_ARGUMENTS
        .iter()
        .map(|&argument| argument.to_owned())
        .collect();
    let list = |paths: &[PathBuf]| {
        let paths: Vec<_> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        paths.join(",")
    };
    let writable = places.writable();
    let read_only = [places.tools(), places.skills()];
    let names = places.variables().map(|(name, _)| name).join(",");
    let heap_mebibytes = (spec.limits.memory_bytes / (1024 * 1024)).max(1);
    let import_map = places.tools().join(IMPORT_MAP);
    let path = places.text(DENO_TEXT);
    if spec.network != WireNetwork::None {
        arguments.push("--allow-net".to_owned());
    }
    arguments.extend([
        format!("--import-map={}", import_map.display()),
        format!("--allow-read={},{}", list(&read_only), list(&writable)),
        format!("--allow-write={}", list(&writable)),
        format!("--allow-env={names}"),
        format!("--v8-flags=--max-old-space-size={heap_mebibytes}"),
        path.display().to_string(),
    ]);
    ProgramForm::Source {
        binary: binary.to_owned(),
        arguments,
    }
}

fn pipeline(
    tier: Tier,
    binaries: &BTreeMap<String, PathBuf>,
    bytes: &[u8],
) -> Result<ProgramForm, StepError> {
    let stages: Vec<Stage> = serde_json::from_slice(bytes)
        .map_err(|error| HelperStep::SPEC.words(format!("stages: {error}")))?;
    if stages.is_empty() {
        return Err(HelperStep::SPEC.words("a pipeline without a stage"));
    }
    let mut known = BTreeMap::new();
    for (name, binary) in binaries {
        let place = match tier {
            Tier::Strict => tool_path(name).map_err(HelperStep::SPEC.failed())?,
            Tier::Degraded => binary.clone(),
        };
        known.insert(name.clone(), place);
    }
    Ok(ProgramForm::Pipeline { stages, known })
}

/// Starts it, and leaves it to the one who waits for all processes.
fn spawn(mut command: Command) -> io::Result<i32> {
    let child = command.spawn()?;
    i32::try_from(child.id()).map_err(io::Error::other)
}

/// A pipe that is closed on exec.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}
