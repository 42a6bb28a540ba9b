//! The documents that the table of settings makes: `.env.example`, the JSON schema of the file, the reference page, the
//! page for those who come from ContextForge, and the values of the Helm chart with their schema. They are committed; a
//! test holds them equal to what is made here.

mod chart;
mod example;
mod reference;
mod schema;

pub use super::contextforge::contextforge_page;
pub use chart::{chart_schema, chart_values};
pub use example::environment_example;
pub use reference::reference_page;
pub use schema::json_schema;

/// Breaks `text` into lines of at most `width` characters, at spaces; a longer word stands alone.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::path::PathBuf;

    use super::*;

    #[test]
    fn committed_documents_equal_the_generated_ones() {
        #[track_caller]
        fn check(path: &str, generated: &str, command: &str) {
            let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
                .join("../..")
                .join(path);
            let committed = std::fs::read_to_string(&file).unwrap_or_default();
            assert!(
                committed == generated,
                "{path} differs from the table of settings; run: mooring config {command} > {path}"
            );
        }
        check(".env.example", &environment_example(), "example");
        check("docs/settings.schema.json", &json_schema(), "schema");
        check("docs/settings.md", &reference_page(), "reference");
        check("docs/contextforge.md", &contextforge_page(), "contextforge");
        check(
            "charts/mooring/values.yaml",
            &chart_values(),
            "chart-values",
        );
        check(
            "charts/mooring/values.schema.json",
            &chart_schema(),
            "chart-schema",
        );
    }

    #[test]
    fn lines_are_broken_at_spaces() {
        assert_eq!(wrapped("a bb ccc dddddd", 5), ["a bb", "ccc", "dddddd"]);
        assert!(wrapped("  ", 5).is_empty());
    }
}
