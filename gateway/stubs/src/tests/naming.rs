//! Names as identifiers, and the files that are called by them.

use std::collections::BTreeSet;

use super::super::names::{OFFERED, Role, identifiers};
use super::*;

fn check(role: Role, names: &[&str], expected: &[&str]) {
    let found = identifiers(names.iter().copied(), role);
    let found: Vec<&str> = names.iter().map(|name| found[name].as_str()).collect();
    assert_eq!(found, expected);
    let mut reversed: Vec<&str> = names.to_vec();
    reversed.reverse();
    let again = identifiers(reversed, role);
    assert!(
        names
            .iter()
            .zip(expected)
            .all(|(name, wanted)| again[name] == *wanted)
    );
}

#[test]
fn names_become_identifiers_and_no_two_the_same() {
    check(
        Role::Tool,
        &[
            "create-issue",
            "a.b/c",
            "1st",
            "_x",
            "__init__",
            "",
            "日本",
            "class",
            "list",
            "await",
            "Result",
        ],
        &[
            "create_issue",
            "a_b_c",
            "tool_1st",
            "tool__x",
            "tool___init__",
            "tool_",
            "tool___",
            "class_",
            "list_",
            "await_",
            "Result_",
        ],
    );
    check(
        Role::Server,
        &[
            "my-server",
            "my_server",
            "My-Server",
            "call",
            "ToolError",
            "..",
            "github",
        ],
        &[
            "my_server_3",
            "my_server",
            "My_Server_2",
            "call_",
            "ToolError_",
            "server___",
            "github",
        ],
    );
    check(
        Role::Parameter,
        &[
            "user-name",
            "user_name",
            "user.name",
            "class",
            "id",
            "_x",
            "A",
            "a",
        ],
        &[
            "user_name_2",
            "user_name",
            "user_name_3",
            "class_",
            "id",
            "arg__x",
            "A",
            "a",
        ],
    );
    // What is awaited is a name too.
    check(
        Role::Tool,
        &["same", "same_async", "x_async"],
        &["same", "same_async_2", "x_async"],
    );
    check(
        Role::Tool,
        &["a-b", "a_b", "a_b_2"],
        &["a_b_3", "a_b", "a_b_2"],
    );
    let long = "x".repeat(300);
    let names = [long.as_str(), &long[..200]];
    let found = identifiers(names, Role::Tool);
    assert_eq!((found[names[0]].len(), found[names[1]].len()), (102, 100));
}

#[test]
fn no_server_takes_a_name_that_the_runtime_offers() {
    let exported: BTreeSet<&str> = RUNTIME_TYPESCRIPT
        .lines()
        .filter_map(|line| line.strip_prefix("export "))
        .filter_map(|line| {
            let line = line.strip_prefix("async ").unwrap_or(line);
            let (_, name) = line.split_once(' ')?;
            name.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
                .next()
        })
        .collect();
    let (_, list) = RUNTIME_PYTHON.split_once("__all__ = [\n").unwrap();
    let list = list.split_once("]\n").unwrap().0;
    let offered: BTreeSet<&str> = list
        .lines()
        .map(|line| line.trim_matches([' ', '"', ',']))
        .collect();
    assert!(exported.len() > 15 && offered.len() > 15);
    let mut known: BTreeSet<&str> = OFFERED.iter().copied().collect();
    known.remove("mod");
    let all: BTreeSet<&str> = exported.union(&offered).copied().collect();
    assert_eq!(all, known);
}

#[test]
fn paths_are_two_names_at_most_and_all_different() {
    for format in [StubFormat::Python, StubFormat::TypeScript, StubFormat::Json] {
        let mut seen = BTreeSet::new();
        for file in made(&corpus::tools(), format) {
            let parts: Vec<&str> = file.path.split('/').collect();
            assert!(parts.len() <= 2, "{}", file.path);
            for part in parts {
                let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
                assert!(
                    part.bytes().all(known) && part.len() <= 255,
                    "{}",
                    file.path
                );
                assert!(!matches!(part, "" | "." | ".."));
            }
            assert!(seen.insert(file.path.to_ascii_lowercase()), "{}", file.path);
        }
    }
}

#[test]
fn a_tree_has_what_the_format_is_for() {
    let tools = [corpus::create_issue()];
    let paths = |format| {
        let mut paths: Vec<String> = made(&tools, format)
            .into_iter()
            .map(|file| file.path)
            .collect();
        paths.sort();
        paths
    };
    let always = [
        ".search_index",
        "__init__.py",
        "__init__.pyi",
        "_catalog.json",
        "_import_map.json",
        "_runtime.py",
        "_runtime.ts",
        "_schema.json",
    ];
    let with = |more: &[&str]| {
        let mut all: Vec<String> = always
            .iter()
            .chain(more)
            .map(|path| (*path).to_owned())
            .collect();
        all.sort();
        all
    };
    assert_eq!(
        paths(StubFormat::Python),
        with(&[
            "github/__init__.py",
            "github/__init__.pyi",
            "github/_meta.json",
            "github/create_issue.py",
            "mod.ts",
        ])
    );
    assert_eq!(
        paths(StubFormat::TypeScript),
        with(&[
            "github/_meta.json",
            "github/create_issue.ts",
            "github/mod.ts",
            "mod.ts",
        ])
    );
    assert_eq!(
        paths(StubFormat::Json),
        with(&["github/_meta.json", "github/create_issue.json", "mod.ts"])
    );
}

#[test]
fn catalog_and_index_tell_of_every_tool() {
    let files = made(&[corpus::create_issue()], StubFormat::Python);
    let read = |path: &str| -> Value { serde_json::from_str(text_of(&files, path)).unwrap() };
    let catalog = read("_catalog.json");
    assert_eq!(catalog["generated_at"], NOW);
    assert_eq!(
        (&catalog["server_id"], &catalog["tool_count"]),
        (&json!("sandbox"), &json!(1))
    );
    let entry = &catalog["tools"][0];
    assert_eq!(entry["original_name"], "create-issue");
    assert_eq!(entry["title"], "Create an issue");
    assert_eq!(
        (&entry["package"], &entry["function"]),
        (&json!("github"), &json!("create_issue"))
    );
    assert_eq!(entry["path"], "github/create_issue.py");
    assert_eq!(entry["annotations"], json!({"destructiveHint": true}));
    let meta = read("github/_meta.json");
    assert_eq!(
        (&meta["server"], &meta["tool_count"]),
        (&json!("github"), &json!(1))
    );
    assert_eq!(
        (&meta["auth_status"], &meta["health"]),
        (&json!("unknown"), &json!("unknown"))
    );
    assert_eq!(meta["tools"][0]["summary"], "Makes an issue.");
    assert_eq!(
        read("_schema.json"),
        json!({
            "version": SCHEMA_VERSION,
            "roots": ["/tools", "/skills", "/scratch", "/results"],
            "stub_language": "python",
            "stub_format": "python",
        })
    );
    assert_eq!(
        text_of(&files, ".search_index"),
        "github/create_issue.py:create-issue Create an issue Makes an issue. It is open then. issues assignee body labels \
         priority title\n"
    );
    let files = made(&[corpus::create_issue()], StubFormat::Json);
    let described: Value =
        serde_json::from_str(text_of(&files, "github/create_issue.json")).unwrap();
    assert_eq!(described["input_schema"]["required"], json!(["title"]));
}

#[test]
fn a_stub_reads_like_what_a_person_would_write() {
    let files = made(&[corpus::create_issue()], StubFormat::Python);
    assert_eq!(
        text_of(&files, "github/create_issue.py"),
        include_str!("create_issue.py")
    );
    let files = made(&[corpus::create_issue()], StubFormat::TypeScript);
    assert_eq!(
        text_of(&files, "github/create_issue.ts"),
        include_str!("create_issue.ts")
    );
}
