//! A JSON Schema read as a kind.
//!
//! The schema is untrusted: it may refer to itself, to nothing, or to so much that it never ends. What is not
//! understood, and what is beyond a limit, is a kind that takes anything.
//!
//! Invariant: reading takes time and memory in proportion to the schema and the limits, and never fails.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use super::kind::{Field, Kind, NamedKind, Object, Tuple, TypeSchema};
use super::literals::literals;
use super::meet::meet;
use super::{limits, text};

/// Reads one side of a tool.
pub(super) fn read(schema: &Value) -> TypeSchema {
    let mut reader = Reader {
        root: schema,
        named: Vec::new(),
        by_pointer: HashMap::new(),
        unread: Vec::new(),
        inlined: Vec::new(),
        left: limits::SCHEMAS_MAX,
        meeting_left: limits::MEETING_MAX,
    };
    let root = reader.kind(schema, 0);
    while let Some((number, schema)) = reader.unread.pop() {
        let kind = reader.kind(schema, 0);
        if let Some(named) = reader.named.get_mut(number) {
            named.kind = kind;
        }
    }
    let mut shape = TypeSchema {
        root,
        named: reader.named,
    };
    super::circle::open(&mut shape);
    shape
}

struct Reader<'a> {
    root: &'a Value,
    named: Vec<NamedKind>,
    /// The number of what a reference points to.
    by_pointer: HashMap<&'a str, usize>,
    /// Named kinds that are still to be read. They are read one by one, so that no chain of them is nested.
    unread: Vec<(usize, &'a Value)>,
    /// References that are being read in place.
    inlined: Vec<&'a str>,
    /// How many schemas may still be looked at.
    left: usize,
    /// How many kinds may still be written to intersect others.
    meeting_left: usize,
}

impl<'a> Reader<'a> {
    fn kind(&mut self, schema: &'a Value, depth: usize) -> Kind {
        if depth >= limits::DEPTH_MAX || self.left == 0 {
            return Kind::Any;
        }
        self.left -= 1;
        let Value::Object(schema) = schema else {
            return Kind::Any;
        };
        let own = self.own(schema, depth);
        let joined = self.all_of(schema, own, depth);
        let chosen = ["anyOf", "oneOf"]
            .into_iter()
            .fold(joined, |base, word| self.one_of(schema, word, base, depth));
        if schema.get("nullable") == Some(&Value::Bool(true)) && chosen != Kind::Any {
            return Kind::union([chosen, Kind::Null]);
        }
        chosen
    }

    /// The kind according to the schema itself.
    fn own(&mut self, schema: &'a Map<String, Value>, depth: usize) -> Kind {
        if let Some(value) = schema.get("const") {
            return literals(std::slice::from_ref(value));
        }
        if let Some(Value::Array(values)) = schema.get("enum") {
            return literals(values);
        }
        match schema.get("type") {
            Some(Value::String(word)) => self.of_type(word, schema, depth),
            Some(Value::Array(words)) => {
                let words = words.iter().filter_map(Value::as_str).take(8);
                let kinds: Vec<Kind> = words
                    .map(|word| self.of_type(word, schema, depth))
                    .collect();
                Kind::union(kinds)
            }
            _ if says_object(schema) => self.of_type("object", schema, depth),
            _ if says_array(schema) => self.of_type("array", schema, depth),
            _ => Kind::Any,
        }
    }

    fn of_type(&mut self, word: &str, schema: &'a Map<String, Value>, depth: usize) -> Kind {
        match word {
            "null" => Kind::Null,
            "boolean" => Kind::Boolean,
            "integer" => Kind::Integer,
            "number" => Kind::Number,
            "string" => Kind::Text,
            "array" => self.array(schema, depth),
            "object" => self.object(schema, depth),
            _ => Kind::Any,
        }
    }

    fn array(&mut self, schema: &'a Map<String, Value>, depth: usize) -> Kind {
        let (places, rest) = match (schema.get("prefixItems"), schema.get("items")) {
            (Some(Value::Array(places)), rest) => (places, rest),
            (_, Some(Value::Array(places))) => (places, schema.get("additionalItems")),
            (_, Some(items)) => return Kind::List(Box::new(self.kind(items, depth + 1))),
            _ => return Kind::List(Box::new(Kind::Any)),
        };
        if places.is_empty() || places.len() > limits::ALTERNATIVES_MAX {
            return Kind::List(Box::new(Kind::Any));
        }
        let places: Vec<Kind> = places
            .iter()
            .map(|place| self.kind(place, depth + 1))
            .collect();
        let required = schema.get("minItems").and_then(Value::as_u64);
        let required = required.and_then(|count| usize::try_from(count).ok());
        let rest = rest.filter(|rest| rest.is_object() || **rest == Value::Bool(true));
        Kind::Tuple(Tuple {
            required: required.unwrap_or(places.len()).min(places.len()),
            rest: rest.map(|rest| Box::new(self.kind(rest, depth + 1))),
            places,
        })
    }

    fn object(&mut self, schema: &'a Map<String, Value>, depth: usize) -> Kind {
        let rest = match (
            schema.get("additionalProperties"),
            schema.get("patternProperties"),
        ) {
            (Some(Value::Bool(true)), _) | (None, Some(Value::Object(_))) => Some(Kind::Any),
            (Some(others @ Value::Object(_)), None) => Some(self.kind(others, depth + 1)),
            (Some(Value::Object(_)), Some(_)) => Some(Kind::Any),
            _ => None,
        };
        let Some(Value::Object(properties)) = schema.get("properties") else {
            return Kind::Map(Box::new(rest.unwrap_or(Kind::Any)));
        };
        let is_long = |name: &String| name.chars().count() > limits::FIELD_NAME_CHARS_MAX;
        if properties.is_empty()
            || properties.len() > limits::FIELDS_MAX
            || properties.keys().any(is_long)
        {
            return Kind::Map(Box::new(Kind::Any));
        }
        let required: Vec<&str> = match schema.get("required") {
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let mut fields: Vec<Field> = properties
            .iter()
            .map(|(name, field)| Field {
                name: name.clone(),
                kind: self.kind(field, depth + 1),
                is_required: required.contains(&name.as_str()),
                description: description(field),
            })
            .collect();
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        Kind::Object(Object {
            fields,
            rest: rest.map(Box::new),
        })
    }

    /// Intersects it with all members of `allOf`.
    fn all_of(&mut self, schema: &'a Map<String, Value>, own: Kind, depth: usize) -> Kind {
        let reference = schema.get("$ref").and_then(Value::as_str);
        let members = match schema.get("allOf") {
            Some(Value::Array(members)) => members.as_slice(),
            _ => &[],
        };
        let is_only = own == Kind::Any;
        match (reference, members) {
            (None, []) => own,
            (Some(pointer), []) if is_only => self.reference(pointer),
            (None, [only]) if is_only => self.kind(only, depth + 1),
            (reference, members) => {
                let first = reference.map(|pointer| self.in_place(pointer, depth));
                let members = members.iter().take(limits::ALTERNATIVES_MAX);
                let mut kinds = vec![own];
                kinds.extend(first);
                for member in members {
                    kinds.push(self.member(member, depth));
                }
                let together = kinds.into_iter().reduce(|a, b| self.meet(a, b));
                together.unwrap_or(Kind::Any)
            }
        }
    }

    /// One of the members, together with what the schema says itself.
    fn one_of(
        &mut self,
        schema: &'a Map<String, Value>,
        word: &str,
        base: Kind,
        depth: usize,
    ) -> Kind {
        let Some(Value::Array(members)) = schema.get(word) else {
            return base;
        };
        if members.is_empty() || members.len() > limits::ALTERNATIVES_MAX {
            return base;
        }
        if base == Kind::Any {
            let kinds: Vec<Kind> = members
                .iter()
                .map(|member| self.kind(member, depth + 1))
                .collect();
            return Kind::union(kinds);
        }
        let kinds: Vec<Kind> = members
            .iter()
            .map(|member| {
                let member = self.member(member, depth);
                self.meet(base.clone(), member)
            })
            .collect();
        Kind::union(kinds)
    }

    /// The intersection of both; the first alone if it is too large to compute.
    fn meet(&mut self, first: Kind, second: Kind) -> Kind {
        let work = |one: &Kind, other: &Kind| one.weight().saturating_mul(other.alternatives());
        let cost = work(&first, &second).saturating_add(work(&second, &first));
        match self.meeting_left.checked_sub(cost) {
            Some(left) => {
                self.meeting_left = left;
                meet(first, second)
            }
            None => first,
        }
    }

    /// A member that is brought together with others: a name is no help there.
    fn member(&mut self, member: &'a Value, depth: usize) -> Kind {
        match member.get("$ref").and_then(Value::as_str) {
            Some(pointer) => self.in_place(pointer, depth),
            None => self.kind(member, depth + 1),
        }
    }

    /// The target of a reference, read in place.
    fn in_place(&mut self, pointer: &'a str, depth: usize) -> Kind {
        let Some(target) = target(self.root, pointer) else {
            return Kind::Any;
        };
        if self.inlined.contains(&pointer) {
            return Kind::Any;
        }
        self.inlined.push(pointer);
        let kind = self.kind(target, depth + 1);
        self.inlined.pop();
        kind
    }

    /// The name of what a reference points to.
    fn reference(&mut self, pointer: &'a str) -> Kind {
        if let Some(number) = self.by_pointer.get(pointer) {
            return Kind::Named(*number);
        }
        let Some(target) = target(self.root, pointer) else {
            return Kind::Any;
        };
        if self.named.len() == limits::NAMED_MAX {
            return Kind::Any;
        }
        let number = self.named.len();
        let name = pointer.rsplit(['/', '#']).next().unwrap_or_default();
        self.named.push(NamedKind {
            name: text::line(name, limits::IDENTIFIER_CHARS_MAX),
            kind: Kind::Any,
        });
        self.by_pointer.insert(pointer, number);
        self.unread.push((number, target));
        Kind::Named(number)
    }
}

/// The target of a reference. Only references within the schema are followed: nothing is fetched.
fn target<'a>(root: &'a Value, pointer: &str) -> Option<&'a Value> {
    if pointer.len() > limits::REFERENCE_BYTES_MAX {
        return None;
    }
    let path = pointer.strip_prefix('#')?;
    // A reference is a URL, which has `%7B` for `{`.
    root.pointer(&percent_decode_str(path).decode_utf8().ok()?)
}

/// Whether the schema implies an object without a `type`.
fn says_object(schema: &Map<String, Value>) -> bool {
    ["properties", "additionalProperties", "patternProperties"]
        .iter()
        .any(|word| matches!(schema.get(*word), Some(Value::Object(_))))
}

/// Whether the schema implies an array without a `type`.
fn says_array(schema: &Map<String, Value>) -> bool {
    schema.contains_key("items") || schema.contains_key("prefixItems")
}

/// The description of a field, with its default.
fn description(field: &Value) -> String {
    let word = |key| field.get(key).and_then(Value::as_str);
    let words = word("description")
        .or_else(|| word("title"))
        .unwrap_or_default();
    let default = field.get("default").filter(|default| !default.is_null());
    let default = default.map(Value::to_string);
    let is_short = |default: &String| default.len() <= limits::DEFAULT_BYTES_MAX;
    match (words, default.filter(is_short)) {
        (words, None) => words.to_owned(),
        ("", Some(default)) => format!("Default: {default}."),
        (words, Some(default)) => {
            format!(
                "{}. Default: {default}.",
                words.trim_end().trim_end_matches('.')
            )
        }
    }
}
