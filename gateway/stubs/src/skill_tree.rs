//! The files of `/skills`: each skill as it is, and what makes them a package.

use std::fmt::Write as _;

use serde_json::json;

use super::tree::StubFile;

/// A package that reads a skill when it is asked for.
const PACKAGE: &str = "\"\"\"The skills of this session. _meta.json tells which.\"\"\"\n\n\
import os as _os\n\n\n\
def __getattr__(name):\n    \
    if name.startswith(\"_\") or name not in __dir__():\n        \
        raise AttributeError(f\"no skill {name!r} is mounted in this session\")\n    \
    __import__(f\"{__name__}.{name}\")\n    \
    return globals()[name]\n\n\n\
def __dir__():\n    \
    files = _os.listdir(__path__[0])\n    \
    return sorted(file[:-3] for file in files if file.endswith(\".py\") and not file.startswith(\"_\"))\n";

/// Names that are the package's own. No skill's begins with an underscore.
const OWN: [&str; 3] = ["__init__.py", "_meta.json", "_mod.ts"];

/// Whether a skill may have a file of this name beside the package's own.
pub fn is_own_name(name: &str) -> bool {
    OWN.contains(&name)
}

/// The files of `/skills`, from the names and texts of the skills' own, sorted.
///
/// # Errors
/// As [`super::tools`].
pub fn skills(skills: &[(&str, &str)]) -> Result<Vec<StubFile>, serde_json::Error> {
    let mut module = String::from("// The skills of this session.\n");
    let mut listed = Vec::new();
    for (file, _) in skills {
        let (name, language) = match file.rsplit_once('.') {
            Some((name, "py")) => (name, "python"),
            Some((name, "ts")) => (name, "typescript"),
            _ => continue,
        };
        listed.push(json!({"name": name, "file": file, "language": language}));
        if language == "typescript" && is_identifier(name) {
            let _ = writeln!(module, "export * as {name} from \"./{file}\";");
        }
    }
    if module.lines().count() == 1 {
        module.push_str("export {};\n");
    }
    let meta = json!({"skill_count": listed.len(), "skills": listed});
    let [package, meta_file, module_file] = OWN;
    let mut files = vec![
        StubFile::new(package, PACKAGE),
        StubFile::json(meta_file, &meta)?,
        StubFile::new(module_file, module),
    ];
    files.extend(
        skills
            .iter()
            .map(|(name, source)| StubFile::new(*name, *source)),
    );
    Ok(files)
}

fn is_identifier(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(known)
        && !super::names::is_typescript_word(name)
}
