//! Kinds as types of TypeScript.

use std::fmt::Write as _;

use super::kind::{Kind, Literal, Object, Tuple, TypeSchema};
use super::limits;
use super::names::TypeNames;
use super::text::{self, jsdoc, typescript_string};

/// Which way values go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// To the tool: what may be anything is `unknown`, so that everything fits.
    Given,
    /// From the tool: what may be anything is `any`, so that it can be used.
    Returned,
}

/// Writes the TypeScript types of a tool's input or output, with the names of its named kinds in the stub.
#[derive(Debug)]
pub(super) struct TypeScriptWriter<'a> {
    shape: &'a TypeSchema,
    names: Vec<String>,
    direction: Direction,
}

impl<'a> TypeScriptWriter<'a> {
    pub(super) fn new(shape: &'a TypeSchema, names: &mut TypeNames, direction: Direction) -> Self {
        let named = shape.named.iter();
        Self {
            shape,
            names: named.map(|named| names.take(&named.name)).collect(),
            direction,
        }
    }

    /// Writes the definition of what the schema has names for.
    pub(super) fn define(&self, stub: &mut String) {
        for (named, name) in self.shape.named.iter().zip(&self.names) {
            let _ = writeln!(
                stub,
                "\nexport type {name} = {};",
                self.write(&named.kind, "")
            );
        }
    }

    /// Writes a type; the lines after its first are indented by `indent`.
    pub(super) fn write(&self, kind: &Kind, indent: &str) -> String {
        match kind {
            Kind::Any => self.anything().to_owned(),
            Kind::Null => "null".to_owned(),
            Kind::Boolean => "boolean".to_owned(),
            Kind::Integer | Kind::Number => "number".to_owned(),
            Kind::Text => "string".to_owned(),
            Kind::Literals(values) => literals(values),
            Kind::List(item) => format!("Array<{}>", self.write(item, indent)),
            Kind::Tuple(tuple) => self.tuple(tuple, indent),
            // Not a Record, which no type that refers to itself can pass through.
            Kind::Map(value) => format!("{{ [key: string]: {} }}", self.write(value, indent)),
            Kind::Object(object) => self.object(object, indent),
            Kind::Union(kinds) => {
                let written: Vec<String> =
                    kinds.iter().map(|kind| self.write(kind, indent)).collect();
                written.join(" | ")
            }
            Kind::Named(number) => match self.names.get(*number) {
                Some(name) => name.clone(),
                None => self.anything().to_owned(),
            },
        }
    }

    fn anything(&self) -> &'static str {
        match self.direction {
            Direction::Given => "unknown",
            Direction::Returned => "any",
        }
    }

    fn tuple(&self, tuple: &Tuple, indent: &str) -> String {
        let mut places: Vec<String> = Vec::new();
        for (number, place) in tuple.places.iter().enumerate() {
            let written = self.write(place, indent);
            places.push(if number < tuple.required {
                written
            } else {
                format!("({written})?")
            });
        }
        if let Some(rest) = &tuple.rest {
            places.push(format!("...Array<{}>", self.write(rest, indent)));
        }
        format!("[{}]", places.join(", "))
    }

    fn object(&self, object: &Object, indent: &str) -> String {
        let inner = format!("{indent}  ");
        let mut lines = String::from("{\n");
        for field in &object.fields {
            let words = text::paragraph(&field.description, limits::FIELD_DESCRIPTION_CHARS_MAX);
            if !words.is_empty() {
                lines.push_str(&jsdoc(&words, &inner));
            }
            let mark = if field.is_required { "" } else { "?" };
            let kind = self.write(&field.kind, &inner);
            let _ = writeln!(lines, "{inner}{}{mark}: {kind};", key(&field.name));
        }
        if object.rest.is_some() {
            // One type for all keys, known ones included.
            let _ = writeln!(lines, "{inner}[key: string]: {};", self.anything());
        }
        lines.push_str(indent);
        lines.push('}');
        lines
    }
}

fn literals(values: &[Literal]) -> String {
    let values: Vec<String> = values
        .iter()
        .map(|value| match value {
            Literal::Boolean(flag) => flag.to_string(),
            Literal::Integer(number) => number.to_string(),
            Literal::Text(text) => typescript_string(text),
        })
        .collect();
    values.join(" | ")
}

/// A key of a type, which may be any word, but not have any character.
pub(super) fn key(name: &str) -> String {
    let is_plain = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_plain {
        name.to_owned()
    } else {
        typescript_string(name)
    }
}
