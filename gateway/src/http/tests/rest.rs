//! The REST interface: its routes, its document and its reference page are the same.

use std::collections::BTreeSet;

use axum::body::Body;
use http::{Method, Request};
use serde_json::Value;

use super::{Answer, Gateway};
use crate::http::{openapi, rest_reference};

/// Every method and path of the document.
fn described() -> BTreeSet<(Method, String)> {
    let document: Value = serde_json::from_str(&openapi()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let methods = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().keys();
        methods.map(|method| (method.to_uppercase().parse().unwrap(), path.clone()))
    });
    methods.collect()
}

async fn answer(gateway: &Gateway, method: &Method, path: &str) -> Answer {
    let path = path.replace(['{', '}'], "");
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost")
        .header("content-type", "application/json");
    let body = Body::from(if method == Method::GET { "" } else { "{}" });
    Answer::read(gateway.send(request.body(body).unwrap()).await).await
}

#[tokio::test]
async fn every_described_route_is_served_and_no_other_method_of_its_path() {
    let gateway = Gateway::start().await;
    let described = described();
    assert!(described.len() > 25, "{described:?}");
    let paths: BTreeSet<&String> = described.iter().map(|(_, path)| path).collect();
    for path in paths {
        for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
            let is_described = described.contains(&(method.clone(), path.clone()));
            let answer = answer(&gateway, &method, path).await;
            // Also a path that names nothing has an error of this interface, whose codes are words.
            let code =
                serde_json::from_str(&answer.text).unwrap_or(Value::Null)["error"]["code"].clone();
            assert!(!code.is_number(), "{method} {path}: {}", answer.text);
            assert_eq!(
                answer.status != 405,
                is_described,
                "{method} {path}: {}",
                answer.text
            );
        }
    }
}

#[tokio::test]
async fn the_document_is_served_and_names_no_schema_that_it_lacks() {
    let gateway = Gateway::start().await;
    let served = answer(&gateway, &Method::GET, "/openapi.json").await;
    assert_eq!((served.status.as_u16(), &served.text), (200, &openapi()));
    let document = served.json();
    assert_eq!(document["openapi"], "3.1.0");
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let mut ids = BTreeSet::new();
    for methods in document["paths"].as_object().unwrap().values() {
        for operation in methods.as_object().unwrap().values() {
            assert!(
                ids.insert(operation["operationId"].to_string()),
                "{operation}"
            );
            assert!(operation["summary"].as_str().unwrap().len() > 8);
        }
    }
    for reference in references(&document) {
        let name = reference.strip_prefix("#/components/schemas/").unwrap();
        assert!(schemas.contains_key(name), "{reference}");
    }
}

fn references(value: &Value) -> Vec<&str> {
    match value {
        Value::Object(fields) => {
            let own = fields.get("$ref").and_then(Value::as_str);
            let inner = fields.values().flat_map(references);
            own.into_iter().chain(inner).collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

/// `mooring config api-reference > docs/admin-api.md` writes it again.
#[test]
fn the_reference_page_is_that_of_the_routes() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/admin-api.md");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(
        page == rest_reference(),
        "docs/admin-api.md is not what `mooring config api-reference` prints"
    );
    for (method, path) in described() {
        assert!(page.contains(&format!("### {method} {path}\n")), "{path}");
    }
}
