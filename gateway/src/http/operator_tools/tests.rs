//! The table of tools and the requests that calls make; `tests/tests/it/admin/tools.rs` has the calls themselves.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

use std::collections::BTreeSet;
use std::sync::Weak;

use serde_json::{Value, json};

use super::RestTools;
use super::call::RestRequest;
use super::tool::{BodyShape, CONFIRM, RestTool};
use crate::http::rest::{PREVIEW, RouteTool};
use crate::http::rest_routes;

fn tools() -> RestTools {
    RestTools::new(Weak::new())
}

fn tool(name: &str) -> RestTool {
    let mut tools = rest_routes().into_iter().filter_map(RestTool::of);
    tools.find(|tool| tool.name == name).unwrap()
}

/// Every reference in a schema, and in what it has inside.
fn references<'a>(schema: &'a Value, into: &mut Vec<&'a str>) {
    match schema {
        Value::Object(fields) => {
            into.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|field| references(field, into));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, into)),
        _ => {}
    }
}

#[test]
fn about_every_route_somebody_has_decided_whether_it_is_a_tool() {
    for route in rest_routes() {
        let (method, path) = (&route.method, route.path);
        assert_ne!(route.tool, RouteTool::Undecided, "{method} {path}");
        let is_read = !matches!(route.tool, RouteTool::Act(..) | RouteTool::No);
        assert!(!is_read || *method == http::Method::GET, "{method} {path}");
    }
    let tools = tools().tools;
    let names: BTreeSet<&str> = tools.iter().map(|tool| tool.name).collect();
    assert_eq!(names.len(), tools.len(), "{names:?}");
    assert!(names.len() >= 26, "{names:?}");
}

#[test]
fn every_act_has_a_preview_and_every_schema_stands_alone() {
    for route in rest_routes() {
        let has_parameter = route.query.iter().any(|one| one.name == PREVIEW);
        let names_in_path = route.path.matches('{').count();
        let (query, is_act) = (route.query.len(), matches!(route.tool, RouteTool::Act(..)));
        let Some(tool) = RestTool::of(route) else {
            continue;
        };
        let name = tool.name;
        let (input, output) = (&tool.listed["inputSchema"], &tool.listed["outputSchema"]);
        let properties = input["properties"].as_object().unwrap();
        assert_eq!(properties.contains_key(CONFIRM), is_act, "{name}");
        assert!(!properties.contains_key(PREVIEW), "{name}");
        if is_act {
            assert!(has_parameter || tool.body == BodyShape::Arguments, "{name}");
        }
        if tool.body == BodyShape::Empty {
            // No argument has the name of another one.
            let arguments =
                names_in_path + query + usize::from(is_act) - usize::from(has_parameter);
            assert_eq!(properties.len(), arguments, "{name}");
        }
        for required in input["required"].as_array().unwrap() {
            assert!(
                properties.contains_key(required.as_str().unwrap()),
                "{name}: {required}"
            );
        }
        for schema in [input, output] {
            assert_eq!(schema["type"], "object", "{name}");
            assert!(schema.get("$ref").is_none(), "{name}");
            let mut found = Vec::new();
            references(schema, &mut found);
            for reference in found {
                let pointer = reference.strip_prefix('#').unwrap();
                assert!(schema.pointer(pointer).is_some(), "{name}: {reference}");
            }
        }
    }
}

#[test]
fn a_call_makes_the_request_of_its_route() {
    for (name, arguments, target, body) in [
        (
            "sessions_list",
            json!({"user": "ada b", "limit": 5}),
            "/admin/sessions?user=ada+b&limit=5",
            None,
        ),
        ("sessions_list", Value::Null, "/admin/sessions", None),
        (
            "sessions_show",
            json!({"session": "a/b ?"}),
            "/admin/sessions/a%2Fb%20%3F",
            None,
        ),
        (
            "sessions_end",
            json!({"session": "ab"}),
            "/admin/sessions/ab/end",
            Some(json!({"preview": true})),
        ),
        (
            "sessions_end",
            json!({"session": "ab", "confirm": true}),
            "/admin/sessions/ab/end",
            Some(json!({})),
        ),
        (
            "sessions_end",
            json!({"session": "ab", "confirm": false, "preview": false}),
            "/admin/sessions/ab/end",
            Some(json!({"preview": true})),
        ),
        (
            "sessions_end_matching",
            json!({"filter": {"user": "ada"}, "confirm": true}),
            "/admin/sessions/end",
            Some(json!({"filter": {"user": "ada"}})),
        ),
        (
            "servers_add",
            json!({"definition": {"id": "new"}}),
            "/admin/servers?preview=true",
            Some(json!({"id": "new"})),
        ),
        (
            "servers_change",
            json!({"server": "new", "definition": {"tags": []}, "confirm": true}),
            "/admin/servers/new",
            Some(json!({"tags": []})),
        ),
        (
            "servers_remove",
            json!({"server": "new"}),
            "/admin/servers/new?preview=true",
            None,
        ),
        (
            "servers_remove",
            json!({"server": "new", "confirm": true}),
            "/admin/servers/new",
            None,
        ),
        (
            "settings_reload",
            json!({}),
            "/admin/reload?preview=true",
            None,
        ),
    ] {
        let call = RestRequest::of(&tool(name), Some(arguments)).unwrap();
        assert_eq!(
            (call.target(), call.body()),
            (target, body.as_ref()),
            "{name}"
        );
    }
}

#[test]
fn a_call_with_wrong_arguments_makes_none() {
    for (name, arguments) in [
        ("sessions_show", json!({})),
        ("sessions_show", json!({"session": ""})),
        ("sessions_show", json!({"session": {"a": 1}})),
        ("sessions_list", json!({"usr": "ada"})),
        ("sessions_list", json!({"confirm": true})),
        ("sessions_list", json!([])),
        ("sessions_end", json!({"session": "ab", "confirm": "yes"})),
        ("servers_add", json!({"id": "new", "confirm": true})),
        ("settings_reload", json!({"confirm": true, "force": true})),
    ] {
        let refused = RestRequest::of(&tool(name), Some(arguments.clone()));
        assert!(refused.is_err(), "{name} {arguments}");
    }
}
