//! The files of `/tools`: what is mounted, as functions that code imports.
//!
//! ```text
//! _catalog.json _schema.json     all tools, for programs
//! _runtime.py _runtime.ts        the client of the bridge
//! _import_map.json               where deno finds `tools` and `skills`
//! __init__.py __init__.pyi mod.ts    the package itself
//! <server>/_meta.json            a server
//! <server>/<tool>.py|.ts|.json   a tool
//! .search_index                  a line for each tool
//! ```
//!
//! Everything here is a pure function of what is mounted: no I/O and no clock. `names` makes identifiers, `schema` reads
//! schemas as `kind`s, `python` and `typescript` write them; [`search`] finds tools by words.
//!
//! Invariant: names, descriptions and schemas are untrusted, and none of their bytes becomes code.

mod catalog;
mod circle;
mod describe;
mod function;
mod kind;
mod limits;
mod literals;
mod meet;
mod names;
mod packages;
mod python;
mod python_types;
mod schema;
pub mod search;
mod skill_tree;
mod text;
mod tool;
mod tree;
mod typescript;
mod typescript_types;

pub use catalog::format_word;
pub use names::is_python_keyword;
pub use skill_tree::{is_own_name, skills};
pub use tool::MountedTool;
pub use tree::{SCHEMA_VERSION, StubFile, ToolTree};

use self::function::Package;
use self::kind::{ToolSchemas, TypeSchema};
use mooring_settings::StubFormat;

/// The module that Python code imports.
pub const RUNTIME_PYTHON: &str = include_str!("runtime.py");
/// The module that TypeScript code imports.
pub const RUNTIME_TYPESCRIPT: &str = include_str!("runtime.ts");
/// The version of everything that is written here. A change of it increments this, so that no session keeps files of the
/// old form.
pub const FORM: u32 = 1;

/// The files of `/tools`.
///
/// # Errors
/// A description could not be written as JSON. It cannot happen, and is no reason to panic.
pub fn tools(tree: &ToolTree<'_>) -> Result<Vec<StubFile>, serde_json::Error> {
    let packages = function::packages(tree.tools);
    let mut files = vec![
        catalog::catalog(tree, &packages)?,
        catalog::schema(tree)?,
        catalog::search_index(&packages, tree.format),
        StubFile::new("_runtime.py", RUNTIME_PYTHON),
        StubFile::new("_runtime.ts", RUNTIME_TYPESCRIPT),
    ];
    files.extend(packages::root(&packages, tree.format)?);
    for package in &packages {
        files.push(catalog::meta(package, tree)?);
        match tree.format {
            StubFormat::Python => python_files(package, &mut files),
            StubFormat::TypeScript => typescript_files(package, &mut files),
            StubFormat::Json => {
                for function in &package.tools {
                    files.push(catalog::description(package, function)?);
                }
            }
        }
    }
    Ok(files)
}

fn python_files(package: &Package<'_>, files: &mut Vec<StubFile>) {
    files.extend(packages::python(package));
    for function in &package.tools {
        let sides = sides(function.tool);
        let stub = short_enough(&sides, |sides| {
            python::stub(function.tool, &function.name, sides)
        });
        files.push(StubFile::new(
            format!("{}/{}.py", package.name, function.name),
            stub,
        ));
    }
}

fn typescript_files(package: &Package<'_>, files: &mut Vec<StubFile>) {
    let mut module = packages::typescript_head();
    for function in &package.tools {
        let sides = sides(function.tool);
        let stub = short_enough(&sides, |sides| {
            typescript::stub(function.tool, &function.name, sides)
        });
        module.push_str(&typescript::brief(function.tool, &function.name, &sides));
        files.push(StubFile::new(
            format!("{}/{}.ts", package.name, function.name),
            stub,
        ));
    }
    files.push(StubFile::new(format!("{}/mod.ts", package.name), module));
}

fn sides(tool: &MountedTool) -> ToolSchemas {
    let output = tool.output_schema.as_ref();
    ToolSchemas {
        input: schema::read(&tool.input_schema),
        output: output.map_or_else(TypeSchema::any, schema::read),
    }
}

/// The stub, or the one without types where it would be too long.
fn short_enough(sides: &ToolSchemas, stub: impl Fn(&ToolSchemas) -> String) -> String {
    let whole = stub(sides);
    if whole.len() <= limits::STUB_BYTES_MAX {
        whole
    } else {
        stub(&ToolSchemas::any())
    }
}

#[cfg(test)]
mod tests;
