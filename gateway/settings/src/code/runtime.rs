//! Which runtime is meant where code names no language, and where the runtimes are found.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::Language;
use crate::paths::absolute_file;
use crate::reader::Reader;
use crate::setting::{Choice, ChoiceOption, Disclosure, Setting, SettingInfo, Switch, Text};
use crate::source::Environment;
use crate::value::Value;

pub(super) const DEFAULT: Choice<Language> = runtime(
    SettingInfo::new(
        "code.default_runtime",
        "What runs code that names no language, and whose session the file tools use.",
    )
    .seed("CODE_EXECUTION_DEFAULT_RUNTIME"),
);

pub(super) const OWN: Choice<Language> = runtime(
    SettingInfo::new(
        "servers.sandbox_policy.runtime",
        "What runs code that names no language, and whose session the file tools use.",
    )
    .aliases(&["sandbox_policy.limits.runtime"])
    .unset("as `code.default_runtime` says"),
);

const fn runtime(about: SettingInfo) -> Choice<Language> {
    Choice {
        about,
        default: ChoiceOption {
            name: "python",
            value: Language::Python,
            meaning: "python3",
        },
        others: &[ChoiceOption {
            name: "deno",
            value: Language::TypeScript,
            meaning: "deno, for TypeScript and JavaScript",
        }],
        later: &[],
    }
}

const FALLBACK_ENABLED: Switch = Switch {
    about: SettingInfo::new(
        "code.python_fallback_enabled",
        "Whether code without a language runs as Python, in the same sandbox, on a server whose runtime is deno while \
         deno is not installed. Otherwise such a run is refused.",
    )
    .seed("CODE_EXECUTION_PYTHON_INPROCESS_FALLBACK_ENABLED"),
    default: true,
};

const PYTHON_PATH: Text = Text {
    about: SettingInfo::new(
        "code.python_path",
        "The Python interpreter that runs code. It and its library must be where the sandbox shows them: below /usr.",
    ),
    default: Some("/usr/bin/python3"),
    shape: "an absolute path of a file",
    bytes_max: 4096,
    disclosure: Disclosure::Open,
};

const DENO_PATH: Text = Text {
    about: SettingInfo::new(
        "code.deno_path",
        "The deno that runs TypeScript and JavaScript.",
    )
    .unset(
        "the first `deno` in PATH; without one, TypeScript is refused with a message that says so",
    ),
    default: None,
    shape: "an absolute path of a file",
    bytes_max: 4096,
    disclosure: Disclosure::Open,
};

/// The rows of `[code]` about runtimes.
pub(super) const SETTINGS: &[Setting] = &[
    Setting::Choice(&DEFAULT),
    Setting::Switch(&FALLBACK_ENABLED),
    Setting::Text(&PYTHON_PATH),
    Setting::Text(&DENO_PATH),
];

/// What becomes of code without a language on a server whose runtime is an absent `deno`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDenoAbsent {
    /// It runs as Python, in the same sandbox.
    RunPython,
    /// It is refused with the name of what is missing.
    Refuse,
}

/// Where the runtimes are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeSettings {
    /// The Python interpreter; whether it is there is for the sandbox to find out.
    pub python: PathBuf,
    /// The deno that was named, else the first one in PATH; none where there is none.
    pub deno: Option<PathBuf>,
    /// What becomes of code without a language where deno is meant and absent.
    pub on_deno_absent: OnDenoAbsent,
}

pub(super) fn parse(reader: &mut Reader<'_>, environment: &Environment) -> RuntimeSettings {
    let python = reader.text(&PYTHON_PATH, absolute_file);
    let deno = reader.text(&DENO_PATH, absolute_file);
    let on_deno_absent = if reader.switch(&FALLBACK_ENABLED) {
        OnDenoAbsent::RunPython
    } else {
        OnDenoAbsent::Refuse
    };
    RuntimeSettings {
        python: python.unwrap_or_default(),
        deno: deno.or_else(|| find_in_path("deno", environment)),
        on_deno_absent,
    }
}

/// The first file of this name in the directories of `PATH`. Relative directories are passed over: what they name
/// depends on where the gateway was started.
fn find_in_path(name: &str, environment: &Environment) -> Option<PathBuf> {
    let Some(Value::Word(directories)) = environment.get("PATH") else {
        return None;
    };
    std::env::split_paths(&OsString::from(directories))
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|path| is_file(path))
}

fn is_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
}
