//! Kinds as types of Python.
//!
//! Only type checkers read them: at run time a type is `dict` or `object`, and nothing is imported for it. An array with
//! kinds for its places is a list, because JSON has no tuples.

use std::fmt::Write as _;

use super::kind::{Field, Kind, Literal, Object, TypeSchema};
use super::limits;
use super::names::{TypeNames, is_python_keyword};
use super::text::{self, python_string};

/// Types whose names a field of a class would hide from the fields after it.
const TYPES: &[&str] = &["bool", "dict", "float", "int", "list", "object", "str"];

/// Where a type is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TypePosition {
    /// Behind the colon of a field or parameter, or the arrow: it is never computed.
    Annotation,
    /// In an expression: names that come later are quoted.
    Expression,
}

/// The types of one stub.
#[derive(Debug)]
pub(super) struct Types {
    names: TypeNames,
    /// Each a definition, indented, with a line end behind it.
    pub(super) definitions: Vec<String>,
    /// Those that are dictionaries.
    pub(super) dictionaries: Vec<String>,
    /// Those that are other names for something.
    pub(super) aliases: Vec<String>,
}

/// The names in the stub of the named kinds of a tool's input or output.
#[derive(Debug)]
pub(super) struct PythonTypeNames {
    names: Vec<String>,
}

impl Types {
    pub(super) fn new(tool: &str) -> Self {
        Self {
            names: TypeNames::new(tool),
            definitions: Vec::new(),
            dictionaries: Vec::new(),
            aliases: Vec::new(),
        }
    }

    /// Defines what the schema has names for.
    pub(super) fn side(&mut self, shape: &TypeSchema) -> PythonTypeNames {
        let names = shape.named.iter();
        let side = PythonTypeNames {
            names: names.map(|named| self.names.take(&named.name)).collect(),
        };
        for (named, name) in shape.named.iter().zip(&side.names) {
            self.define(name, &named.kind, &side);
        }
        side
    }

    /// Defines a type of this name, which is the stub's own or free.
    pub(super) fn define(&mut self, name: &str, kind: &Kind, side: &PythonTypeNames) {
        if let Kind::Object(object) = kind {
            self.dictionary(name, object, side);
            return;
        }
        let written = self.write(kind, name, side, TypePosition::Expression);
        self.definitions
            .push(format!("    {name}: _t.TypeAlias = {written}\n"));
        self.aliases.push(name.to_owned());
    }

    /// Writes a type. What has no name and needs one is called like `hint`.
    pub(super) fn write(
        &mut self,
        kind: &Kind,
        hint: &str,
        side: &PythonTypeNames,
        place: TypePosition,
    ) -> String {
        match kind {
            Kind::Any => "_t.Any".to_owned(),
            Kind::Null => "None".to_owned(),
            Kind::Boolean => "bool".to_owned(),
            Kind::Integer => "int".to_owned(),
            Kind::Number => "float".to_owned(),
            Kind::Text => "str".to_owned(),
            Kind::Literals(values) => literals(values),
            Kind::List(item) => {
                let item = self.write(item, &format!("{hint} item"), side, place);
                format!("list[{item}]")
            }
            Kind::Tuple(tuple) => {
                let rest = tuple.rest.as_deref().cloned();
                let item = Kind::union(tuple.places.iter().cloned().chain(rest));
                let item = self.write(&item, &format!("{hint} item"), side, place);
                format!("list[{item}]")
            }
            Kind::Map(value) => {
                let value = self.write(value, &format!("{hint} value"), side, place);
                format!("dict[str, {value}]")
            }
            Kind::Object(object) => {
                let name = self.names.take(hint);
                self.dictionary(&name, object, side);
                quoted(&name, place)
            }
            Kind::Union(kinds) => {
                let written: Vec<String> = kinds
                    .iter()
                    .map(|kind| self.write(kind, hint, side, place))
                    .collect();
                match place {
                    TypePosition::Annotation => written.join(" | "),
                    TypePosition::Expression => format!("_t.Union[{}]", written.join(", ")),
                }
            }
            Kind::Named(number) => match side.names.get(*number) {
                Some(name) => quoted(name, place),
                None => "_t.Any".to_owned(),
            },
        }
    }

    fn dictionary(&mut self, name: &str, object: &Object, side: &PythonTypeNames) {
        self.dictionaries.push(name.to_owned());
        let is_class = object.fields.iter().all(|field| is_attribute(&field.name));
        let place = if is_class {
            TypePosition::Annotation
        } else {
            TypePosition::Expression
        };
        let mut fields = String::new();
        for field in &object.fields {
            let hint = format!("{name} {}", field.name);
            let kind = self.write(&field.kind, &hint, side, place);
            let kind = if field.is_required {
                kind
            } else {
                format!("_t.NotRequired[{kind}]")
            };
            write_comment(&mut fields, field);
            let _ = if is_class {
                writeln!(fields, "        {}: {kind}", field.name)
            } else {
                writeln!(fields, "        {}: {kind},", python_string(&field.name))
            };
        }
        self.definitions.push(if is_class {
            format!("    class {name}(_t.TypedDict):\n{fields}")
        } else {
            format!("    {name} = _t.TypedDict(\"{name}\", {{\n{fields}    }})\n")
        });
    }
}

/// `#:` is how attributes are documented, and never is what type checkers read their settings from.
fn write_comment(fields: &mut String, field: &Field) {
    let words = text::line(&field.description, limits::FIELD_DESCRIPTION_CHARS_MAX);
    if !words.is_empty() {
        let _ = writeln!(fields, "        #: {words}");
    }
}

fn quoted(name: &str, place: TypePosition) -> String {
    match place {
        TypePosition::Annotation => name.to_owned(),
        TypePosition::Expression => format!("\"{name}\""),
    }
}

fn literals(values: &[Literal]) -> String {
    let values: Vec<String> = values
        .iter()
        .map(|value| match value {
            Literal::Boolean(true) => "True".to_owned(),
            Literal::Boolean(false) => "False".to_owned(),
            Literal::Integer(number) => number.to_string(),
            Literal::Text(text) => python_string(text),
        })
        .collect();
    format!("_t.Literal[{}]", values.join(", "))
}

/// Whether a field of a class may be called so: its type and those after it then still mean what they say.
fn is_attribute(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !is_python_keyword(name)
        && !TYPES.contains(&name)
}
