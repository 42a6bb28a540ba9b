//! The OpenAPI document of a gateway, to compare its answers with.
//!
//! Invariant: an answer has every field that its schema requires, and no other than those that it names. A keyword that is
//! not compared here fails the comparison. Only what documents of gateways have is known: a library for all of JSON Schema
//! would build longer than these tests run.

use serde_json::Value;

/// Keywords that say nothing of a value.
const NOTES: [&str; 5] = ["description", "default", "format", "minimum", "title"];

/// A check of answers against the document of a gateway.
pub(crate) struct Document(Value);

impl Document {
    /// What a gateway answers at `/openapi.json`.
    pub(crate) const fn of(document: Value) -> Self {
        Self(document)
    }

    /// Compares the answer to this method of this path.
    pub(crate) fn check(
        &self,
        method: &str,
        path: &str,
        status: &str,
        answer: &Value,
    ) -> anyhow::Result<()> {
        let response = &self.0["paths"][path][method]["responses"][status];
        let schema = &response["content"]["application/json"]["schema"];
        anyhow::ensure!(
            schema.is_object(),
            "{method} {path} {status} is not described"
        );
        self.compare(schema, answer)
            .map_err(|problem| anyhow::anyhow!("{method} {path}: {problem}: {answer}"))
    }

    /// Compares a value with a schema.
    fn compare(&self, schema: &Value, value: &Value) -> Result<(), String> {
        let Some(keywords) = schema.as_object() else {
            return (*schema == true)
                .then_some(())
                .ok_or_else(|| format!("{value} is not expected"));
        };
        for (keyword, wanted) in keywords {
            match keyword.as_str() {
                "$ref" => self.compare(self.named(wanted)?, value)?,
                "type" => is_of_type(wanted, value)?,
                "const" if wanted == value => {}
                "enum" if wanted.as_array().is_some_and(|words| words.contains(value)) => {}
                "const" | "enum" => return Err(format!("{value} is not {wanted}")),
                "anyOf" | "oneOf" => {
                    let mut schemas = wanted.as_array().into_iter().flatten();
                    if !schemas.any(|schema| self.compare(schema, value).is_ok()) {
                        return Err(format!("{value} is none of {wanted}"));
                    }
                }
                "items" => {
                    let mut items = value.as_array().into_iter().flatten();
                    items.try_for_each(|item| self.compare(wanted, item))?;
                }
                "required" => {
                    let names = wanted.as_array().into_iter().flatten();
                    let mut names = names.filter_map(Value::as_str);
                    if let Some(name) =
                        names.find(|name| value.is_object() && value.get(name).is_none())
                    {
                        return Err(format!("{name} is missing in {value}"));
                    }
                }
                "properties" => self.compare_fields(schema, value)?,
                "additionalProperties" if keywords.contains_key("properties") => {}
                "additionalProperties" => {
                    let mut fields = value.as_object().into_iter().flatten();
                    fields.try_for_each(|(_, field)| self.compare(wanted, field))?;
                }
                note if NOTES.contains(&note) => {}
                unknown => return Err(format!("the keyword {unknown} is not compared")),
            }
        }
        Ok(())
    }

    /// Compares each field of an object with its schema; another field is an error.
    fn compare_fields(&self, schema: &Value, value: &Value) -> Result<(), String> {
        for (name, field) in value.as_object().into_iter().flatten() {
            let known = schema["properties"].get(name);
            let known = known.ok_or_else(|| format!("{name} is not described"))?;
            self.compare(known, field)
                .map_err(|problem| format!("{name}: {problem}"))?;
        }
        Ok(())
    }

    fn named(&self, reference: &Value) -> Result<&Value, String> {
        let pointer = reference.as_str().and_then(|text| text.strip_prefix('#'));
        let named = pointer.and_then(|pointer| self.0.pointer(pointer));
        named.ok_or_else(|| format!("{reference} is nowhere"))
    }
}

fn is_of_type(wanted: &Value, value: &Value) -> Result<(), String> {
    let is = |name: &Value| match name.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        _ => false,
    };
    let is_one = match wanted {
        Value::Array(names) => names.iter().any(is),
        name => is(name),
    };
    is_one
        .then_some(())
        .ok_or_else(|| format!("{value} is no {wanted}"))
}
