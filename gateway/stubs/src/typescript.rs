//! The stub of a tool in TypeScript: a function of one object.

use std::fmt::Write as _;

use super::describe;
use super::kind::{Kind, ToolSchemas, TypeSchema};
use super::names::TypeNames;
use super::text::{jsdoc, typescript_string};
use super::tool::MountedTool;
use super::typescript_types::{Direction, TypeScriptWriter};

/// The stub of a tool, whose function has this name. Nothing of the tool's own is above the import, where compilers
/// look for settings.
pub(super) fn stub(tool: &MountedTool, function: &str, sides: &ToolSchemas) -> String {
    let mut names = TypeNames::new(function);
    let input = TypeScriptWriter::new(&sides.input, &mut names, Direction::Given);
    let output = TypeScriptWriter::new(&sides.output, &mut names, Direction::Returned);
    let mut stub =
        "// Made from the schemas of a tool.\nimport { call as _call } from \"../_runtime.ts\";\n"
            .to_owned();
    input.define(&mut stub);
    output.define(&mut stub);
    let _ = writeln!(
        stub,
        "\nexport type Args = {};",
        input.write(&arguments(&sides.input), "")
    );
    let _ = writeln!(
        stub,
        "\nexport type Result = {};\n",
        output.write(&sides.output.root, "")
    );
    let words = describe::tool(tool, std::iter::empty());
    if !words.is_empty() {
        stub.push_str(&jsdoc(&words, ""));
    }
    let _ = write!(
        stub,
        "export async function {function}(args: Args{}): Promise<Result> {{\n  return await _call({}, {}, args);\n}}\n",
        default(&sides.input),
        typescript_string(&tool.server),
        typescript_string(&tool.original_name)
    );
    stub
}

/// The function in the file of its server, whose types are looked up in the stub, and only by type checkers.
pub(super) fn brief(tool: &MountedTool, function: &str, sides: &ToolSchemas) -> String {
    let stub = format!("import(\"./{function}.ts\")");
    let mut text = String::from("\n");
    let summary = describe::summary(tool);
    if !summary.is_empty() {
        text.push_str(&jsdoc(&summary, ""));
    }
    let _ = write!(
        text,
        "export function {function}(args: {stub}.Args{}): Promise<{stub}.Result> {{\n  return _call({}, {}, args);\n}}\n",
        default(&sides.input),
        typescript_string(&tool.server),
        typescript_string(&tool.original_name)
    );
    text
}

/// Arguments always are an object.
fn arguments(input: &TypeSchema) -> Kind {
    let is_object = |kind: &Kind| {
        let kind = input.resolve(kind);
        matches!(kind, Kind::Object(_) | Kind::Map(_))
    };
    let fits = match input.resolve(&input.root) {
        Kind::Union(kinds) => kinds.iter().all(is_object),
        kind => is_object(kind),
    };
    if fits {
        input.root.clone()
    } else {
        Kind::Map(Box::new(Kind::Any))
    }
}

/// The argument is optional if no field is required.
fn default(input: &TypeSchema) -> &'static str {
    let is_optional = match input.resolve(&input.root) {
        Kind::Object(object) => object.fields.iter().all(|field| !field.is_required),
        _ => !matches!(input.resolve(&arguments(input)), Kind::Union(_)),
    };
    if is_optional { " = {}" } else { "" }
}
