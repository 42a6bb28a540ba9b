//! The interpreters and tools of this machine. Searched once, by the probe.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Access, access};

use crate::options::Options;

/// The tools that a pipeline may name.
pub const TOOLS: [&str; 11] = [
    "ls", "cat", "grep", "rg", "jq", "head", "tail", "wc", "find", "sort", "uniq",
];

/// One interpreter or tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Runtime {
    /// It is installed.
    Present {
        /// The file, an absolute path.
        path: PathBuf,
        /// The version that it reports; empty for tools, whose version is not needed.
        version: String,
    },
    /// It is not.
    Missing {
        /// One sentence: how to get it.
        remedy: String,
    },
}

impl Runtime {
    /// Its path, if it is installed.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Present { path, .. } => Some(path),
            Self::Missing { .. } => None,
        }
    }
}

/// The interpreters and tools of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runtimes {
    /// For Python programs.
    pub python: Runtime,
    /// The directories of its standard library: all that a Python program sees of the system besides the interpreter.
    pub(crate) python_library: Vec<PathBuf>,
    /// For TypeScript and JavaScript programs.
    pub deno: Runtime,
    /// For pipelines: every name of [`TOOLS`], in that order.
    pub tools: Vec<(&'static str, Runtime)>,
    /// Which authorities are to be trusted, for programs that reach the network.
    pub(crate) certificates: Option<PathBuf>,
}

/// Where distributions keep the certificates of public authorities, as one file.
const CERTIFICATES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

impl Runtimes {
    /// Searches for all of them.
    pub(crate) fn find(options: &Options) -> Self {
        let tools = TOOLS
            .iter()
            .map(|name| (*name, find_tool(name, &options.tool_directories)))
            .collect();
        let (python, python_library) = find_python(&options.python);
        Self {
            python,
            python_library,
            deno: find_deno(options),
            tools,
            certificates: CERTIFICATES
                .iter()
                .find_map(|path| Path::new(path).canonicalize().ok()),
        }
    }

    /// The tool called `name`; `None` if pipelines may not use it.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<&Runtime> {
        let (_, tool) = self.tools.iter().find(|(known, _)| *known == name)?;
        Some(tool)
    }
}

/// Prints an interpreter's version, its own path and the directories of its library.
const PYTHON_QUESTION: &str = "import sys\nprint(sys.version.split()[0], *sys.path, sep='\\n')";

fn find_python(path: &Path) -> (Runtime, Vec<PathBuf>) {
    let answer = present(path).and_then(|file| {
        let text = answer(Command::new(path).args(["-I", "-S", "-c", PYTHON_QUESTION]))?;
        Some((file, text))
    });
    let Some((path, text)) = answer else {
        let remedy = format!(
            "there is no python3 that runs at {}: install python3 (Debian: apt-get install python3), or name another",
            path.display()
        );
        return (Runtime::Missing { remedy }, Vec::new());
    };
    let mut lines = text.lines();
    let version = lines.next().unwrap_or_default().to_owned();
    (
        Runtime::Present { path, version },
        outermost(lines.filter_map(|line| Path::new(line).canonicalize().ok())),
    )
}

/// Those directories that are in none of the others.
fn outermost(directories: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for directory in directories {
        if !found.iter().any(|outer| directory.starts_with(outer)) {
            found.retain(|inner| !inner.starts_with(&directory));
            found.push(directory);
        }
    }
    found
}

fn find_deno(options: &Options) -> Runtime {
    let path = match &options.deno {
        Some(path) => present(path).ok_or(path.as_path()),
        None => find_in("deno", &options.tool_directories).ok_or(Path::new("/usr/bin/deno")),
    };
    let found =
        path.and_then(|path| Ok((deno_version(&path).ok_or(Path::new("/usr/bin/deno"))?, path)));
    match found {
        Ok((version, path)) => Runtime::Present { path, version },
        Err(path) => Runtime::Missing {
            remedy: format!(
                "there is no deno that runs at {}: install deno 2 (pip install deno, or deno.com), or name its binary",
                path.display()
            ),
        },
    }
}

/// "deno 2.9.8 (stable, release, x86_64-unknown-linux-gnu)" gives "2.9.8".
fn deno_version(path: &Path) -> Option<String> {
    let text = answer(Command::new(path).arg("--version"))?;
    text.split_whitespace().nth(1).map(str::to_owned)
}

fn find_tool(name: &'static str, directories: &[PathBuf]) -> Runtime {
    match find_in(name, directories) {
        Some(path) => Runtime::Present {
            path,
            version: String::new(),
        },
        None => Runtime::Missing {
            remedy: format!(
                "{name} is in none of the directories of the tools: install the package {}",
                package(name)
            ),
        },
    }
}

/// The package of Debian and most other distributions with a tool.
fn package(tool: &str) -> &str {
    match tool {
        "grep" => "grep",
        "rg" => "ripgrep",
        "jq" => "jq",
        "find" => "findutils",
        _ => "coreutils",
    }
}

fn find_in(name: &str, directories: &[PathBuf]) -> Option<PathBuf> {
    directories
        .iter()
        .find_map(|directory| present(&directory.join(name)))
}

/// The resolved path of an executable file.
fn present(path: &Path) -> Option<PathBuf> {
    let file = path.canonicalize().ok()?;
    let is_executable = file.is_file() && access(&file, Access::EXEC_OK).is_ok();
    is_executable.then_some(file)
}

/// The command's output if it exits with success. It gets no variables of this process's environment.
fn answer(command: &mut Command) -> Option<String> {
    let output = command
        .env_clear()
        .env("DENO_NO_UPDATE_CHECK", "1")
        .current_dir("/")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    String::from_utf8(output.stdout).ok()
}

#[cfg(test)]
#[path = "runtimes_tests.rs"]
mod tests;
