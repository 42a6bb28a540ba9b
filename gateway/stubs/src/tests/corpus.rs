//! Tools whose names, words and schemas are as awkward as strangers make them.

use serde_json::json;

use super::super::MountedTool;
use super::tool;

/// Words that end comments, strings and lines of either language.
pub(super) const EVIL: &str = "\"\"\" ''' */ \\ \\\" #{x} ${y} `z`\r\n\"\"\"\nraise SystemExit(66)\n*/ Deno.exit(66); /*\n\
    # type: ignore\n// @ts-nocheck\n@ts-ignore\u{202e}\u{2028}\u{0}\u{7}\u{feff}\u{85}</script> coding: latin-1 \"";

/// All of them, of the servers `github` and others.
pub(super) fn tools() -> Vec<MountedTool> {
    let mut tools = vec![create_issue(), tree(), shapes(), names(), evil(), circles()];
    tools.extend(simple());
    tools.extend(odd_names());
    tools
}

/// What people write.
pub(super) fn create_issue() -> MountedTool {
    let input = json!({
        "type": "object",
        "required": ["title"],
        "properties": {
            "title": {"type": "string", "description": "What it is about."},
            "body": {"type": ["string", "null"]},
            "labels": {"type": "array", "items": {"type": "string"}},
            "priority": {"enum": ["low", "high", 3]},
            "assignee": {"$ref": "#/$defs/User"},
        },
        "$defs": {"User": {
            "type": "object",
            "required": ["login"],
            "properties": {"login": {"type": "string"}, "id": {"type": "integer"}},
        }},
    });
    let output = json!({
        "type": "object",
        "required": ["number", "author"],
        "properties": {
            "number": {"type": "integer"},
            "author": {"$ref": "#/$defs/User"},
            "state": {"const": "open"},
        },
        "$defs": {"User": {
            "type": "object",
            "required": ["login"],
            "properties": {"login": {"type": "string"}},
        }},
    });
    let mut tool = tool("create-issue", input, Some(output));
    tool.title = Some("Create an issue".to_owned());
    tool.description = "Makes an issue.\n\nIt is open then.".to_owned();
    tool.tags = vec!["issues".to_owned()];
    tool.annotations = Some(json!({"destructiveHint": true}));
    tool
}

/// A schema that refers to itself, and one that is a name and nothing else.
fn tree() -> MountedTool {
    let node = json!({
        "type": "object",
        "required": ["value"],
        "properties": {
            "value": {"type": "number"},
            "children": {"type": "array", "items": {"$ref": "#/definitions/Node"}},
            "json": {"$ref": "#/definitions/Json"},
        },
    });
    let json = json!({"anyOf": [
        {"type": "string"}, {"type": "null"},
        {"type": "array", "items": {"$ref": "#/definitions/Json"}},
        {"type": "object", "additionalProperties": {"$ref": "#/definitions/Json"}},
    ]});
    tool(
        "tree",
        json!({"$ref": "#/definitions/Node", "definitions": {"Node": node, "Json": json}}),
        Some(json!({
            "type": "array", "items": {"$ref": "#"},
        })),
    )
}

/// Every word of JSON Schema that is understood.
fn shapes() -> MountedTool {
    let output = json!({"oneOf": [
        {"type": "object", "required": ["kind"], "properties": {"kind": {"const": "a"}, "a": {"type": "integer"}}},
        {"type": "object", "required": ["kind"], "properties": {"kind": {"const": "b"}, "b": {"type": "boolean"}}},
    ]});
    let input = json!({
        "type": "object",
        "additionalProperties": {"type": "integer"},
        "required": ["pair", "both"],
        "properties": {
            "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]},
            "old_pair": {"type": "array", "items": [{"type": "integer"}], "additionalItems": {"type": "boolean"}},
            "both": {"allOf": [
                {"type": "object", "required": ["x"], "properties": {"x": {"type": "integer"}}},
                {"$ref": "#/$defs/Y"},
            ]},
            "either": {"type": "object", "properties": {"p": {"type": "string"}, "q": {"type": "string"}},
                "anyOf": [{"required": ["p"]}, {"required": ["q"]}]},
            "map": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "number"}}},
            "free": {},
            "yes": true,
            "never": {"type": "object", "additionalProperties": false},
            "nullable": {"type": "string", "nullable": true},
            "mixed": {"enum": ["a", 1, null, true, 1.5]},
            "deep": {"type": "object", "properties": {"list": {"type": "array", "items": {
                "type": "object", "properties": {"str": {"type": "string"}, "name": {"type": "string"}}}}}},
            "lost": {"$ref": "#/$defs/Nowhere"},
            "fetched": {"$ref": "https://example.com/schema.json"},
            "escaped": {"$ref": "#/$defs/a~1b%20c"},
        },
        "$defs": {
            "Y": {"properties": {"y": {"type": "string"}}, "required": ["y"]},
            "a/b c": {"type": "string", "enum": ["x\"y", "\\", "\u{202e}", "é"]},
        },
    });
    tool("shapes", input, Some(output))
}

/// Parameters that are no identifiers, and types called like what types are made of.
fn names() -> MountedTool {
    let field = || json!({"type": "string"});
    tool(
        "names",
        json!({
            "type": "object",
            "required": ["user-name", "class"],
            "properties": {
                "user-name": field(), "user_name": field(), "user.name": field(), "class": field(), "1st": field(),
                "_UNSET": field(), "_given": field(), "self": field(), "others": field(), "type": field(),
                "str": field(), "日本": field(), "": field(), "a b": {"type": "object", "properties": {
                    "__private": field(), "class": field(), "x-y": field(), "": field(), "int": field()}},
            },
        }),
        Some(json!({
            "type": "object",
            "properties": {"str": {"$ref": "#/$defs/str"}, "Str": {"$ref": "#/$defs/Str"}, "r": {"$ref": "#/$defs/Result"}},
            "$defs": {"str": {"type": "integer"}, "Str": {"type": "object", "properties": {"a": {"type": "string"}}},
                "Result": {"type": "array", "items": {"type": "string"}}},
        })),
    )
}

/// Every text of it wants to get out.
fn evil() -> MountedTool {
    let field = json!({"type": "string", "description": EVIL, "enum": [EVIL, "ok"]});
    let mut tool = tool(
        EVIL,
        json!({
            "type": "object",
            "description": EVIL,
            "required": [EVIL],
            "properties": {EVIL: field, "plain": {"type": "object", "description": EVIL, "properties": {
                EVIL: {"type": "integer", "description": EVIL}, "type": {"type": "integer", "description": "ignore"}}},
                "defined": {"$ref": "#/$defs/*~1\"\"\"\n"}},
            "$defs": {"*/\"\"\"\n": {"type": "integer"}},
        }),
        Some(json!({"type": "object", "properties": {EVIL: {"const": EVIL, "description": EVIL}}})),
    );
    tool.server = EVIL.to_owned();
    tool.title = Some(EVIL.to_owned());
    tool.description = EVIL.to_owned();
    tool.tags = vec![EVIL.to_owned()];
    tool
}

/// Names that only stand for each other.
fn circles() -> MountedTool {
    tool(
        "circles",
        json!({
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/A"}, "u": {"$ref": "#/$defs/U"}, "s": {"$ref": "#/properties/s"},
                "l": {"$ref": "#/$defs/L"}, "m": {"$ref": "#/$defs/M"}},
            "$defs": {
                "A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"},
                "U": {"anyOf": [{"$ref": "#/$defs/V"}, {"type": "string"}]},
                "V": {"anyOf": [{"$ref": "#/$defs/U"}, {"type": "integer"}]},
                "L": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/M"}}, {"$ref": "#/$defs/M"}]},
                "M": {"anyOf": [{"$ref": "#/$defs/L"}, {"type": "null"}]},
            },
        }),
        Some(json!({"allOf": [{"$ref": "#"}, {"type": "object"}]})),
    )
}

/// Little is said of these.
fn simple() -> Vec<MountedTool> {
    vec![
        tool("nothing", json!({}), None),
        tool(
            "empty",
            json!({"type": "object", "properties": {}}),
            Some(json!({"type": "null"})),
        ),
        tool("wrong", json!("no schema"), Some(json!(17))),
        tool(
            "text",
            json!({"type": "object"}),
            Some(json!({"type": "string"})),
        ),
        tool(
            "choice",
            json!({"oneOf": [
                {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}},
                {"type": "object", "required": ["b"], "properties": {"b": {"type": "integer"}}},
            ]}),
            Some(json!({"type": ["integer", "null"]})),
        ),
        tool(
            "closed",
            json!({"type": "object", "additionalProperties": false,
            "properties": {"only": {"type": "boolean"}}}),
            None,
        ),
    ]
}

/// Names that are words of a language, files of ours, or too alike.
fn odd_names() -> Vec<MountedTool> {
    let plain = |server: &str, name: &str| MountedTool {
        server: server.to_owned(),
        ..tool(
            name,
            json!({"type": "object", "properties": {"x": {"type": "integer"}}}),
            Some(json!({"type": "integer"})),
        )
    };
    let names = [
        "class",
        "list",
        "str",
        "await",
        "Promise",
        "call",
        "mod",
        "Result",
        "Args",
        "1st",
        "_meta",
        "__init__",
        "a-b",
        "a_b",
        "a.b",
        "A_B",
        "same",
        "same_async",
        "create_issue",
        "import",
        "fetch",
        "default",
        "",
        "日本",
        &"long".repeat(100),
        "../../escape",
        "constructor",
        "toString",
        "then",
        "with",
        "others",
    ];
    let mut tools: Vec<MountedTool> = names.iter().map(|name| plain("odd", name)).collect();
    for server in [
        "my-server",
        "my_server",
        "My-Server",
        "call",
        "ToolError",
        "import",
        "_runtime",
        "..",
        "os",
        "sys",
    ] {
        tools.push(plain(server, "ping"));
    }
    tools
}
