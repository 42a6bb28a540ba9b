//! What is found, and what is said where it is not.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what it expects by failing"
)]

use super::*;

use crate::tier::Tier;

#[test]
fn this_machine_has_python_and_most_tools() {
    let found = Runtimes::find(&Options::new(Tier::Strict));
    let Runtime::Present { path, version } = &found.python else {
        panic!("{:?}", found.python)
    };
    assert!(version.starts_with("3."), "{version}");
    assert!(
        path.is_absolute() && path.canonicalize().is_ok_and(|file| file == *path),
        "{path:?}"
    );
    assert!(!found.python_library.is_empty());
    assert_eq!(found.tools.len(), TOOLS.len());
    assert!(found.tool("cat").is_some_and(|tool| tool.path().is_some()));
    assert!(found.tool("sh").is_none());
}

#[test]
fn what_is_missing_says_how_to_get_it() {
    let options = Options {
        python: "/nonexistent/python3".into(),
        deno: Some("/nonexistent/deno".into()),
        tool_directories: vec!["/nonexistent".into()],
        ..Options::new(Tier::Strict)
    };
    let found = Runtimes::find(&options);
    let remedy = |runtime: &Runtime| match runtime {
        Runtime::Missing { remedy } => remedy.clone(),
        Runtime::Present { .. } => panic!("{runtime:?}"),
    };
    assert!(remedy(&found.python).contains("/nonexistent/python3"));
    assert!(remedy(&found.deno).contains("/nonexistent/deno"));
    for (name, tool) in &found.tools {
        assert!(remedy(tool).starts_with(name), "{name}");
    }
    assert!(remedy(&found.tools[3].1).contains("ripgrep"));
    // A file that exists and is no program.
    let options = Options {
        python: "/etc/passwd".into(),
        ..options
    };
    assert!(matches!(
        Runtimes::find(&options).python,
        Runtime::Missing { .. }
    ));
}

#[test]
fn only_the_outermost_directories_are_seen() {
    let paths = [
        "/usr/lib/python3/x",
        "/usr/lib/python3",
        "/opt",
        "/usr/lib/python3/y",
    ]
    .map(PathBuf::from);
    let found = outermost(paths.into_iter());
    assert_eq!(found, ["/usr/lib/python3", "/opt"].map(PathBuf::from));
}
