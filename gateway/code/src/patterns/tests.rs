//! What is blocked, by which name and in which line, and that ordinary code passes.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::Path;

use proptest::prelude::*;

use super::*;

fn standard() -> Patterns {
    Patterns::new(None, None).unwrap()
}

fn check(language: Language, code: &str, expected: Option<(&str, usize)>) {
    let found = standard().check(language, code).err();
    let found = found.as_ref().map(|found| (&*found.pattern, found.line));
    assert_eq!(found, expected, "{code}");
}

#[test]
fn every_standard_pattern_blocks_and_names_its_line() {
    for (code, name) in [
        ("import os\nos . system('ls')", "os.system"),
        ("subprocess.run(['ls'])", "subprocess"),
        ("open('/etc/passwd')", "open of a system path"),
        ("open( rb\"/proc\" )", "open of a system path"),
        ("().__class__.__bases__", "__bases__"),
        ("object.__subclasses__()", "__subclasses__"),
        ("int.__mro__", "__mro__"),
        ("breakpoint()", "breakpoint"),
        ("x = __builtins__", "__builtins__"),
    ] {
        let line = code.matches('\n').count() + 1;
        check(Language::Python, code, Some((name, line)));
        check(
            Language::Python,
            &format!("a = 1\n\n{code}\nb = 2\n"),
            Some((name, line + 2)),
        );
    }
    for (code, name) in [
        ("Deno.run({})", "Deno.run"),
        ("new Deno.Command('ls')", "Deno.Command"),
        ("await fetch('https://x')", "fetch"),
        ("import a from \"https://x/y.ts\"", "import from a URL"),
        ("await import(`http://x`)", "dynamic import of a URL"),
    ] {
        check(Language::TypeScript, code, Some((name, 1)));
    }
}

#[test]
fn patterns_that_warn_let_the_code_run_and_name_its_lines() {
    let warned = |language, code| {
        let warnings = standard().check(language, code).unwrap();
        let named = warnings
            .iter()
            .map(|found| (found.pattern.to_string(), found.line));
        named.collect::<Vec<_>>()
    };
    let code = "x = 1\nexec('y = 2')\n__import__('json')\neval('1')\neval('2')";
    let expected = [("eval", 4), ("exec", 2), ("__import__", 3)];
    let expected = expected.map(|(name, line)| (name.to_owned(), line));
    assert_eq!(warned(Language::Python, code), expected);
    assert_eq!(
        warned(
            Language::Python,
            "df.eval('a + b')\n# exec(x)\nprint('eval(1)')"
        ),
        []
    );
    let eval = [("eval".to_owned(), 1)];
    assert_eq!(
        warned(Language::TypeScript, "eval('1'); /x/.exec('y')"),
        eval
    );
}

#[test]
fn ordinary_code_passes() {
    for code in [
        "import re\nre.compile('a(b)')\n",
        "compile('1', 'a', 'eval')",
        "isinstance(x, int) and getattr(x, 'a') and setattr(x, 'a', 1) and dir(x) and vars(x)",
        "print(type(x).__name__, x.__class__.__name__, globals())",
        "eval('1+1')\nexec('x = 1')\n__import__('json').dumps(1)",
        "class Model:\n    def eval(self):\n        return self\n\nModel().eval()",
        "# breakpoint()\nprint('use breakpoint() with care')\nmy_breakpoint(1)\ngame.breakpoint()",
        "\"\"\"Never do this.\n\nos.system('x')\n\"\"\"",
        "open('/scratch/etc')\nopen('/scratch/a.txt')\nopen('/etcetera')",
        "print('subprocess.run is not needed')",
        "def evaluate(): pass\nevaluate()",
    ] {
        check(Language::Python, code, None);
    }
    for code in [
        "/* fetch(1) */ const a = /x/.exec('y'); eval('1+1')",
        "cache.fetch(1); prefetch(2)",
        "console.log('fetch(')",
        "import a from './b.ts'; await import('./c.ts')",
        "Deno.readTextFile('/scratch/a'); const runner = Deno.runner",
    ] {
        check(Language::TypeScript, code, None);
    }
}

#[test]
fn the_first_line_is_named_and_shown() {
    let code = "a = 1\n  x = os.system(b)  # why\nbreakpoint()";
    let found = standard().check(Language::Python, code).unwrap_err();
    assert_eq!(
        found.to_string(),
        "blocked by the pattern \"os.system\" in line 2, which code here may not use: x = os.system(b)  # why"
    );
    let long = format!("breakpoint({})", "1".repeat(1000));
    let found = standard().check(Language::Python, &long).unwrap_err();
    assert_eq!(found.text.len(), PatternMatch::TEXT_CHARS_MAX);
}

#[test]
fn a_list_of_the_settings_replaces_the_standard_one() {
    let configured = [Regex::new(r"\bpickle\b").unwrap().into()];
    let patterns = Patterns::new(Some(&configured), Some(&[])).unwrap();
    let found = patterns
        .check(Language::Python, "import pickle")
        .unwrap_err();
    assert_eq!(&*found.pattern, r"\bpickle\b");
    patterns.check(Language::Python, "breakpoint()").unwrap();
    patterns
        .check(Language::TypeScript, "Deno.run({})")
        .unwrap();
}

#[test]
fn raw_http_lifts_what_would_block_it_and_nothing_else() {
    let open = standard().with_raw_http();
    let fetch = "await fetch('https://x')";
    open.check(Language::TypeScript, fetch).unwrap();
    open.check(Language::TypeScript, "Deno.run({})")
        .unwrap_err();
    open.check(Language::Python, "breakpoint()").unwrap_err();
    let configured = [
        Regex::new("wget|curl").unwrap().into(),
        Regex::new("pickle").unwrap().into(),
    ];
    let own = Patterns::new(Some(&configured), None)
        .unwrap()
        .with_raw_http();
    own.check(Language::Python, "wget").unwrap();
    own.check(Language::Python, "pickle").unwrap_err();
}

/// A second list would sooner or later be another one.
#[test]
fn no_surface_has_a_list_of_its_own() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![
        root.join(".env.example"),
        root.join("docker-compose.yml"),
        root.join("docs/settings.schema.json"),
        root.join("docs/settings.md"),
    ];
    let mut directories = vec![root.join("deploy")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                files.push(path);
            }
        }
    }
    for file in files {
        let text = std::fs::read(&file).unwrap();
        let text = String::from_utf8_lossy(&text);
        for (_, _, _, expression) in PYTHON.iter().chain(&TYPESCRIPT) {
            assert!(
                !text.contains(expression),
                "{} has {expression}",
                file.display()
            );
        }
        for name in ["__subclasses__", "__builtins__"] {
            assert!(!text.contains(name), "{} has {name}", file.display());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_code_makes_it_fail(code in "\\PC*|[a-z.'\"`#/*\\\\()\n é]{0,80}") {
        for language in [Language::Python, Language::TypeScript] {
            let _ = standard().check(language, &code);
            let masked = mask_code(language, &code);
            prop_assert_eq!(masked.without_comments.len(), code.len());
            prop_assert_eq!(masked.without_strings.len(), code.len());
        }
    }
}
