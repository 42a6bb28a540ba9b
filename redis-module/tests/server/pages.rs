//! The reference pages of the commands, read back: docs/commands/, which a unit test of the module holds equal to the
//! table that it registers by. What a server says is compared with them.

use std::collections::BTreeMap;

use anyhow::Context;
use mooring_tests::paths;

/// The page of one command.
pub(super) struct Page {
    /// Its name in lower case.
    pub(super) name: String,
    /// The whole page.
    pub(super) text: String,
}

impl Page {
    /// The sentence under the title.
    pub(super) fn summary(&self) -> anyhow::Result<&str> {
        self.text.split("\n\n").nth(2).context("a summary")
    }

    /// The grammar in one line.
    pub(super) fn usage(&self) -> anyhow::Result<&str> {
        let (_, rest) = self.text.split_once("```text\n").context("a grammar")?;
        rest.lines().next().context("a line of grammar")
    }

    /// A section by its title, without it.
    pub(super) fn section(&self, title: &str) -> anyhow::Result<&str> {
        let title = format!("\n## {title}\n");
        let (_, rest) = self.text.split_once(&title).context(title)?;
        Ok(rest.split("\n## ").next().unwrap_or(rest))
    }

    /// The rows of a section's table.
    pub(super) fn rows(&self, title: &str) -> anyhow::Result<Vec<(String, String)>> {
        let lines = self.section(title)?.lines();
        let rows = lines.filter_map(|line| {
            let row = line.strip_prefix("| ")?.strip_suffix(" |")?;
            row.split_once(" | ")
        });
        Ok(rows
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect())
    }

    /// One of the facts at the end.
    pub(super) fn fact(&self, name: &str) -> anyhow::Result<Option<String>> {
        let facts: BTreeMap<_, _> = self.rows("Facts")?.into_iter().collect();
        Ok(facts.get(name).cloned())
    }

    /// The words in backticks of a fact; none where the page does not tell it.
    pub(super) fn words(&self, name: &str) -> anyhow::Result<Vec<String>> {
        let fact = self.fact(name)?.unwrap_or_default();
        Ok(fact
            .split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect())
    }

    /// Whether the command names a key.
    pub(super) fn has_key(&self) -> anyhow::Result<bool> {
        let key = self.fact("key")?.context("what it does with its key")?;
        Ok(!key.starts_with("none"))
    }
}

/// All pages, by the names of the commands.
pub(super) fn all() -> anyhow::Result<Vec<Page>> {
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(paths::workspace().join("docs/commands"))? {
        let path = entry?.path();
        let name = path.file_stem().context("a name")?;
        pages.push(Page {
            name: name.to_string_lossy().into_owned(),
            text: std::fs::read_to_string(&path)?,
        });
    }
    pages.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(pages)
}
