//! The OpenAPI 3.1 document of the REST interface, made from the table of routes.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};
use strum::VariantArray as _;

use super::problem::Code;
use super::route::RestRoute;

/// Where the document is.
pub(in crate::http) const OPENAPI_PATH: &str = "/openapi.json";
const SCHEMAS: &str = "/components/schemas";

/// The body of an error.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "a schema: `Problem` writes it")]
struct ErrorReply {
    /// What went wrong.
    error: ErrorDetail,
}

/// What went wrong.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "a schema: `Problem` writes it")]
struct ErrorDetail {
    /// A stable word.
    #[schemars(schema_with = "codes")]
    code: String,
    /// A sentence for people.
    message: String,
}

fn codes(_: &mut SchemaGenerator) -> Schema {
    let words: Vec<&str> = Code::VARIANTS.iter().map(|code| code.word()).collect();
    schemars::json_schema!({"type": "string", "enum": words})
}

/// The description of the interface.
#[derive(Clone, Debug)]
pub(in crate::http) struct OpenApi(Value);

impl OpenApi {
    /// The document of these routes.
    pub(in crate::http) fn of(routes: &[RestRoute]) -> Self {
        let settings = SchemaSettings::draft2020_12()
            .with(|settings| settings.definitions_path = SCHEMAS.into());
        let mut replies = settings.clone().for_serialize().into_generator();
        let mut bodies = settings.for_deserialize().into_generator();
        let mut paths = Map::new();
        for route in routes {
            let operation = operation(route, &mut replies, &mut bodies);
            let path = paths.entry(route.path).or_insert_with(|| json!({}));
            if let Value::Object(methods) = path {
                methods.insert(route.method.as_str().to_ascii_lowercase(), operation);
            }
        }
        let mut schemas = replies.take_definitions(true);
        schemas.extend(bodies.take_definitions(true));
        Self(json!({
            "openapi": "3.1.0",
            "info": {
                "title": "Mooring",
                "summary": "What operators and their tools ask a gateway beside MCP.",
                "version": env!("CARGO_PKG_VERSION"),
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
            "paths": paths,
            "components": {
                "schemas": schemas,
                "securitySchemes": {
                    "bearer": {"type": "http", "scheme": "bearer",
                        "description": "An access token or API key, as auth.mode says."},
                },
            },
            "security": [{}, {"bearer": []}],
        }))
    }

    /// The document as text.
    pub(in crate::http) fn to_text(&self) -> String {
        format!("{:#}\n", self.0)
    }

    /// The document.
    pub(super) const fn document(&self) -> &Value {
        &self.0
    }
}

fn operation(
    route: &RestRoute,
    replies: &mut SchemaGenerator,
    bodies: &mut SchemaGenerator,
) -> Value {
    let in_path = parts_of(route.path).map(
        |name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}),
    );
    let in_query = route.query.iter().map(|parameter| {
        json!({
            "name": parameter.name,
            "in": "query",
            "description": parameter.about,
            "schema": {"type": "string"},
        })
    });
    let content = |schema: Schema| json!({"application/json": {"schema": schema}});
    let error = replies.subschema_for::<ErrorReply>();
    let mut responses = Map::new();
    responses.insert(
        route.status.as_str().to_owned(),
        json!({"description": "It is done.", "content": content((route.reply)(replies))}),
    );
    responses.insert(
        "default".to_owned(),
        json!({"description": "It was refused or failed.", "content": content(error)}),
    );
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.about,
        "parameters": in_path.chain(in_query).collect::<Vec<_>>(),
        "responses": responses,
    });
    if let Value::Object(fields) = &mut operation {
        if let Some(right) = route.right {
            fields.insert("x-mooring-right".to_owned(), right.name().into());
        }
        if let Some(body) = route.body {
            let body = json!({"required": true, "content": content(body(bodies))});
            fields.insert("requestBody".to_owned(), body);
        }
    }
    operation
}

/// The names in the braces of a path.
fn parts_of(path: &str) -> impl Iterator<Item = &str> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// A name for generated clients: the method and the words of the path.
fn operation_id(route: &RestRoute) -> String {
    let mut id = route.method.as_str().to_ascii_lowercase();
    let words = route.path.split(['/', '-', '.', '{', '}', '_']);
    for word in words.filter(|word| !word.is_empty()) {
        let (first, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
        id.push_str(&first.to_uppercase());
        id.push_str(rest);
    }
    id
}
