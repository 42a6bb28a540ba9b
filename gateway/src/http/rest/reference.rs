//! The reference page of the REST interface, made from its OpenAPI document.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::openapi::OpenApi;

/// The introduction, which the document does not have.
const INTRODUCTION: &str = include_str!("introduction.md");

/// The page.
pub(in crate::http) fn reference_page(openapi: &OpenApi) -> String {
    let document = openapi.document();
    let mut text = INTRODUCTION.to_owned();
    text.push_str("\n## Routes\n");
    for (path, methods) in object(document, "/paths") {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            write_operation(&mut text, &method.to_uppercase(), path, operation);
        }
    }
    text.push_str("\n## Types\n");
    for (name, schema) in object(document, "/components/schemas") {
        write_type(&mut text, name, schema);
    }
    text
}

fn object<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let fields: Option<&Map<String, Value>> = value.pointer(pointer).and_then(Value::as_object);
    fields.into_iter().flatten()
}

fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn write_operation(text: &mut String, method: &str, path: &str, operation: &Value) {
    let about = text_of(operation, "summary");
    let _ = write!(text, "\n### {method} {path}\n\n{about}.");
    if let Some(right) = operation.get("x-mooring-right").and_then(Value::as_str) {
        let _ = write!(text, " Needs the right `{right}`.");
    }
    text.push_str("\n\n");
    let parameters = operation.get("parameters").and_then(Value::as_array);
    let of_query = parameters.into_iter().flatten();
    let of_query: Vec<&Value> = of_query
        .filter(|parameter| text_of(parameter, "in") == "query")
        .collect();
    if !of_query.is_empty() {
        text.push_str("| parameter | meaning |\n|---|---|\n");
        for parameter in of_query {
            let (name, about) = (
                text_of(parameter, "name"),
                text_of(parameter, "description"),
            );
            let _ = writeln!(text, "| `{name}` | {about} |");
        }
        text.push('\n');
    }
    const SCHEMA: &str = "/content/application~1json/schema";
    if let Some(body) = operation.pointer(&format!("/requestBody{SCHEMA}")) {
        let _ = write!(text, "Body: {}. ", type_of(body));
    }
    for (status, response) in object(operation, "/responses") {
        if let Some(schema) = response.pointer(SCHEMA)
            && status != "default"
        {
            let _ = writeln!(text, "Reply: {status}, {}.", type_of(schema));
        }
    }
}

fn write_type(text: &mut String, name: &str, schema: &Value) {
    let _ = write!(text, "\n### {name}\n\n{}\n", one_line(schema));
    let mut fields = object(schema, "/properties").peekable();
    if fields.peek().is_some() {
        text.push_str("\n| field | type | meaning |\n|---|---|---|\n");
        for (name, field) in fields {
            let _ = writeln!(
                text,
                "| `{name}` | {} | {} |",
                type_of(field),
                one_line(field)
            );
        }
    }
    let variants = schema.get("oneOf").and_then(Value::as_array);
    for variant in variants.into_iter().flatten() {
        let _ = writeln!(text, "\n- {}: {}", type_of(variant), one_line(variant));
    }
}

/// The description of a schema on one line.
fn one_line(schema: &Value) -> String {
    text_of(schema, "description").replace('\n', " ")
}

/// The type of a schema, for people.
fn type_of(schema: &Value) -> String {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let name = reference.rsplit('/').next().unwrap_or_default();
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(word) = schema.get("const").and_then(Value::as_str) {
        return format!("`{word}`");
    }
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        let words = words.iter().filter_map(Value::as_str);
        let words: Vec<String> = words.map(|word| format!("`{word}`")).collect();
        return words.join(", ");
    }
    let several =
        |schemas: &Vec<Value>| schemas.iter().map(type_of).collect::<Vec<_>>().join(" or ");
    if let Some(schemas) = schema
        .get("anyOf")
        .or(schema.get("oneOf"))
        .and_then(Value::as_array)
    {
        return several(schemas);
    }
    match schema.get("type") {
        Some(Value::String(name)) if name == "array" => {
            let items = schema
                .get("items")
                .map_or_else(|| "value".to_owned(), type_of);
            format!("list of {items}")
        }
        Some(Value::String(name)) => match object(schema, "/properties").next() {
            Some((field, inner)) if name == "object" => format!("`{field}`: {}", type_of(inner)),
            _ => name.clone(),
        },
        Some(Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str);
            names.collect::<Vec<_>>().join(" or ")
        }
        _ => "any value".to_owned(),
    }
}
