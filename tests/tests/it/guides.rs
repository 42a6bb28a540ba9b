//! The settings that README and guides print, each read from its page: a settings file that is copied is accepted as it is.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;
use mooring_tests::paths;
use tempfile::TempDir;

/// Exit code of `mooring config check` if files or programs that the settings name are missing on this machine. The
/// settings themselves were accepted before it looked for them.
const SERVICE_MISSING: i32 = 69;

/// One settings file on a page.
struct Example {
    page: String,
    line: usize,
    text: String,
}

fn pages() -> anyhow::Result<Vec<PathBuf>> {
    let mut pages = vec![paths::workspace().join("README.md")];
    for entry in std::fs::read_dir(paths::workspace().join("docs"))? {
        let path = entry?.path();
        pages.extend((path.extension() == Some("md".as_ref())).then_some(path));
    }
    Ok(pages)
}

fn examples(page: &Path) -> anyhow::Result<Vec<Example>> {
    let text = std::fs::read_to_string(page)?;
    let mut examples = Vec::new();
    let mut open: Option<Example> = None;
    for (index, line) in text.lines().enumerate() {
        match &mut open {
            None if line == "```toml" => {
                open = Some(Example {
                    page: page.display().to_string(),
                    line: index + 1,
                    text: String::new(),
                });
            }
            Some(_) if line == "```" => examples.extend(open.take()),
            Some(example) => {
                example.text.push_str(line);
                example.text.push('\n');
            }
            None => {}
        }
    }
    Ok(examples)
}

/// The variables that the settings take secrets from, as `"env:NAME"`.
fn variables(text: &str) -> BTreeSet<&str> {
    let named = text.split("\"env:").skip(1);
    named.filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn every_settings_file_on_a_page_is_accepted_as_it_is() -> anyhow::Result<()> {
    let directory = TempDir::with_prefix("mooring-guides-")?;
    let file = directory.path().join("mooring.toml");
    let mut checked = 0;
    for page in pages()? {
        for example in examples(&page)? {
            std::fs::write(&file, &example.text)?;
            let mut command = Command::new(paths::binary("mooring")?);
            command.args(["config", "check", "--config"]).arg(&file);
            command.env_clear().env("HOME", directory.path());
            command.envs(
                variables(&example.text)
                    .into_iter()
                    .map(|name| (name, "a-secret")),
            );
            let output = command.output()?;
            let told = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            let is_accepted = matches!(output.status.code(), Some(0 | SERVICE_MISSING));
            let place = format!("{}, line {}", example.page, example.line);
            ensure!(is_accepted, "{place}: {told}");
            ensure!(!told.contains("nobody may use"), "{place}: {told}");
            checked += 1;
        }
    }
    ensure!(checked > 15, "only {checked} examples were found");
    Ok(())
}
