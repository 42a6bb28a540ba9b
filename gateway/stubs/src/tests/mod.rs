//! The stubs: what they are made of, and that the languages take them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test panics when the system under test does not behave"
)]

mod bridge;
mod calls;
mod corpus;
mod failures;
mod hostile;
mod kinds;
mod naming;
mod ranking;
mod types;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use mooring_settings::Language;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

/// A moment.
const NOW: &str = "2026-02-01T12:34:56.789Z";

/// A tool of the server `github`.
fn tool(name: &str, input: Value, output: Option<Value>) -> MountedTool {
    MountedTool {
        id: format!("github__{name}"),
        name: name.to_owned(),
        original_name: name.to_owned(),
        server: "github".to_owned(),
        description: format!("Does {name}."),
        input_schema: input,
        output_schema: output,
        ..MountedTool::default()
    }
}

/// The files of a tree.
fn made(tools: &[MountedTool], format: StubFormat) -> Vec<StubFile> {
    let tree = ToolTree {
        server: "sandbox",
        language: match format {
            StubFormat::TypeScript => Language::TypeScript,
            _ => Language::Python,
        },
        format,
        tools,
        generated_at: NOW,
    };
    super::tools(&tree).unwrap()
}

/// The text of one file.
fn text_of<'a>(files: &'a [StubFile], path: &str) -> &'a str {
    let file = files.iter().find(|file| file.path == path);
    &file.unwrap_or_else(|| panic!("no {path}")).text
}

/// A directory with `tools` and `skills` in it, as a session has them.
struct Trees {
    directory: TempDir,
}

impl Trees {
    fn new(tools: &[MountedTool], format: StubFormat) -> Self {
        let trees = Self {
            directory: TempDir::with_prefix("mooring-stubs-").unwrap(),
        };
        trees.write("tools", &made(tools, format));
        let skills = [
            (
                "greet.py",
                "def greet(name: str) -> str:\n    return f\"hello {name}\"\n",
            ),
            (
                "greet.ts",
                "export function greet(name: string) {\n  return `hello ${name}`;\n}\n",
            ),
        ];
        trees.write("skills", &super::skills(&skills).unwrap());
        trees
    }

    fn write(&self, tree: &str, files: &[StubFile]) {
        for file in files {
            let path = self.path().join(tree).join(&file.path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, &file.text).unwrap();
        }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A program beside the trees.
    fn program(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

/// What `make tools` installs.
fn installed(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../.tools/bin")
        .join(name);
    assert!(
        path.exists(),
        "{} is missing: run make tools",
        path.display()
    );
    path
}

fn words(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes))
        .concat()
}

/// A command that sees nothing of this process's environment but a home of its own.
fn clean(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", home)
        .env("DENO_DIR", home.join(".deno"))
        .env("DENO_NO_UPDATE_CHECK", "1")
        .env("NO_COLOR", "1")
        .current_dir(home);
    command
}
