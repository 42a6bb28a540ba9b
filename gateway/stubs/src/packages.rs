//! The files that make the trees packages: of Python, and of deno.
//!
//! A package of Python knows no names: what is asked of it is looked for among its files, so that a program that uses
//! one tool of a thousand reads one stub. Type checkers read the `.pyi` beside it. A package of deno has all names in
//! one file, and no other is read for them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::json;

use super::function::Package;
use super::names::ASYNC_SUFFIX;
use super::text::typescript_string;
use super::tree::StubFile;
use mooring_settings::StubFormat;

const ROOT_PYTHON: &str = "\"\"\"The tools that are mounted in this session: tools.<server>.<tool>(...), \
or call(\"<server>\", \"<tool>\", {...}).\n\n_catalog.json describes all of them.\n\"\"\"\n\n\
from . import _runtime\nfrom ._runtime import *\n\n_runtime.make_package(__name__)\n";

const SERVER_PYTHON: &str = "\"\"\"The tools of one server. _meta.json tells which.\"\"\"\n\n\
from .. import _runtime\n\n_runtime.make_package(__name__)\n";

const ROOT_TYPESCRIPT: &str = "// The tools that are mounted in this session: tools.<server>.<tool>({...}), \
or call(\"<server>\", \"<tool>\", {...}).\n// _catalog.json describes all of them.\n\
import { server as _server } from \"./_runtime.ts\";\n\nexport * from \"./_runtime.ts\";\n";

/// The package itself. It exists in both languages whatever the stubs are written in: `call` needs none.
pub(super) fn root(
    packages: &[Package<'_>],
    format: StubFormat,
) -> Result<[StubFile; 4], serde_json::Error> {
    let mut types = String::from("from ._runtime import *\n");
    let mut module = ROOT_TYPESCRIPT.to_owned();
    for package in packages {
        match format {
            StubFormat::Python => {
                let _ = writeln!(types, "from . import {0} as {0}", package.name);
            }
            StubFormat::TypeScript => write_server(&mut module, package),
            StubFormat::Json => {}
        }
    }
    Ok([
        StubFile::new("__init__.py", ROOT_PYTHON),
        StubFile::new("__init__.pyi", types),
        StubFile::new("mod.ts", module),
        import_map(packages, format)?,
    ])
}

fn write_server(module: &mut String, package: &Package<'_>) {
    let _ = writeln!(
        module,
        "\nexport const {0}: typeof import(\"./{0}/mod.ts\") = _server({1}, [",
        package.name,
        typescript_string(package.server)
    );
    for function in &package.tools {
        let original = typescript_string(&function.tool.original_name);
        let _ = writeln!(module, "  [\"{}\", {original}],", function.name);
    }
    module.push_str("]);\n");
}

/// The import map by which deno resolves `tools` and `skills`. Paths are relative to the map.
fn import_map(packages: &[Package<'_>], format: StubFormat) -> Result<StubFile, serde_json::Error> {
    let mut imports: BTreeMap<String, String> = [
        ("tools", "./mod.ts"),
        ("tools/", "./"),
        ("skills", "../skills/_mod.ts"),
        ("skills/", "../skills/"),
    ]
    .map(|(name, path)| (name.to_owned(), path.to_owned()))
    .into();
    if format == StubFormat::TypeScript {
        for package in packages {
            let path = format!("./{}/mod.ts", package.name);
            imports.insert(format!("tools/{}", package.name), path);
        }
    }
    StubFile::json("_import_map.json", &json!({ "imports": imports }))
}

/// The package of one server.
pub(super) fn python(package: &Package<'_>) -> [StubFile; 2] {
    let mut types = String::new();
    for function in &package.tools {
        let _ = writeln!(
            types,
            "from .{0} import {0} as {0}, {0}{ASYNC_SUFFIX} as {0}{ASYNC_SUFFIX}",
            function.name
        );
    }
    let path = |file: &str| format!("{}/{file}", package.name);
    [
        StubFile::new(path("__init__.py"), SERVER_PYTHON),
        StubFile::new(path("__init__.pyi"), types),
    ]
}

/// The lines above the functions of a server.
pub(super) fn typescript_head() -> String {
    "// The tools of one server.\nimport { call as _call } from \"../_runtime.ts\";\n".to_owned()
}
