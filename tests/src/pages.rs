//! The commands that guides print, read from their pages.

use anyhow::{Context, ensure};

use crate::paths;

/// The blocks of bash under a heading of a page in docs, in order, with those of the headings below it.
///
/// # Errors
/// The page has no such heading, or it has no commands.
pub fn commands(page: &str, heading: &str) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(paths::workspace().join("docs").join(page))?;
    let mark = format!("\n{heading}\n");
    let (_, section) = text
        .split_once(&mark)
        .with_context(|| format!("{page} has no heading {heading:?}"))?;
    let level = heading.split(' ').next().unwrap_or_default();
    let next = format!("\n{level} ");
    let section = section.split(&next).next().unwrap_or_default();
    let blocks = section.split("```bash\n").skip(1);
    let blocks = blocks.map(|block| block.split("\n```").next().unwrap_or_default().to_owned());
    let blocks: Vec<String> = blocks.collect();
    ensure!(
        !blocks.is_empty(),
        "{page} has no commands under {heading:?}"
    );
    Ok(blocks)
}
