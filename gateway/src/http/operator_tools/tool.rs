//! One tool: a route with the schemas of its arguments and its reply.
//!
//! The arguments are the names in the path, the parameters and the fields of the body, side by side.

use std::sync::Arc;

use axum::routing::MethodRouter;
use http::Method;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::http::app::App;
use crate::http::rest::{PREVIEW, QueryParameter, RestRoute, RouteTool, SchemaOf};
use mooring_settings::Right;

/// The argument with which an act is done.
pub(super) const CONFIRM: &str = "confirm";
/// The argument that is the whole body, where that has no fields of its own.
pub(super) const DEFINITION: &str = "definition";
const DEFINITIONS: &str = "$defs";

/// What the body of a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyShape {
    /// There is none.
    Empty,
    /// The arguments that are in neither the path nor the parameters.
    Arguments,
    /// The argument [`DEFINITION`].
    Definition,
}

/// A tool.
#[derive(Debug)]
pub(super) struct RestTool {
    pub(super) name: &'static str,
    /// The right that its callers need; none where every caller of the server may use it.
    pub(super) right: Option<Right>,
    /// Whether it changes something.
    pub(super) is_act: bool,
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) query: &'static [QueryParameter],
    pub(super) body: BodyShape,
    pub(super) handler: MethodRouter<Arc<App>>,
    /// Its entry in `tools/list`.
    pub(super) listed: Value,
}

impl RestTool {
    /// That of this route, if it is one.
    pub(super) fn of(route: RestRoute) -> Option<Self> {
        let (name, hints) = match route.tool {
            RouteTool::Read(name) => (name, None),
            RouteTool::Act(name, hints) => (name, Some(hints)),
            RouteTool::No | RouteTool::Undecided => return None,
        };
        let is_act = hints.is_some();
        let (input, body) = input_schema(&route, is_act);
        let mut about = format!("{}.", route.about);
        if let Some(right) = route.right {
            about.push_str(&format!(" Needs the right {}.", right.name()));
        }
        if is_act {
            about.push_str(" Only says what would change, unless confirm is true.");
        }
        let listed = json!({
            "name": name,
            "description": about,
            "inputSchema": input,
            "outputSchema": output_schema(route.reply),
            "annotations": {
                "readOnlyHint": !is_act,
                "destructiveHint": hints.is_some_and(|hints| hints.is_destructive),
                "idempotentHint": hints.is_none_or(|hints| hints.is_idempotent),
                "openWorldHint": false,
            },
        });
        Some(Self {
            name,
            right: route.right,
            is_act,
            method: route.method,
            path: route.path,
            query: route.query,
            body,
            handler: route.handler,
            listed,
        })
    }
}

/// The name in braces that this part of a path is.
pub(super) fn path_argument(part: &str) -> Option<&str> {
    part.strip_prefix('{')?.strip_suffix('}')
}

/// What a name in a path names.
fn about_path_argument(name: &str) -> &'static str {
    match name {
        "id" | "server" => "the id of the server",
        "session" => "the digest of the session, the first digits of it, or its place",
        "worker" => "the id of the gateway, or its name",
        "user" => "the whole name of the user",
        "run" => "the id of the run",
        "skill" => "the name of the skill",
        _ => "what it is about",
    }
}

/// The schema of the arguments, and what the body is made of.
fn input_schema(route: &RestRoute, is_act: bool) -> (Value, BodyShape) {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for name in route.path.split('/').filter_map(path_argument) {
        let about = about_path_argument(name);
        properties.insert(
            name.to_owned(),
            json!({"type": "string", "description": about}),
        );
        required.push(Value::from(name));
    }
    for parameter in route.query.iter().filter(|one| one.name != PREVIEW) {
        let about = json!({"type": "string", "description": parameter.about});
        properties.insert(parameter.name.to_owned(), about);
    }
    let (mut shape, mut definitions) = (BodyShape::Empty, Map::new());
    if let Some(body) = route.body {
        let settings = SchemaSettings::draft2020_12().for_deserialize();
        let (schema, others) = resolved(body, settings.into_generator());
        definitions = others;
        match schema.get("properties") {
            Some(Value::Object(fields)) => {
                shape = BodyShape::Arguments;
                let fields = fields.iter().filter(|(name, _)| *name != PREVIEW);
                properties.extend(fields.map(|(name, field)| (name.clone(), field.clone())));
                let needed = schema.get("required").and_then(Value::as_array);
                required.extend(needed.into_iter().flatten().cloned());
            }
            _ => {
                shape = BodyShape::Definition;
                properties.insert(DEFINITION.to_owned(), Value::Object(schema));
                required.push(DEFINITION.into());
            }
        }
    }
    if is_act {
        let about = "Do it. Without this, the reply says what would change, and nothing is done.";
        properties.insert(
            CONFIRM.to_owned(),
            json!({"type": "boolean", "default": false, "description": about}),
        );
    }
    let mut schema = Map::new();
    schema.insert("type".to_owned(), "object".into());
    schema.insert("properties".to_owned(), properties.into());
    schema.insert("required".to_owned(), required.into());
    schema.insert("additionalProperties".to_owned(), false.into());
    (with_definitions(schema, definitions), shape)
}

/// The schema of a reply, whose root has to be an object.
fn output_schema(reply: SchemaOf) -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let (mut schema, definitions) = resolved(reply, settings.into_generator());
    schema.insert("type".to_owned(), "object".into());
    with_definitions(schema, definitions)
}

/// A schema without a reference at its root, and the definitions that it refers to.
fn resolved(
    schema: SchemaOf,
    mut generator: SchemaGenerator,
) -> (Map<String, Value>, Map<String, Value>) {
    let mut root = schema(&mut generator).to_value();
    let definitions = generator.take_definitions(true);
    let named = root.get("$ref").and_then(Value::as_str);
    let named = named.and_then(|reference| reference.rsplit('/').next());
    if let Some(definition) = named.and_then(|name| definitions.get(name)) {
        root = definition.clone();
    }
    match root {
        Value::Object(root) => (root, definitions),
        _ => (Map::new(), definitions),
    }
}

fn with_definitions(mut schema: Map<String, Value>, definitions: Map<String, Value>) -> Value {
    if !definitions.is_empty() {
        schema.insert(DEFINITIONS.to_owned(), definitions.into());
    }
    Value::Object(schema)
}
