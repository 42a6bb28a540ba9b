//! Which runtime is meant where code names no language, and where the runtimes are found.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::Language;
use crate::paths::{ABSOLUTE_FILE, PATH_BYTES_MAX, absolute_file};
use crate::rows::settings;
use crate::setting::{Word, Words};
use crate::source::Environment;
use crate::value::Value;

impl Words for Language {
    const DEFAULT: Word<Self> = ("python", Self::Python, "python3");
    const OTHERS: &'static [Word<Self>] = &[(
        "deno",
        Self::TypeScript,
        "deno, for TypeScript and JavaScript",
    )];
}

settings! {
    /// Where the runtimes are found.
    #[derive(Eq)]
    pub struct RuntimeSettings {
        /// Whether code without a language runs as Python, in the same sandbox, on a server whose runtime is deno while
        /// deno is not installed. Otherwise such a run is refused.
        pub on_deno_absent: OnDenoAbsent = Switch("code.python_fallback_enabled", true)
            .contextforge_name("CODE_EXECUTION_PYTHON_INPROCESS_FALLBACK_ENABLED")
            => |reader, row| match reader.read(row) {
                true => OnDenoAbsent::RunPython,
                false => OnDenoAbsent::Refuse,
            },
        /// The Python interpreter that runs code. It and its library must be where the sandbox shows them: below /usr.
        pub python: PathBuf = Text("code.python_path", PATH_BYTES_MAX, ABSOLUTE_FILE, Some("/usr/bin/python3"))
            => |reader, row| reader.text(row, absolute_file).unwrap_or_default(),
        /// The deno that runs TypeScript and JavaScript.
        pub deno: Option<PathBuf> = Text("code.deno_path", PATH_BYTES_MAX, ABSOLUTE_FILE, None)
            .unset("the first `deno` in PATH; without one, TypeScript is refused with a message that says so")
            => |reader, row| {
                let written = reader.text(row, absolute_file);
                written.or_else(|| find_in_path("deno", reader.environment))
            },
    }
}

/// What happens to code without a language on a server whose runtime is `deno` while deno is not installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDenoAbsent {
    /// It runs as Python, in the same sandbox.
    RunPython,
    /// It is refused with the name of what is missing.
    Refuse,
}

/// The first file of this name in the directories of `PATH`. Relative directories are skipped, because they depend on
/// the gateway's working directory.
fn find_in_path(name: &str, environment: &Environment) -> Option<PathBuf> {
    let Some(Value::Word(directories)) = environment.get("PATH") else {
        return None;
    };
    std::env::split_paths(&OsString::from(directories))
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
}
