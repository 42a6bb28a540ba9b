//! Words and schemas of strangers: none of their bytes becomes code.
//!
//! Every text of a tool is made of pieces that end comments, strings and lines, with a mark that no stub has of itself
//! between them. When literals and comments are taken away from a stub, no mark may be left, and nothing but what stubs
//! are made of.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::super::limits;
use super::corpus::EVIL;
use super::*;

/// No stub has it of itself.
const MARK: &str = "!";

const PIECES: &[&str] = &[
    "\"",
    "\"\"",
    "\"\"\"",
    "'",
    "'''",
    "\\",
    "\\\"",
    "*/",
    "*",
    "/",
    "/*",
    "//",
    "#",
    "# type: ignore",
    "\n",
    "\r\n",
    "\r",
    "\u{2028}",
    "\u{85}",
    "\u{c}",
    "\u{0}",
    "\u{202e}",
    "\u{feff}",
    "`",
    "${x}",
    "{",
    "}",
    "(",
    ")",
    ";",
    "@",
    "\nimport os\n",
    "\nraise SystemExit(66)\n",
    " */ Deno.exit(66) /* ",
    "\\N{BULLET}",
    "\\u0022",
    "\\x22",
    "é",
    "😀",
    " ",
    "x",
    "coding: utf-7",
    "@ts-nocheck",
];

fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        3 => proptest::sample::select(PIECES).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.join(MARK))
}

fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({})),
        Just(json!(true)),
        text().prop_map(|text| json!({"const": text})),
        (text(), text()).prop_map(|(a, b)| json!({"enum": [a, b, 1, null], "description": b})),
        text().prop_map(|text| json!({"type": text, "$ref": text})),
        text().prop_map(|text| json!({"$ref": format!("#/$defs/{}", text.replace('~', "~0").replace('/', "~1"))})),
        Just(json!({"$ref": "#"})),
        proptest::sample::select(&["string", "integer", "null", "array", "object"][..]).prop_map(|word| json!({"type": word})),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let fields = proptest::collection::vec((text(), inner.clone()), 0..4).boxed();
        prop_oneof![
            (fields.clone(), text(), any::<bool>()).prop_map(|(fields, words, open)| {
                let required: Vec<String> = fields.iter().take(1).map(|(name, _)| name.clone()).collect();
                let fields: serde_json::Map<String, Value> = fields.into_iter().collect();
                json!({"type": "object", "description": words, "properties": fields, "required": required,
                    "additionalProperties": open})
            }),
            fields.prop_map(|fields| {
                let defs: serde_json::Map<String, Value> = fields.into_iter().collect();
                let refs: Vec<Value> = defs.keys().map(|name| {
                    json!({"$ref": format!("#/$defs/{}", name.replace('~', "~0").replace('/', "~1"))})
                }).collect();
                json!({"$defs": defs, "anyOf": refs})
            }),
            inner.clone().prop_map(|item| json!({"type": "array", "items": item})),
            proptest::collection::vec(inner.clone(), 0..4).prop_map(|kinds| json!({"allOf": kinds})),
            proptest::collection::vec(inner.clone(), 0..4).prop_map(|kinds| json!({"oneOf": kinds})),
            proptest::collection::vec(inner, 1..4).prop_map(|kinds| json!({"type": "array", "prefixItems": kinds})),
        ]
    })
}

fn stranger() -> impl Strategy<Value = MountedTool> {
    let words = [(); 4].map(|()| text());
    (words, schema(), proptest::option::of(schema())).prop_map(
        |([name, server, title, words], input, output)| MountedTool {
            server,
            title: Some(title),
            description: words.clone(),
            tags: vec![words],
            ..tool(&name, input, output)
        },
    )
}

/// What is left of a program without its literals and comments. It panics where one of them does not end.
fn skeleton(text: &str, path: &str) -> String {
    let is_python = path.ends_with(".py") || path.ends_with(".pyi");
    let mut left = String::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let length = if is_python && rest.starts_with("\"\"\"") {
            3 + literal(&rest[3..], "\"\"\"", path)
        } else if letter == '"' {
            let length = 1 + literal(&rest[1..], "\"", path);
            assert!(!rest[..length].contains('\n'), "{path}: {text}");
            length
        } else if (is_python && letter == '#') || (!is_python && rest.starts_with("//")) {
            rest.find('\n').unwrap()
        } else if !is_python && rest.starts_with("/*") {
            2 + rest[2..].find("*/").unwrap() + 2
        } else {
            left.push(letter);
            letter.len_utf8()
        };
        rest = &rest[length..];
    }
    left
}

/// The length of a literal with its end.
fn literal(text: &str, end: &str, path: &str) -> usize {
    let mut letters = text.char_indices();
    while let Some((index, letter)) = letters.next() {
        if text[index..].starts_with(end) {
            return index + end.len();
        }
        if letter == '\\' {
            letters.next();
        }
    }
    panic!("{path}: a literal does not end");
}

/// Everything that a stub is made of, but for literals and comments.
fn check(file: &StubFile) {
    let hidden = |letter: char| {
        (letter.is_control() && letter != '\n')
            || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200b}'..='\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{feff}')
    };
    if file.path.ends_with("json") {
        serde_json::from_str::<Value>(&file.text).unwrap();
        return;
    }
    assert!(!file.text.contains(hidden), "{}", file.text);
    if file.path.starts_with('.') || file.path.starts_with("_runtime") {
        return;
    }
    assert!(file.text.len() <= limits::STUB_BYTES_MAX * 2);
    let left = skeleton(&file.text, &file.path);
    let known =
        |letter: char| letter.is_ascii_alphanumeric() || "_ \n@()[]{}:,.*=|>-<?;".contains(letter);
    let strange: String = left.chars().filter(|letter| !known(*letter)).collect();
    assert_eq!(strange, "", "{}:\n{}", file.path, file.text);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_of_a_stranger_becomes_code(tools in proptest::collection::vec(stranger(), 1..4)) {
        for format in [StubFormat::Python, StubFormat::TypeScript, StubFormat::Json] {
            for file in made(&tools, format) {
                check(&file);
            }
        }
    }
}

#[test]
fn the_worst_words_stay_words() {
    for format in [StubFormat::Python, StubFormat::TypeScript, StubFormat::Json] {
        for file in made(&corpus::tools(), format) {
            check(&file);
        }
    }
    assert!(EVIL.contains("SystemExit"));
}

/// Walks over the trees of programs that Python's own parser makes of them, and looks at every node.
const PARSED: &str = r#"
import ast, sys
NODES = (ast.ImportFrom, ast.Import, ast.Assign, ast.AnnAssign, ast.If, ast.ClassDef, ast.FunctionDef, ast.Return, ast.Expr, ast.Call,
         ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.List, ast.Dict, ast.Tuple, ast.BinOp, ast.BitOr,
         ast.arguments, ast.arg, ast.keyword, ast.alias, ast.Load, ast.Store, ast.Module)
CALLED = {"_tool", "_given", "_asynchronous", "TypedDict", "make_package"}
count = 0
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read(), path)
    for node in ast.walk(tree):
        assert isinstance(node, NODES), (path, ast.dump(node))
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            assert name in CALLED, (path, name)
    count += 1
print(count)
"#;

#[test]
fn pythons_own_parser_sees_nothing_but_what_stubs_are_made_of() {
    let mut runner = TestRunner::deterministic();
    let mut tools = corpus::tools();
    for _ in 0..200 {
        tools.push(stranger().new_tree(&mut runner).unwrap().current());
    }
    let trees = Trees::new(&tools, StubFormat::Python);
    let files = made(&tools, StubFormat::Python);
    let paths = files.iter().map(|file| &file.path);
    let paths: Vec<_> = paths
        .filter(|path| path.contains(".py") && !path.starts_with("_runtime"))
        .collect();
    let program = trees.program("parsed.py", PARSED);
    let parsed = clean(Path::new("/usr/bin/python3"), trees.path())
        .arg(program)
        .args(
            paths
                .iter()
                .map(|path| trees.path().join("tools").join(path)),
        )
        .output()
        .unwrap();
    assert_eq!(words(&parsed).trim(), paths.len().to_string());
}
