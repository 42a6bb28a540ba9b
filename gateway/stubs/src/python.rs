//! The stub of a tool in Python: a function of keywords, and another that is awaited.
//!
//! A stub is short, because agents read it: the function returns what it was given, and the decorator makes the call.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::describe;
use super::kind::{Field, Kind, Object, ToolSchemas};
use super::names::{self, Role};
use super::python_types::{PythonTypeNames, TypePosition, Types};
use super::text::{docstring, python_string};
use super::tool::MountedTool;

/// Longest line of parameters or arguments that is not broken, in characters.
const LINE_CHARS_MAX: usize = 100;

/// One parameter.
struct Parameter<'a> {
    /// Its name in Python.
    name: &'a str,
    field: &'a Field,
}

/// The stub of a tool, whose function has this name.
pub(super) fn stub(tool: &MountedTool, function: &str, sides: &ToolSchemas) -> String {
    let mut types = Types::new(function);
    let input = types.side(&sides.input);
    let output = types.side(&sides.output);
    let result = match sides.output.resolve(&sides.output.root) {
        // A function that returns None and nothing else may not return what it was given.
        Kind::Null => &Kind::Any,
        _ => &sides.output.root,
    };
    types.define("Result", result, &output);
    let root = match sides.input.resolve(&sides.input.root) {
        Kind::Object(object) => object.clone(),
        _ => Object {
            fields: Vec::new(),
            rest: Some(Box::new(Kind::Any)),
        },
    };
    let identifiers = names::identifiers(
        root.fields.iter().map(|field| field.name.as_str()),
        Role::Parameter,
    );
    let parameters = parameters(&root, &identifiers);
    let others = others(&identifiers);
    let signature = signature(&parameters, &root, &others, &mut types, &input);
    let words = describe::tool(
        tool,
        parameters
            .iter()
            .map(|parameter| (parameter.name, parameter.field)),
    );
    let mut stub = head(&types);
    let _ = write!(
        stub,
        "\n\n@_tool({}, {})\ndef {function}({signature}) -> Result:\n",
        python_string(&tool.server),
        python_string(&tool.original_name)
    );
    if !words.is_empty() {
        stub.push_str(&docstring(&words, "    "));
    }
    let given = given(&parameters, root.rest.is_some().then_some(others.as_str()));
    let _ = write!(
        stub,
        "    return _given({given})\n\n\n{function}{} = _asynchronous({function})\n",
        names::ASYNC_SUFFIX
    );
    stub
}

/// The required ones first.
fn parameters<'a>(
    root: &'a Object,
    identifiers: &'a BTreeMap<&'a str, String>,
) -> Vec<Parameter<'a>> {
    let mut parameters: Vec<Parameter<'a>> = root
        .fields
        .iter()
        .filter_map(|field| {
            let name = identifiers.get(field.name.as_str())?;
            Some(Parameter { name, field })
        })
        .collect();
    parameters.sort_by_key(|parameter| !parameter.field.is_required);
    parameters
}

/// The name of the parameter that takes all other arguments.
fn others(identifiers: &BTreeMap<&str, String>) -> String {
    let mut name = "others".to_owned();
    while identifiers.values().any(|known| *known == name) {
        name.push('_');
    }
    name
}

/// The lines above the function. The first ones have nothing of the tool's own, because Python looks there for the
/// encoding of a file.
fn head(types: &Types) -> String {
    let mut head = "# Made from the schemas of a tool.\nfrom __future__ import annotations\n\n\
                    from .._runtime import UNSET as _UNSET, asynchronous as _asynchronous, given as _given, tool as _tool\n\n\
                    TYPE_CHECKING = False\nif TYPE_CHECKING:\n    import typing as _t\n"
        .to_owned();
    for definition in &types.definitions {
        head.push('\n');
        head.push_str(definition);
    }
    head.push_str("else:\n");
    for (names, stands_for) in [(&types.dictionaries, "dict"), (&types.aliases, "object")] {
        if !names.is_empty() {
            let _ = writeln!(head, "    {} = {stands_for}", names.join(" = "));
        }
    }
    head
}

fn signature(
    parameters: &[Parameter<'_>],
    root: &Object,
    others: &str,
    types: &mut Types,
    input: &PythonTypeNames,
) -> String {
    let mut written: Vec<String> = parameters
        .iter()
        .map(|parameter| {
            let kind = &parameter.field.kind;
            let kind = types.write(kind, parameter.name, input, TypePosition::Annotation);
            let default = if parameter.field.is_required {
                ""
            } else {
                " = _UNSET"
            };
            format!("{}: {kind}{default}", parameter.name)
        })
        .collect();
    if !written.is_empty() {
        written.insert(0, "*".to_owned());
    }
    if let Some(rest) = &root.rest {
        let kind = types.write(rest, "others", input, TypePosition::Annotation);
        written.push(format!("**{others}: {kind}"));
    }
    broken(&written, "    ")
}

/// The dictionary of arguments, under the tool's own names.
fn given(parameters: &[Parameter<'_>], others: Option<&str>) -> String {
    let pairs: Vec<String> = parameters
        .iter()
        .map(|parameter| {
            format!(
                "{}: {}",
                python_string(&parameter.field.name),
                parameter.name
            )
        })
        .collect();
    let mut given = format!("{{{}}}", broken(&pairs, "        "));
    if given.contains('\n') {
        given = given.replace("\n}", "\n    }");
    }
    if let Some(others) = others {
        let _ = write!(given, ", {others}");
    }
    given
}

/// Parts between commas, on one line or on one line each.
fn broken(parts: &[String], indent: &str) -> String {
    let line = parts.join(", ");
    if line.chars().count() <= LINE_CHARS_MAX {
        return line;
    }
    let mut lines = String::from("\n");
    for part in parts {
        let _ = writeln!(lines, "{indent}{part},");
    }
    lines
}
