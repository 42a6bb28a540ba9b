//! The blocks of code that README and guides print, read from their pages.

use std::path::Path;

use anyhow::{Context, ensure};

use crate::paths;

/// One block of code on a page.
#[derive(Debug)]
pub struct Block {
    /// The number of its first fence's line, from 1.
    pub line: usize,
    /// What is between the fences. Lines of a block within a list are indented.
    pub text: String,
}

/// The blocks of a text that open with one of these languages, in order.
#[must_use]
pub fn blocks_in(text: &str, languages: &[&str]) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in text.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        match &mut open {
            None if fence.is_some_and(|language| languages.contains(&language)) => {
                open = Some(Block {
                    line: index + 1,
                    text: String::new(),
                });
            }
            Some(_) if fence == Some("") => blocks.extend(open.take()),
            Some(block) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            None => {}
        }
    }
    blocks
}

/// The blocks of a page that open with this language. The page is named from the root of the repository.
///
/// # Errors
/// The page has none.
pub fn blocks(page: &str, language: &str) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(paths::workspace().join(page))?;
    texts(blocks_in(&text, &[language])).with_context(|| format!("{page}: {language}"))
}

/// The blocks of bash under a heading of a page in docs, in order, with those of the headings below it.
///
/// # Errors
/// The page has no such heading, or it has no commands.
pub fn commands(page: &str, heading: &str) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(paths::workspace().join(Path::new("docs").join(page)))?;
    let mark = format!("\n{heading}\n");
    let (_, section) = text
        .split_once(&mark)
        .with_context(|| format!("{page} has no heading {heading:?}"))?;
    let level = heading.split(' ').next().unwrap_or_default();
    let next = format!("\n{level} ");
    let section = section.split(&next).next().unwrap_or_default();
    texts(blocks_in(section, &["bash"])).with_context(|| format!("{page}, {heading}"))
}

fn texts(blocks: Vec<Block>) -> anyhow::Result<Vec<String>> {
    ensure!(!blocks.is_empty(), "there is no such block of code");
    Ok(blocks.into_iter().map(|block| block.text).collect())
}
