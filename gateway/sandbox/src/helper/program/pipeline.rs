//! Tools that read one another's output, started as a shell starts them, without one.
//!
//! A tool that cannot be started reports that on stderr and counts as exit code 127 (not found) or 126 (not
//! executable); the others continue, and the last one's status is that of the run.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use glob::MatchOptions;

use super::super::error::{HelperStep, StepError};
use super::{LastProcess, MainProcesses, pipe, spawn};
use crate::job::{Argument, Stage};

/// Most file names that one pattern may match.
const MATCHES_MAX: usize = 10_000;

/// As in a shell: a hidden file is named by its dot, and a pattern stays within one directory.
const MATCH: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// Exit code of a tool that is not there.
const NOT_FOUND: i32 = 127;

/// Exit code of a tool that cannot be run.
const NOT_RUN: i32 = 126;

/// Starts all stages. `known` are the tools that may be named, `command` begins the command of one.
pub(super) fn start(
    stages: &[Stage],
    known: &BTreeMap<String, PathBuf>,
    command: impl Fn(&Path) -> Command,
) -> Result<MainProcesses, StepError> {
    let mut running = BTreeSet::new();
    let mut last = LastProcess::Status(0);
    let mut input: Option<OwnedFd> = None;
    for (position, stage) in stages.iter().enumerate() {
        let output = if position + 1 == stages.len() {
            None
        } else {
            Some(pipe().map_err(HelperStep::EXEC.at("pipe"))?)
        };
        let (next, output) = output.map_or((None, None), |(reader, writer)| {
            (Some(reader), Some(writer))
        });
        last = match start_one(stage, known, &command, input.take(), output) {
            Ok(process) => {
                running.insert(process);
                LastProcess::Process(process)
            }
            Err(error) => LastProcess::Status(refuse(stage, &error)),
        };
        input = next;
    }
    Ok(MainProcesses { running, last })
}

fn start_one(
    stage: &Stage,
    known: &BTreeMap<String, PathBuf>,
    command: &impl Fn(&Path) -> Command,
    input: Option<OwnedFd>,
    output: Option<OwnedFd>,
) -> io::Result<i32> {
    let Some(binary) = known.get(&stage.tool) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let mut command = command(binary);
    command.args(stage.arguments.iter().flat_map(expand));
    if let Some(input) = input {
        command.stdin(Stdio::from(input));
    }
    if let Some(output) = output {
        command.stdout(Stdio::from(output));
    }
    spawn(command)
}

/// Reports why a tool was not started, and returns its wait status.
fn refuse(stage: &Stage, error: &io::Error) -> i32 {
    let (code, reason) = match error.kind() {
        io::ErrorKind::NotFound => (NOT_FOUND, "not found".to_owned()),
        _ => (NOT_RUN, error.to_string()),
    };
    // stderr may be closed, which does not matter.
    let _ = writeln!(io::stderr(), "{}: {reason}", stage.tool);
    code << 8
}

/// The file names that an argument matches, or the argument itself.
fn expand(argument: &Argument) -> Vec<OsString> {
    let pattern = match argument {
        Argument::Literal(text) => return vec![text.into()],
        Argument::Pattern(pattern) => pattern,
    };
    let names: Vec<OsString> = glob::glob_with(pattern, MATCH)
        .map(|paths| paths.flatten().take(MATCHES_MAX).map(Into::into).collect())
        .unwrap_or_default();
    if names.is_empty() {
        vec![pattern.into()]
    } else {
        names
    }
}
