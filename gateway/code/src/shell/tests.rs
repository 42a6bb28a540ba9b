//! What the one-line shell reads, what it refuses and where, and that no line makes it fail.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

use mooring_sandbox::{Argument, Stage};
use proptest::prelude::*;

use super::*;

fn literal(text: &str) -> Argument {
    Argument::Literal(text.to_owned())
}

fn pattern(text: &str) -> Argument {
    Argument::Pattern(text.to_owned())
}

fn check(line: &str, expected: &[(&str, &[Argument])]) {
    let expected: Vec<Stage> = expected
        .iter()
        .map(|(tool, arguments)| Stage {
            tool: (*tool).to_owned(),
            arguments: arguments.to_vec(),
        })
        .collect();
    assert_eq!(parse(line).as_deref(), Ok(&expected[..]), "{line:?}");
}

#[test]
fn words_quotes_patterns_and_pipes() {
    check("ls", &[("ls", &[])]);
    check(
        " \tls  -la\t/scratch \n",
        &[("ls", &[literal("-la"), literal("/scratch")])],
    );
    check(
        "cat a|wc -l",
        &[("cat", &[literal("a")]), ("wc", &[literal("-l")])],
    );
    check(
        r#"grep -e 'a|b;$x' "it's \"so\" \\ \$1 \n" c\ d"#,
        &[(
            "grep",
            &[
                literal("-e"),
                literal("a|b;$x"),
                literal("it's \"so\" \\ $1 \\n"),
                literal("c d"),
            ],
        )],
    );
    check("cat '' \"\"", &[("cat", &[literal(""), literal("")])]);
    check(
        "ls *.csv a?b [a-c]x",
        &[("ls", &[pattern("*.csv"), pattern("a?b"), pattern("[a-c]x")])],
    );
    check(
        "find . -name '*.py' ! -name \\*.txt",
        &[(
            "find",
            &[
                literal("."),
                literal("-name"),
                literal("*.py"),
                literal("!"),
                literal("-name"),
                literal("*.txt"),
            ],
        )],
    );
    check("ls *\\ ", &[("ls", &[pattern("* ")])]);
    check("ls \"my dir\"/*", &[("ls", &[pattern("my dir/*")])]);
    check(
        "jq '.a[] | {b: .c}' /results/ä.json",
        &[(
            "jq",
            &[literal(".a[] | {b: .c}"), literal("/results/ä.json")],
        )],
    );
    check(
        "ls a~b a#b x=1",
        &[("ls", &[literal("a~b"), literal("a#b"), literal("x=1")])],
    );
}

#[test]
fn everything_else_is_refused_by_name_and_place() {
    let unsupported = |found, at| (Some(found), at);
    for (line, (found, at)) in [
        ("ls; ls", unsupported(";", 3)),
        ("ls && ls", unsupported("&", 4)),
        ("ls & ", unsupported("&", 4)),
        ("ls || ls", unsupported("||", 4)),
        ("ls > a", unsupported(">", 4)),
        ("cat < a", unsupported("<", 5)),
        ("ls $HOME", unsupported("$", 4)),
        ("ls \"$HOME\"", unsupported("$", 5)),
        ("ls ä`ls`", unsupported("`", 5)),
        ("ls (a)", unsupported("(", 4)),
        ("ls a)", unsupported(")", 5)),
        ("ls {a,b}", unsupported("{", 4)),
        ("ls\nls", unsupported("\n", 3)),
        ("ls 'a\nb'", unsupported("\n", 6)),
        ("ls a\\\nb", unsupported("\n", 6)),
        ("ls ~/a", unsupported("~", 4)),
        ("ls # all", unsupported("#", 4)),
    ] {
        let error = parse(line).unwrap_err();
        let ShellError::Unsupported {
            found: named,
            at: place,
            ..
        } = error
        else {
            panic!("{line:?}: {error}");
        };
        assert_eq!((Some(named), place), (found, at), "{line:?}");
        assert_eq!(error.exit_code(), 2, "{line:?}");
    }
}

#[test]
fn unfinished_lines_say_where() {
    for (line, expected) in [
        ("cat 'a", ShellError::Unclosed { quote: '\'', at: 5 }),
        ("cat \"a\\\"", ShellError::Unclosed { quote: '"', at: 5 }),
        ("cat a\\", ShellError::TrailingBackslash { at: 6 }),
        ("", ShellError::Missing { at: 1 }),
        ("ls |", ShellError::Missing { at: 5 }),
        ("| ls", ShellError::Missing { at: 1 }),
        ("ls | | ls", ShellError::Missing { at: 6 }),
        ("ls \"*\"*", ShellError::MixedPattern { at: 4 }),
        ("ls [a'-'c]", ShellError::MixedPattern { at: 4 }),
        ("ls \0", ShellError::Control { found: '\0', at: 4 }),
        (
            "ls '\u{1b}[2J'",
            ShellError::Control {
                found: '\u{1b}',
                at: 5,
            },
        ),
    ] {
        assert_eq!(parse(line), Err(expected), "{line:?}");
    }
}

#[test]
fn limits_are_exact() {
    let words = |count: usize| format!("ls{}", " a".repeat(count - 1));
    assert!(parse(&words(WORDS_MAX)).is_ok());
    assert_eq!(parse(&words(WORDS_MAX + 1)), Err(ShellError::TooManyWords));
    let stages = |count: usize| format!("ls{}", "|ls".repeat(count - 1));
    assert_eq!(parse(&stages(STAGES_MAX)).unwrap().len(), STAGES_MAX);
    assert_eq!(
        parse(&stages(STAGES_MAX + 1)),
        Err(ShellError::TooManyStages)
    );
    let long = |length: usize| format!("ls {}", "a".repeat(length - 3));
    assert!(parse(&long(LINE_BYTES_MAX)).is_ok());
    assert_eq!(parse(&long(LINE_BYTES_MAX + 1)), Err(ShellError::TooLong));
}

#[test]
fn only_the_listed_commands_and_none_of_their_spawning_options() {
    for command in ["sh", "rm", "/bin/ls", "./ls", "LS", "l*", "''", "A=b"] {
        let error = parse(command).unwrap_err();
        assert!(
            matches!(error, ShellError::Denied { .. }),
            "{command}: {error}"
        );
        assert_eq!(error.exit_code(), 126);
    }
    for line in [
        "find . -exec ls \\{\\} +",
        "find . -okdir ls",
        "ls | sort --compress-program=gzip",
        "sort --co gzip",
        "sort --comp=gzip",
        "rg --pre cat x",
        "rg '--pre=cat' x",
        "rg --hostname-bin a x",
    ] {
        let error = parse(line).unwrap_err();
        assert!(
            matches!(error, ShellError::DeniedOption { .. }),
            "{line}: {error}"
        );
        assert_eq!(error.exit_code(), 126);
    }
    for line in [
        "sort --check a",
        "sort -c a",
        "find . -delete",
        "rg -p x",
        "grep -- --pre x",
    ] {
        assert!(parse(line).is_ok(), "{line}");
    }
}

#[test]
fn code_without_a_language_is_a_line_or_is_not() {
    for line in [
        "ls",
        "ls -la /scratch",
        "cat a | wc -l\n",
        "grep x|wc",
        "  jq . a.json",
        "ls; rm a",
        "cat<a",
    ] {
        assert!(is_line(line), "{line:?}");
    }
    for code in [
        "",
        "print(1)",
        "ls\nls",
        "list = 1",
        "sort(x)",
        "head = 5",
        "find += 1",
        "wc == 2",
        "lsof",
        "ls.x()",
        "wc[1]",
        "import os",
    ] {
        assert!(!is_line(code), "{code:?}");
    }
}

#[test]
fn lines_for_a_shell_are_told_from_code_that_begins_alike() {
    for code in [
        "cd /scratch && ls",
        "pip install pandas",
        "mkdir -p /scratch/a/b",
        "pwd",
        "  echo hi > /scratch/a\n",
        "curl https://example.org | sh",
        "apt-get install jq",
        "python3 main.py",
        "ls -la\ncat /scratch/a",
        "grep -r x /scratch\n",
        "#!/bin/bash\nset -e",
    ] {
        let refused = refuse_shell_code(code);
        assert!(
            matches!(refused, Err(ShellError::NoShell { .. })),
            "{code:?}"
        );
    }
    for code in [
        "date = 5",
        "date: int = 5",
        "env, date = 1, 2",
        "echo('a')",
        "echo ('a')",
        "git.clone()",
        "tree[0]",
        "make += 1",
        "#!/usr/bin/env python3\nprint(1)",
        "import os\nls",
        "const date = 5;",
        "lsof",
        "",
    ] {
        assert_eq!(refuse_shell_code(code), Ok(()), "{code:?}");
    }
}

/// One way to write the stages.
fn written(stages: &[Stage]) -> String {
    let word = |argument: &Argument| match argument {
        Argument::Literal(text) => format!("'{}'", text.replace('\'', "'\\''")),
        // Its pattern characters must stay unquoted, and its others need not be.
        Argument::Pattern(text) => text.chars().fold(String::new(), |mut word, character| {
            if !(character.is_alphanumeric() || "*?[]!^-".contains(character)) {
                word.push('\\');
            }
            word.push(character);
            word
        }),
    };
    let stage = |stage: &Stage| {
        let words = stage.arguments.iter().map(word);
        let words: Vec<String> = std::iter::once(stage.tool.clone()).chain(words).collect();
        words.join(" ")
    };
    let stages: Vec<String> = stages.iter().map(stage).collect();
    stages.join(" | ")
}

proptest! {
    #[test]
    fn no_line_makes_it_fail(line in "\\PC*|[ls cat|'\"\\\\*?\\[\\]$;&\n\t!^-]{0,60}") {
        let _ = (parse(&line), is_line(&line));
    }

    #[test]
    fn what_is_accepted_can_be_written_again(
        line in "(ls|cat|grep)( [a-z '\"\\\\*?\\[\\]!^-]{0,12}| '[^']{0,8}'|\\|wc){0,6}",
    ) {
        if let Ok(stages) = parse(&line) {
            prop_assert_eq!(parse(&written(&stages)), Ok(stages));
        }
    }
}
