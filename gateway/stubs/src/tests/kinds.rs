//! Schemas as types, one table for both languages.

use super::super::limits;
use super::*;

/// What a result of this schema is called in Python and TypeScript, on one line each.
fn types_of(schema: Value) -> (String, String) {
    let tools = [tool("t", json!({}), Some(schema))];
    let python = made(&tools, StubFormat::Python);
    let python = text_of(&python, "github/t.py");
    let python = between(python, "import typing as _t\n", "else:\n");
    let typescript = made(&tools, StubFormat::TypeScript);
    let typescript = text_of(&typescript, "github/t.ts");
    let result = between(typescript, "export type Result = ", ";\n\n/**");
    let named = between(typescript, "\"../_runtime.ts\";\n", "\nexport type Args");
    (one_line(python), one_line(&format!("{named} {result}")))
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).unwrap();
    rest.split_once(end).unwrap().0
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_stub_tells_what_a_tool_takes_where_a_parameter_is_left_out() {
    let input = json!({"type": "object", "properties": {
        "days": {"type": "integer", "default": 3, "description": "How many days."},
        "unit": {"type": "string", "default": "C"},
        "note": {"type": "string", "default": null, "title": "Note"},
        "long": {"type": "string", "default": "x".repeat(limits::DEFAULT_BYTES_MAX)},
    }});
    let tools = [tool("t", input, None)];
    for (format, path) in [
        (StubFormat::Python, "github/t.py"),
        (StubFormat::TypeScript, "github/t.ts"),
    ] {
        let files = made(&tools, format);
        let stub = text_of(&files, path);
        assert!(stub.contains("How many days. Default: 3."), "{stub}");
        assert!(stub.contains("Default: \"C\"."), "{stub}");
        assert_eq!(stub.matches("Default:").count(), 2, "{stub}");
    }
}

#[test]
fn schemas_are_types_of_both_languages() {
    let alias = |written: &str| format!("Result: _t.TypeAlias = {written}");
    let table = [
        (json!({}), "_t.Any", "any"),
        (json!(true), "_t.Any", "any"),
        (json!({"type": "string"}), "str", "string"),
        (json!({"type": "integer"}), "int", "number"),
        (json!({"type": "number"}), "float", "number"),
        (json!({"type": "boolean"}), "bool", "boolean"),
        (json!({"type": "something"}), "_t.Any", "any"),
        (
            json!({"type": ["null", "string"]}),
            "_t.Union[str, None]",
            "string | null",
        ),
        (json!({"type": ["integer", "number"]}), "float", "number"),
        (json!({"const": "a"}), "_t.Literal[\"a\"]", "\"a\""),
        (json!({"const": null, "nullable": true}), "_t.Any", "null"),
        (
            json!({"enum": ["a", 1, true, null]}),
            "_t.Union[_t.Literal[\"a\", 1, True], None]",
            "\"a\" | 1 | true | null",
        ),
        (json!({"enum": [1.5, 2.5]}), "float", "number"),
        (
            json!({"enum": [{"a": 1}, [1]]}),
            "_t.Union[dict[str, _t.Any], list[_t.Any]]",
            "{ [key: string]: any } | Array<any>",
        ),
        (
            json!({"enum": [9_007_199_254_740_993_u64]}),
            "int",
            "number",
        ),
        (json!({"type": "array"}), "list[_t.Any]", "Array<any>"),
        (
            json!({"items": {"type": "string"}}),
            "list[str]",
            "Array<string>",
        ),
        (
            json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "minItems": 1}),
            "list[_t.Union[str, int]]",
            "[string, (number)?]",
        ),
        (
            json!({"type": "array", "items": [{"type": "string"}], "additionalItems": {"type": "boolean"}}),
            "list[_t.Union[str, bool]]",
            "[string, ...Array<boolean>]",
        ),
        (
            json!({"type": "object"}),
            "dict[str, _t.Any]",
            "{ [key: string]: any }",
        ),
        (
            json!({"additionalProperties": {"type": "integer"}}),
            "dict[str, int]",
            "{ [key: string]: number }",
        ),
        (json!({"anyOf": [{"type": "string"}, {}]}), "_t.Any", "any"),
        (
            json!({"oneOf": [{"type": "string"}, {"type": "null"}, {"const": "x"}]}),
            "_t.Union[_t.Literal[\"x\"], str, None]",
            "\"x\" | string | null",
        ),
        (
            json!({"allOf": [{"type": "string"}, {"enum": ["a", 1]}]}),
            "_t.Literal[\"a\"]",
            "\"a\"",
        ),
        (
            json!({"allOf": [{"type": "string"}, {"type": "integer"}]}),
            "str",
            "string",
        ),
        (json!({"$ref": "#/nowhere"}), "_t.Any", "any"),
        (json!({"$ref": "other.json"}), "_t.Any", "any"),
        (json!({"$ref": 3, "type": "string"}), "str", "string"),
    ];
    for (schema, python, typescript) in table {
        assert_eq!(
            types_of(schema.clone()),
            (alias(python), typescript.to_owned()),
            "{schema}"
        );
    }
}

#[test]
fn objects_are_dictionaries_with_their_words() {
    let (python, typescript) = types_of(json!({
        "type": "object",
        "required": ["a"],
        "properties": {
            "a": {"type": "string", "description": "The\nfirst."},
            "b": {"type": "object", "properties": {"x-y": {"type": "integer"}}},
        },
    }));
    assert_eq!(
        python,
        "ResultB = _t.TypedDict(\"ResultB\", { \"x-y\": _t.NotRequired[int], }) \
         class Result(_t.TypedDict): #: The first. a: str b: _t.NotRequired[ResultB]"
    );
    assert_eq!(
        typescript,
        "{ /** * The * first. */ a: string; b?: { \"x-y\"?: number; }; }"
    );
}

#[test]
fn names_of_the_schema_are_kept_and_may_go_in_circles() {
    let (python, typescript) = types_of(json!({
        "$ref": "#/$defs/list node",
        "$defs": {"list node": {"type": "object", "required": ["next"], "properties": {
            "next": {"anyOf": [{"$ref": "#/$defs/list%20node"}, {"$ref": "#/$defs/list node"}, {"type": "null"}]}}}},
    }));
    assert_eq!(
        python,
        "class ListNode(_t.TypedDict): next: List20node | ListNode | None \
         class List20node(_t.TypedDict): next: List20node | ListNode | None \
         Result: _t.TypeAlias = \"ListNode\""
    );
    assert!(typescript.ends_with(" ListNode"), "{typescript}");
    // Of U and V, which stand for each other, what is left when the circle is opened.
    let (_, typescript) = types_of(json!({
        "$ref": "#/$defs/U",
        "$defs": {
            "U": {"anyOf": [{"$ref": "#/$defs/V"}, {"type": "string"}]},
            "V": {"anyOf": [{"$ref": "#/$defs/U"}, {"type": "integer"}]},
        },
    }));
    assert_eq!(
        typescript,
        "export type U = V | string; export type V = number; U"
    );
    let (_, typescript) = types_of(json!({"$ref": "#"}));
    assert_eq!(typescript, "export type Type = any; Type");
}

#[test]
fn what_is_beyond_a_limit_is_anything() {
    let mut deep = json!({"type": "string"});
    for _ in 0..1_000 {
        deep = json!({"type": "array", "items": deep});
    }
    let (_, typescript) = types_of(deep);
    let depth = limits::DEPTH_MAX;
    assert_eq!(
        typescript,
        format!("{}any{}", "Array<".repeat(depth), ">".repeat(depth))
    );

    let values: Vec<String> = (0..=limits::LITERALS_MAX).map(|n| n.to_string()).collect();
    assert_eq!(types_of(json!({"enum": values})).1, "string");
    let kinds: Vec<Value> = (0..=limits::ALTERNATIVES_MAX)
        .map(|n| json!({"type": "object", "properties": {format!("p{n}"): {}}}))
        .collect();
    assert_eq!(types_of(json!({"anyOf": kinds})).1, "any");
    assert_eq!(types_of(json!({"const": "x".repeat(1_000)})).1, "string");
    let fields: serde_json::Map<String, Value> = (0..=limits::FIELDS_MAX)
        .map(|n| (format!("f{n}"), json!({})))
        .collect();
    assert_eq!(
        types_of(json!({"properties": fields})).1,
        "{ [key: string]: any }"
    );
}

#[test]
fn a_schema_that_grows_without_end_is_cut_off() {
    // Each level has both of the next: read in place, there would be 2^60 of them.
    let mut defs = serde_json::Map::new();
    for level in 0..60 {
        let next = json!({"$ref": format!("#/$defs/{}", level + 1)});
        let object = |name: &str| json!({"type": "object", "properties": {name: {"allOf": [next, {"type": "object"}]}}});
        defs.insert(
            level.to_string(),
            json!({"allOf": [object("a"), object("b"), next]}),
        );
    }
    let schema = json!({"$ref": "#/$defs/0", "$defs": defs});
    let wide: Vec<Value> = (0..32)
        .map(|n| json!({"type": "object", "properties": {format!("p{n}"): {}}}))
        .collect();
    let product =
        json!({"anyOf": wide, "oneOf": wide, "allOf": [{"anyOf": wide}, {"oneOf": wide}]});
    for schema in [schema, product] {
        for format in [StubFormat::Python, StubFormat::TypeScript] {
            let files = made(&[tool("t", schema.clone(), Some(schema.clone()))], format);
            let stub = files
                .iter()
                .find(|file| file.path.starts_with("github/t."))
                .unwrap();
            assert!(stub.text.len() <= limits::STUB_BYTES_MAX);
        }
    }
}

#[test]
fn a_stub_that_would_be_too_long_has_no_types() {
    let words = "w".repeat(limits::FIELD_DESCRIPTION_CHARS_MAX);
    let fields: serde_json::Map<String, Value> = (0..limits::FIELDS_MAX)
        .map(|n| {
            (
                format!("f{n}"),
                json!({"type": "string", "description": words}),
            )
        })
        .collect();
    let files = made(
        &[tool("t", json!({"properties": fields}), None)],
        StubFormat::Python,
    );
    let stub = text_of(&files, "github/t.py");
    assert!(
        stub.contains("def t(**others: _t.Any) -> Result:"),
        "{stub}"
    );
}
