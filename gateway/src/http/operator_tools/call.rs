//! A call of a tool: the request that its arguments make, and the result that the reply makes.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};
use tower::ServiceExt;
use url::form_urlencoded::Serializer;

use super::tool::{BodyShape, CONFIRM, DEFINITION, RestTool, path_argument};
use crate::http::app::App;
use crate::http::rest::{PREVIEW, ToolCaller};

/// Most bytes of a result.
const RESULT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The note on the result of an act that was not confirmed.
const PREVIEW_NOTE: &str =
    "This is a preview: nothing was changed. To do it, call the tool again with confirm: true.";

/// A request of a tool's route.
#[derive(Debug)]
pub(super) struct RestRequest {
    /// Path and query.
    target: String,
    /// None where the route has no body.
    body: Option<Value>,
    is_preview: bool,
}

impl RestRequest {
    /// The request that these arguments make; or what is wrong with them.
    pub(super) fn of(tool: &RestTool, arguments: Option<Value>) -> Result<Self, String> {
        let mut arguments = match arguments {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(arguments)) => arguments,
            Some(_) => return Err("the arguments have to be an object".to_owned()),
        };
        let is_preview = tool.is_act && !is_confirmed(&mut arguments)?;
        let mut target = path(tool.path, &mut arguments)?;
        let mut query = Serializer::new(String::new());
        for parameter in tool.query.iter().filter(|one| one.name != PREVIEW) {
            match arguments.remove(parameter.name) {
                None | Some(Value::Null) => {}
                Some(value) => {
                    query.append_pair(parameter.name, &text(parameter.name, value)?);
                }
            }
        }
        let mut body = match tool.body {
            BodyShape::Empty => None,
            BodyShape::Arguments => Some(Value::Object(std::mem::take(&mut arguments))),
            BodyShape::Definition => {
                let definition = arguments.remove(DEFINITION);
                Some(definition.ok_or_else(|| missing(DEFINITION))?)
            }
        };
        if let Some(unknown) = arguments.keys().next() {
            return Err(format!("the tool has no argument {unknown:?}"));
        }
        if is_preview {
            match (&mut body, tool.body) {
                (Some(Value::Object(fields)), BodyShape::Arguments) => {
                    fields.insert(PREVIEW.to_owned(), true.into());
                }
                _ => {
                    query.append_pair(PREVIEW, "true");
                }
            }
        }
        let query = query.finish();
        if !query.is_empty() {
            target.push('?');
            target.push_str(&query);
        }
        Ok(Self {
            target,
            body,
            is_preview,
        })
    }

    #[cfg(test)]
    pub(super) fn target(&self) -> &str {
        &self.target
    }

    #[cfg(test)]
    pub(super) const fn body(&self) -> Option<&Value> {
        self.body.as_ref()
    }

    /// Serves it, and returns the result of the call.
    pub(super) async fn serve(self, tool: &RestTool, app: Arc<App>, caller: ToolCaller) -> Value {
        let request = Request::builder()
            .method(tool.method.clone())
            .uri(self.target)
            .header(CONTENT_TYPE, "application/json")
            .extension(caller);
        let body = self
            .body
            .map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let request = match request.body(body) {
            Ok(request) => request,
            Err(error) => return failed(&format!("the arguments make no request: {error}")),
        };
        let router = Router::new().route(tool.path, tool.handler.clone());
        let response = match router.with_state(app).oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        result_of(response, self.is_preview).await
    }
}

/// Takes the confirmation out of the arguments of an act.
fn is_confirmed(arguments: &mut Map<String, Value>) -> Result<bool, String> {
    match arguments.remove(CONFIRM) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(is_confirmed)) => Ok(is_confirmed),
        Some(_) => Err(format!("{CONFIRM} is true or false")),
    }
}

/// The path with these arguments in the place of the names in braces.
fn path(path: &str, arguments: &mut Map<String, Value>) -> Result<String, String> {
    let parts = path.split('/').map(|part| {
        let Some(name) = path_argument(part) else {
            return Ok(part.to_owned());
        };
        let value = arguments.remove(name).ok_or_else(|| missing(name))?;
        let value = text(name, value)?;
        match value.is_empty() {
            true => Err(missing(name)),
            false => Ok(utf8_percent_encode(&value, NON_ALPHANUMERIC).to_string()),
        }
    });
    let parts: Result<Vec<String>, String> = parts.collect();
    Ok(parts?.join("/"))
}

/// The text of an argument. Models write numbers where a number is meant.
fn text(name: &str, value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(word) => Ok(word.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => Err(format!("{name} is a text")),
    }
}

fn missing(name: &str) -> String {
    format!("the argument {name} is missing")
}

/// The result of a call that has failed; a model can read why.
pub(super) fn failed(problem: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": problem }], "isError": true })
}

/// The result that a reply of the REST interface makes.
async fn result_of(response: Response, is_preview: bool) -> Value {
    let is_done = response.status().is_success();
    let Ok(bytes) = to_bytes(response.into_body(), RESULT_BYTES_MAX).await else {
        return failed("the result is longer than 4 MiB: ask for less of it");
    };
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if !is_done {
        let part = |name: &str| {
            body.pointer(&format!("/error/{name}"))
                .and_then(Value::as_str)
        };
        let code = part("code").unwrap_or("internal");
        let message = part("message").unwrap_or("the gateway has failed");
        return failed(&format!("{code}: {message}"));
    }
    let mut content = vec![json!({ "type": "text", "text": body.to_string() })];
    if is_preview {
        content.push(json!({ "type": "text", "text": PREVIEW_NOTE }));
    }
    json!({ "content": content, "structuredContent": body, "isError": false })
}
