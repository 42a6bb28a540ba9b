//! Checks whether a program can be started, without starting it.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::command::{ChildSpec, Environment};
use super::protocol::StartFailure;

/// The kernel's default if the child has no `PATH`.
const PATH_STANDARD: &str = "/bin:/usr/bin";

impl ChildSpec {
    /// Looks up the program as the child's supervisor will.
    ///
    /// # Errors
    /// Starting it would fail.
    pub fn find_program(&self) -> Result<(), StartFailure> {
        if let Some(directory) = self.directory.as_ref().filter(|path| !path.is_dir()) {
            return Err(StartFailure::DirectoryMissing {
                directory: directory.clone(),
                reason: "it is no directory that can be entered".to_owned(),
            });
        }
        self.environment.find_program(&self.program)
    }
}

impl Environment {
    /// Looks up a program in the `PATH` of a child with these variables.
    ///
    /// # Errors
    /// Starting it would fail.
    pub fn find_program(&self, program: &str) -> Result<(), StartFailure> {
        let variables = self.resolve(|name| std::env::var_os(name));
        let path = variables.iter().rev().find(|(name, _)| name == "PATH");
        find_program(program, path.map_or(PATH_STANDARD, |(_, path)| path))
    }
}

/// Looks up a program: a path, or a name in the directories of `path`.
///
/// # Errors
/// [`StartFailure::NotFound`] or [`StartFailure::NotExecutable`].
fn find_program(program: &str, path: &str) -> Result<(), StartFailure> {
    let candidates: Vec<PathBuf> = match program.contains('/') {
        true => vec![PathBuf::from(program)],
        false => std::env::split_paths(path)
            .map(|directory| directory.join(program))
            .collect(),
    };
    let mut files = candidates.iter().filter(|path| path.is_file()).peekable();
    let is_there = files.peek().is_some();
    if files.any(|path| is_executable(path)) {
        return Ok(());
    }
    let program = program.to_owned();
    Err(match is_there {
        true => StartFailure::NotExecutable { program },
        false => StartFailure::NotFound { program },
    })
}

fn is_executable(path: &Path) -> bool {
    access(path, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_as_the_kernel_finds_it() {
        assert_eq!(find_program("sh", "/nowhere:/bin:/usr/bin"), Ok(()));
        assert_eq!(find_program("/bin/sh", ""), Ok(()));
        for (program, path) in [
            ("sh", "/nowhere"),
            ("/nowhere/sh", "/bin"),
            ("no-such", "/bin"),
        ] {
            let missing = find_program(program, path);
            assert!(
                matches!(missing, Err(StartFailure::NotFound { .. })),
                "{missing:?}"
            );
        }
        let passwords = find_program("/etc/passwd", "");
        assert!(
            matches!(passwords, Err(StartFailure::NotExecutable { .. })),
            "{passwords:?}"
        );
    }
}
