//! docs/commands.md and docs/commands/: the reference pages, generated from the tables that register the commands.
//!
//! Invariant: the pages say what the tables say; a test fails for an outdated page and for the page of a removed
//! command. The limits of arguments are in `glossary` and the examples in `commands/examples`;
//! redis-module/tests/server/documentation.rs runs the examples against a server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking, and pages are made in tests only"
)]

mod figures;
mod glossary;
mod index;
mod page;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::command_spec::{ArgumentKind, ArgumentSpec, KeyAccess};
use crate::commands::TABLE;
use crate::failure::CODES;

/// The command that regenerates the pages.
const BLESS: &str = "MOORING_BLESS=1 cargo test -p mooring-module reference";

/// All pages by their path under docs/.
fn pages() -> BTreeMap<String, String> {
    let mut pages: BTreeMap<_, _> = TABLE
        .iter()
        .map(|command| {
            (
                format!("commands/{}.md", text(command.name)),
                page::render(command),
            )
        })
        .collect();
    pages.insert("commands.md".to_owned(), index::render());
    pages
}

fn text(value: &std::ffi::CStr) -> &str {
    value.to_str().expect("the tables are UTF-8")
}

/// Adds a line to a page.
fn put(page: &mut String, line: &str) {
    page.push_str(line);
    page.push('\n');
}

fn docs() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

#[test]
fn the_reference_pages_say_what_the_tables_say() {
    let is_blessed = std::env::var_os("MOORING_BLESS").is_some();
    let pages = pages();
    for (name, page) in &pages {
        let path = docs().join(name);
        if is_blessed {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, page).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(*page == written, "docs/{name} is outdated: {BLESS}");
    }
    for entry in std::fs::read_dir(docs().join("commands")).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("commands/{}", path.file_name().unwrap().display());
        if !pages.contains_key(&name) && is_blessed {
            std::fs::remove_file(&path).unwrap();
        }
        assert!(
            pages.contains_key(&name) || is_blessed,
            "docs/{name} describes no command: {BLESS}"
        );
    }
}

#[test]
fn every_example_is_that_of_a_command() {
    for entry in std::fs::read_dir(page::examples()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(
            TABLE.iter().any(|command| text(command.name) == name),
            "{} is the example of no command",
            path.display()
        );
    }
}

#[test]
fn every_command_is_registered_in_lower_case_and_once() {
    let mut names: Vec<_> = TABLE.iter().map(|command| command.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), TABLE.len());
    for name in names {
        assert!(
            !name.to_bytes().iter().any(u8::is_ascii_uppercase),
            "{name:?}"
        );
    }
}

/// The least number of words of an argument.
fn words_least(argument: &ArgumentSpec) -> i32 {
    let token = i32::from(argument.token.is_some());
    match argument.kind {
        _ if argument.optional => 0,
        ArgumentKind::Either => 0,
        ArgumentKind::Word => token,
        ArgumentKind::Block => token + argument.parts.iter().map(words_least).sum::<i32>(),
        ArgumentKind::Key | ArgumentKind::Text | ArgumentKind::Integer => token + 1,
    }
}

#[test]
fn arity_and_access_are_those_of_the_arguments() {
    for command in TABLE {
        let name = text(command.name);
        let least = 1 + command.arguments.iter().map(words_least).sum::<i32>();
        let is_open = command
            .arguments
            .iter()
            .any(|argument| argument.optional || argument.multiple || !argument.parts.is_empty());
        let arity = if is_open { -least } else { least };
        assert_eq!(command.arity, arity, "{name}");
        let first = command.arguments.first().map(|argument| argument.kind);
        let has_key = first == Some(ArgumentKind::Key);
        assert_eq!(has_key, command.key != KeyAccess::Keyless, "{name}");
    }
}

#[test]
fn flags_and_categories_agree() {
    for command in TABLE {
        let name = text(command.name);
        let flags: Vec<_> = text(command.flags).split(' ').collect();
        let categories: Vec<_> = text(command.categories).split(' ').collect();
        let has = |flag| flags.contains(&flag);
        let is_in = |category| categories.contains(&category);
        assert_eq!(has("write"), is_in("write"), "{name}");
        assert_eq!(has("readonly"), is_in("read"), "{name}");
        assert_eq!(has("fast"), is_in("fast"), "{name}");
        assert_eq!(has("fast"), !is_in("slow"), "{name}: fast or slow");
        assert!(!has("deny-oom") || has("write"), "{name}");
        assert!(["session", "worker"].contains(&command.family()), "{name}");
        match command.key {
            KeyAccess::Keyless => assert!(!has("write"), "{name} has no key to write"),
            KeyAccess::Update | KeyAccess::Delete => assert!(has("write"), "{name}"),
            // A write command may only read its key: turns are not in the keyspace.
            KeyAccess::Read => {}
        }
    }
}

#[test]
fn pages_name_known_codes_and_end_their_sentences() {
    for command in TABLE {
        let name = text(command.name);
        for cause in command.errors {
            assert!(CODES.contains(&cause.code), "{name}: {}", cause.code);
            assert!(!cause.when.ends_with('.'), "{name}: {}", cause.when);
        }
        assert!(text(command.summary).ends_with('.'), "{name}");
        assert!(command.details.ends_with('.'), "{name}");
        assert!(!command.reply.ends_with('.'), "{name}");
    }
}
