//! A group's `initialize` result, merged from those of its members.
//!
//! Invariant: every capability of the group is one of at least one member, and the group can find out which.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::merge::missing_meta;
use mooring_protocol::Revision;
use mooring_settings::GroupNames;

/// The capabilities whose methods a group serves. Others, such as `tasks`, are left out: the group could not tell which
/// member a request is for.
const CAPABILITIES: [&str; 6] = [
    "tools",
    "prompts",
    "resources",
    "logging",
    "completions",
    "experimental",
];

/// A member's reply to `initialize`.
#[derive(Debug)]
pub(crate) struct MemberInitializeResult<'a> {
    /// Its id.
    pub(crate) server: &'a str,
    /// Its result.
    pub(crate) result: Arc<Map<String, Value>>,
}

/// The group's result. The revision is the oldest that a member chose, and never newer than the client's, so every
/// member supports it. A member that supports nothing newer than 2024-11-05 does not lower the group's revision, unless
/// the client requested that: what 2025-03-26 adds is optional for servers.
pub(crate) fn initialize_result(
    group: &str,
    names: GroupNames,
    asked: Revision,
    members: &[MemberInitializeResult<'_>],
    missing: &[&str],
) -> Value {
    let mut result = json!({
        "protocolVersion": revision(asked, members).as_str(),
        "capabilities": capabilities(members),
        "serverInfo": {
            "name": group,
            "title": format!("Mooring group ({group})"),
            "version": env!("CARGO_PKG_VERSION"),
        },
        "instructions": instructions(names, members, missing),
    });
    if !missing.is_empty()
        && let Some(result) = result.as_object_mut()
    {
        result.insert("_meta".to_owned(), missing_meta(missing));
    }
    result
}

fn revision(asked: Revision, members: &[MemberInitializeResult<'_>]) -> Revision {
    let oldest_chosen = Revision::V2025_03_26.min(asked);
    members
        .iter()
        .filter_map(|member| Revision::named(member.result.get("protocolVersion")?.as_str()?))
        .min()
        .map_or(asked, |oldest| oldest.min(asked).max(oldest_chosen))
}

fn capabilities(members: &[MemberInitializeResult<'_>]) -> Map<String, Value> {
    let mut union = Map::new();
    for member in members {
        let Some(Value::Object(capabilities)) = member.result.get("capabilities") else {
            continue;
        };
        for (name, capability) in capabilities {
            if CAPABILITIES.contains(&name.as_str()) && !capability.is_null() {
                let union = union
                    .entry(name.clone())
                    .or_insert_with(|| Value::Object(Map::new()));
                merge_capabilities(union, capability);
            }
        }
    }
    union
}

/// Adds to `union` the fields that only `other` has. A boolean is true if it is true in either; otherwise the value in
/// `union` stays.
fn merge_capabilities(union: &mut Value, other: &Value) {
    let (Value::Object(union), Value::Object(other)) = (union, other) else {
        return;
    };
    for (name, value) in other {
        match (union.get_mut(name), value) {
            (None, _) => {
                union.insert(name.clone(), value.clone());
            }
            (Some(Value::Bool(on)), Value::Bool(other)) => *on |= other,
            (Some(_), _) => {}
        }
    }
}

fn instructions(
    names: GroupNames,
    members: &[MemberInitializeResult<'_>],
    missing: &[&str],
) -> String {
    let ids: Vec<&str> = members.iter().map(|member| member.server).collect();
    let mut text = format!("Several servers behind one: {}.", ids.join(", "));
    if names == GroupNames::Prefixed {
        text.push_str(" Tools and prompts are named `<server>__<name>`.");
    }
    if !missing.is_empty() {
        text.push_str(&format!(" Not available now: {}.", missing.join(", ")));
    }
    for member in members {
        if let Some(Value::String(own)) = member.result.get("instructions")
            && !own.trim().is_empty()
        {
            text.push_str(&format!("\n\n# {}\n\n{}", member.server, own.trim()));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]
    use super::*;

    fn introduced(server: &'static str, result: Value) -> MemberInitializeResult<'static> {
        let Value::Object(result) = result else {
            unreachable!("tests pass objects")
        };
        let result = Arc::new(result);
        MemberInitializeResult { server, result }
    }

    fn of(asked: Revision, members: &[MemberInitializeResult<'_>]) -> Value {
        initialize_result("all", GroupNames::Prefixed, asked, members, &[])
    }

    #[test]
    fn capabilities_are_the_union_of_what_can_be_served() {
        let members = [
            introduced(
                "a",
                json!({"capabilities": {
                    "tools": {"listChanged": false, "vendor": 1},
                    "resources": {"subscribe": true},
                    "experimental": {"x": {"from": "a"}},
                    "tasks": {"list": {}},
                }}),
            ),
            introduced(
                "b",
                json!({"capabilities": {
                    "tools": {"listChanged": true, "vendor": 2},
                    "resources": {"listChanged": true, "subscribe": false},
                    "logging": {},
                    "experimental": {"x": {"from": "b"}, "y": {}},
                    "prompts": null,
                }}),
            ),
            introduced("c", json!({"capabilities": ["hostile"]})),
        ];
        assert_eq!(
            of(Revision::V2025_11_25, &members)["capabilities"],
            json!({
                "tools": {"listChanged": true, "vendor": 1},
                "resources": {"subscribe": true, "listChanged": true},
                "logging": {},
                "experimental": {"x": {"from": "a"}, "y": {}},
            })
        );
    }

    #[test]
    fn the_revision_is_the_oldest_of_all() {
        let chosen = |asked, revisions: &[&str]| {
            let members: Vec<_> = revisions
                .iter()
                .map(|revision| introduced("a", json!({ "protocolVersion": revision })))
                .collect();
            of(asked, &members)["protocolVersion"].clone()
        };
        let newest = Revision::V2025_11_25;
        assert_eq!(chosen(newest, &["2025-11-25"]), "2025-11-25");
        assert_eq!(chosen(newest, &["2025-11-25", "2025-06-18"]), "2025-06-18");
        assert_eq!(chosen(Revision::V2025_06_18, &["2025-11-25"]), "2025-06-18");
        assert_eq!(chosen(newest, &["2024-11-05"]), "2025-03-26");
        let oldest = Revision::V2024_11_05;
        assert_eq!(chosen(oldest, &["2024-11-05"]), "2024-11-05");
        assert_eq!(chosen(oldest, &["2025-11-25"]), "2024-11-05");
        assert_eq!(chosen(newest, &["2026-07-28"]), "2025-11-25");
        assert_eq!(chosen(newest, &["nonsense"]), "2025-11-25");
    }

    #[test]
    fn instructions_stand_under_their_servers() {
        let members = [
            introduced("a", json!({"instructions": "Use a.\n"})),
            introduced("b", json!({"instructions": 7})),
            introduced("c", json!({"instructions": "Use c."})),
        ];
        let result = of(Revision::V2025_11_25, &members);
        assert_eq!(
            result["instructions"],
            "Several servers behind one: a, b, c. Tools and prompts are named `<server>__<name>`.\n\n# a\n\nUse \
             a.\n\n# c\n\nUse c."
        );
        assert_eq!(result["serverInfo"]["name"], "all");
        assert!(result.get("_meta").is_none());
    }

    #[test]
    fn members_that_could_not_be_reached_are_named() {
        let members = [introduced("a", json!({}))];
        let result = initialize_result(
            "all",
            GroupNames::Unchanged,
            Revision::V2025_11_25,
            &members,
            &["b"],
        );
        assert_eq!(result["_meta"], json!({"mooring/missing": ["b"]}));
        assert_eq!(
            result["instructions"],
            "Several servers behind one: a. Not available now: b."
        );
    }
}
