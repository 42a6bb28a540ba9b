//! The blocks of code that README and guides print, read from their pages.
//!
//! Invariant: a page whose blocks a test runs has no block that is neither run nor listed with the reason why it is not.

use std::path::Path;

use anyhow::{Context, ensure};

use crate::paths;

/// One block of code on a page.
#[derive(Clone, Debug)]
pub struct Block {
    /// The number of its first fence's line, from 1.
    pub line: usize,
    /// What follows the first fence, such as `toml`; empty if nothing does.
    pub language: String,
    /// What is between the fences, without the indent of its list.
    pub text: String,
}

/// A block that no test runs.
#[derive(Clone, Copy, Debug)]
pub struct NotRun {
    /// The page, named from the root of the repository.
    pub page: &'static str,
    /// Text that only this block of the page has.
    pub part: &'static str,
    /// Why it is not run.
    pub reason: &'static str,
}

/// A page whose blocks a test takes one by one and runs.
#[derive(Debug)]
pub struct Page {
    name: String,
    text: String,
    left: Vec<Block>,
    fills: Vec<(String, String)>,
}

impl Page {
    /// The page of this name, from the root of the repository.
    ///
    /// # Errors
    /// There is no such page.
    pub fn read(name: &str) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(paths::workspace().join(name))
            .with_context(|| name.to_owned())?;
        Ok(Self {
            name: name.to_owned(),
            left: all_blocks_in(&text),
            text,
            fills: Vec::new(),
        })
    }

    /// Its whole text, as it is.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What is below this heading, up to the next one of its level.
    ///
    /// # Errors
    /// The page has no such heading.
    pub fn section(&self, heading: &str) -> anyhow::Result<&str> {
        section_of(&self.text, heading).with_context(|| format!("{}: {heading}", self.name))
    }

    /// What a reader puts in place of an address, a path or an id that the page prints, from now on.
    ///
    /// # Errors
    /// The page does not print it.
    pub fn fill(&mut self, printed: &str, real: impl Into<String>) -> anyhow::Result<()> {
        ensure!(
            self.text.contains(printed),
            "{} does not print {printed:?}",
            self.name
        );
        self.fills.retain(|(other, _)| other != printed);
        self.fills.push((printed.to_owned(), real.into()));
        // What contains another one is replaced first.
        self.fills
            .sort_by_key(|(printed, _)| std::cmp::Reverse(printed.len()));
        Ok(())
    }

    /// Takes the one block of this language that is this text, or else has it, filled in.
    ///
    /// # Errors
    /// The page has none, or several.
    pub fn take(&mut self, language: &str, part: &str) -> anyhow::Result<String> {
        let is_exact = self.left.iter().any(|block| block.text == part);
        let is_asked = |block: &Block| {
            let is_like = block.text == part || !is_exact && block.text.contains(part);
            block.language == language && is_like
        };
        let block = self.remove(is_asked);
        let block = block.with_context(|| format!("a block of {language} with {part:?}"))?;
        Ok(self.filled(&block.text))
    }

    /// The code within the page's text that begins like this, filled in.
    ///
    /// # Errors
    /// There is none.
    pub fn inline(&self, start: &str) -> anyhow::Result<String> {
        let spans = inline_code(&self.text);
        let mut spans = spans.iter().filter(|span| span.starts_with(start));
        let span = spans.next();
        let span = span.with_context(|| format!("{}: no code begins {start:?}", self.name))?;
        Ok(self.filled(span))
    }

    /// All blocks were taken, except those of this list.
    ///
    /// # Errors
    /// A block is neither taken nor in the list, or the list has one that is not there.
    pub fn finish(mut self, not_run: &[NotRun]) -> anyhow::Result<()> {
        for listed in not_run {
            if listed.page == self.name {
                self.remove(|block| block.text.contains(listed.part))
                    .with_context(|| format!("{:?} is run, or is not there", listed.part))?;
            }
        }
        ensure!(
            self.left.is_empty(),
            "{}: blocks that no test runs: {:#?}",
            self.name,
            self.left
        );
        Ok(())
    }

    fn remove(&mut self, is_asked: impl Fn(&Block) -> bool) -> anyhow::Result<Block> {
        let mut asked =
            (0..self.left.len()).filter(|&index| self.left.get(index).is_some_and(&is_asked));
        let (first, second) = (asked.next(), asked.next());
        let first = first.with_context(|| format!("{}: no such block is left", self.name))?;
        ensure!(
            second.is_none(),
            "{}: several blocks are like this",
            self.name
        );
        Ok(self.left.remove(first))
    }

    fn filled(&self, text: &str) -> String {
        let replace =
            |text: String, (printed, real): &(String, String)| text.replace(printed, real);
        self.fills.iter().fold(text.to_owned(), replace)
    }
}

/// The code between backquotes in the running text, with line breaks as spaces.
#[must_use]
pub fn inline_code(text: &str) -> Vec<String> {
    let mut is_block = false;
    let prose = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_block ^= is_fence;
        !is_block && !is_fence
    });
    // A paragraph ends every piece of code that was not closed.
    let prose: Vec<&str> = prose.map(str::trim).collect();
    let paragraphs = prose.split(|line| line.is_empty());
    let spans = paragraphs.flat_map(|lines| {
        let paragraph = lines.join(" ");
        let spans = paragraph.split('`').skip(1).step_by(2);
        spans.map(str::to_owned).collect::<Vec<_>>()
    });
    spans.collect()
}

/// All blocks of a text, in order.
#[must_use]
pub fn all_blocks_in(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(Block, usize)> = None;
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let fence = trimmed.strip_prefix("```");
        match (&mut open, fence) {
            (None, Some(language)) => {
                let block = Block {
                    line: index + 1,
                    language: language.to_owned(),
                    text: String::new(),
                };
                open = Some((block, line.len() - trimmed.len()));
            }
            (Some(_), Some("")) => blocks.extend(open.take().map(|(block, _)| block)),
            (Some((block, indent)), _) => {
                let outdented = line.get(..*indent).filter(|start| start.trim().is_empty());
                block.text.push_str(match outdented {
                    Some(start) => line.get(start.len()..).unwrap_or_default(),
                    None => trimmed,
                });
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

/// The blocks of a text that open with one of these languages, in order.
#[must_use]
pub fn blocks_in(text: &str, languages: &[&str]) -> Vec<Block> {
    let mut blocks = all_blocks_in(text);
    blocks.retain(|block| languages.contains(&block.language.as_str()));
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
    let section = section_of(&text, heading).with_context(|| format!("{page}: {heading}"))?;
    texts(blocks_in(section, &["bash"])).with_context(|| format!("{page}, {heading}"))
}

fn section_of<'a>(text: &'a str, heading: &str) -> Option<&'a str> {
    let (_, section) = text.split_once(&format!("\n{heading}\n"))?;
    let level = heading.split(' ').next()?;
    section.split(&format!("\n{level} ")).next()
}

fn texts(blocks: Vec<Block>) -> anyhow::Result<Vec<String>> {
    ensure!(!blocks.is_empty(), "there is no such block of code");
    Ok(blocks.into_iter().map(|block| block.text).collect())
}

#[cfg(test)]
mod tests {
    use super::{NotRun, Page, all_blocks_in, inline_code};

    const TEXT: &str =
        "Say `a\nb` and\n\n- in a list:\n\n  ```sh\n  one\n    two\n  ```\n\n```\ndrawn\n```\n";

    fn page() -> Page {
        Page {
            name: "page.md".to_owned(),
            text: TEXT.to_owned(),
            left: all_blocks_in(TEXT),
            fills: Vec::new(),
        }
    }

    #[test]
    fn a_block_that_is_neither_run_nor_listed_is_an_error() {
        let listed = |part| NotRun {
            page: "page.md",
            part,
            reason: "a drawing",
        };
        let taken = |not_run: &[NotRun]| {
            let mut page = page();
            page.take("sh", "one").and_then(|_| page.finish(not_run))
        };
        assert!(taken(&[]).is_err());
        assert!(taken(&[listed("drawn")]).is_ok());
        assert!(taken(&[listed("drawn"), listed("gone")]).is_err());
        assert!(page().finish(&[listed("drawn")]).is_err());
    }

    #[test]
    fn code_is_read_without_its_indent_and_filled_in() -> anyhow::Result<()> {
        let mut page = page();
        assert!(page.fill("three", "3").is_err());
        page.fill("two", "2")?;
        assert_eq!(page.take("sh", "one")?, "one\n  2\n");
        assert_eq!(inline_code(TEXT), ["a b"]);
        Ok(())
    }
}
