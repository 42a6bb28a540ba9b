//! The page of one command.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::{BLESS, figures, glossary, put, text};
use crate::command_spec::{ArgumentSpec, CommandSpec, KeyAccess};

/// Where the examples are, one file for each command.
pub(super) fn examples() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/commands/examples")
}

/// The line that ends the setup of an example.
const SETUP_END: &str = "---\n";

/// The page.
pub(super) fn render(command: &CommandSpec) -> String {
    let mut page = String::new();
    let name = text(command.name).to_uppercase();
    let out = &mut page;
    put(out, &format!("# {name}\n"));
    put(out, &format!("<!-- Made by `{BLESS}`. -->\n"));
    put(out, text(command.summary));
    put(out, &format!("\n```text\n{}\n```\n", command.usage()));
    put(out, command.details);
    arguments(out, command);
    put(out, &format!("\n## Reply\n\n{}.", reply(command.reply)));
    if command.name == c"session.stats" {
        figures::section(out);
    }
    errors(out, command);
    facts(out, command);
    example(out, command);
    page
}

/// A reply that begins with a field's name is a map.
fn reply(reply: &str) -> String {
    if reply.starts_with('`') {
        format!("A map: {reply}")
    } else {
        upper_first(reply)
    }
}

fn upper_first(sentence: &str) -> String {
    let mut characters = sentence.chars();
    let first = characters.next().map(|first| first.to_uppercase());
    first.into_iter().flatten().chain(characters).collect()
}

fn arguments(page: &mut String, command: &CommandSpec) {
    if command.arguments.is_empty() {
        return;
    }
    put(page, "\n## Arguments\n\n| argument | meaning |\n|---|---|");
    let arguments = command.arguments.iter();
    for argument in arguments.flat_map(ArgumentSpec::alternatives) {
        let mut usage = String::new();
        argument.usage(&mut usage);
        let meaning = glossary::meaning(command, argument);
        let _ = writeln!(page, "| `{}` | {meaning} |", usage.trim());
    }
}

fn errors(page: &mut String, command: &CommandSpec) {
    put(page, "\n## Errors\n\n| code | when |\n|---|---|");
    for cause in command.errors {
        let _ = writeln!(page, "| `{}` | {} |", cause.code, cause.when);
    }
    let words = if command.arguments.is_empty() {
        "the command has arguments"
    } else {
        "an argument is missing, out of its limits, unknown or repeated; the message names it"
    };
    let _ = writeln!(page, "| `ERR` | {words} |");
    if text(command.flags).contains("deny-oom") {
        put(
            page,
            "| `OOM` | the server is at its `maxmemory` and the record might grow |",
        );
    }
    let changed = if command.name == c"session.leave" {
        "A command that fails changes nothing, with one exception: after `BUSY` the turn ends within a second."
    } else {
        "A command that fails changes nothing."
    };
    put(page, &format!("\n{changed}"));
}

fn facts(page: &mut String, command: &CommandSpec) {
    put(page, "\n## Facts\n\n| | |\n|---|---|");
    let key = match command.key {
        KeyAccess::Keyless => {
            "none: the command acts on this node; send it to every primary of a cluster"
        }
        KeyAccess::Read => "read",
        KeyAccess::Update => "read and changed",
        KeyAccess::Delete => "read and dropped",
    };
    let flags = list(text(command.flags), "");
    let categories = format!("{} {}", text(command.categories), command.family());
    let categories = list(&categories, "@");
    let mut rows = vec![
        ("since", text(command.since).to_owned()),
        ("complexity", text(command.complexity).to_owned()),
        ("key", key.to_owned()),
        ("flags", flags),
        ("ACL categories", categories),
    ];
    if let Some(tips) = command.tips {
        rows.push(("hints for clients", list(text(tips), "")));
    }
    for (name, value) in rows {
        let _ = writeln!(page, "| {name} | {value} |");
    }
}

fn list(words: &str, before: &str) -> String {
    let words: Vec<_> = words
        .split(' ')
        .map(|word| format!("`{before}{word}`"))
        .collect();
    words.join(", ")
}

fn example(page: &mut String, command: &CommandSpec) {
    let path = examples().join(format!("{}.txt", text(command.name)));
    let lines = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("the example {}: {error}", path.display()));
    put(page, "\n## Example\n");
    let lines = match lines.split_once(SETUP_END) {
        Some((setup, rest)) => {
            put(page, &format!("After\n\n```text\n{setup}```\n"));
            rest
        }
        None => &lines,
    };
    put(page, &format!("```text\n{}\n```", lines.trim_end()));
}
