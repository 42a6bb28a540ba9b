//! Patterns for the names of tools and servers, as Python's `fnmatch` reads them, so that a policy written for ContextForge
//! means the same here.
//!
//! `*` is any number of characters, a slash too; `?` is one; `[abc]` and `[a-z]` are one out of a few and `[!abc]` is one of
//! all others. A `[` that nothing closes stands for itself, nothing escapes, and letters differ by case. A pattern matches
//! the whole name or not at all.
//!
//! Invariant: a match takes at most as many steps as the pattern's length times the name's, whatever they are.

use std::fmt;

/// Most patterns of one list.
pub(crate) const GLOBS_MAX: usize = 256;
/// Longest pattern in bytes.
pub(crate) const GLOB_BYTES_MAX: usize = 512;

/// Patterns, any of which may match. None at all match nothing.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Globs(Vec<Glob>);

impl Globs {
    /// Compiles patterns. There is no wrong one.
    pub fn new<P: AsRef<str>>(patterns: impl IntoIterator<Item = P>) -> Self {
        let globs = patterns.into_iter().map(|text| Glob::new(text.as_ref()));
        Self(globs.collect())
    }

    /// Whether there is no pattern.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a pattern matches this name: `server/tool`, or a server's alone.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.0.iter().any(|glob| glob.matches(name))
    }

    /// Whether a pattern matches a tool: one with a slash the tool's `server/tool`, one without the tool's own name.
    #[must_use]
    pub fn matches_tool(&self, server: &str, tool: &str) -> bool {
        self.0.iter().any(|glob| match glob.text.contains('/') {
            true => glob.matches(&format!("{server}/{tool}")),
            false => glob.matches(tool),
        })
    }

    /// The patterns as they were written.
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|glob| &*glob.text)
    }
}

impl fmt::Debug for Globs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.patterns()).finish()
    }
}

/// One pattern.
#[derive(Clone, PartialEq, Eq)]
struct Glob {
    text: Box<str>,
    pieces: Vec<Piece>,
}

/// What a pattern consists of.
#[derive(Clone, PartialEq, Eq)]
enum Piece {
    /// This character.
    Same(char),
    /// Any one character.
    One,
    /// Any number of characters.
    Many,
    /// One character that is in one of the ranges, or in none of them.
    Set {
        ranges: Vec<(char, char)>,
        is_negated: bool,
    },
}

impl Glob {
    fn new(text: &str) -> Self {
        let characters: Vec<char> = text.chars().collect();
        let mut rest = characters.as_slice();
        let mut pieces = Vec::new();
        while let Some((first, after)) = rest.split_first() {
            rest = after;
            match first {
                '*' if pieces.last() == Some(&Piece::Many) => {}
                '*' => pieces.push(Piece::Many),
                '?' => pieces.push(Piece::One),
                '[' => match set(after) {
                    Some((piece, after)) => {
                        pieces.push(piece);
                        rest = after;
                    }
                    None => pieces.push(Piece::Same('[')),
                },
                other => pieces.push(Piece::Same(*other)),
            }
        }
        Self {
            text: text.into(),
            pieces,
        }
    }

    /// Walks both, and where they part goes back to the last `*`, which then takes one character more. An earlier `*`
    /// never has to take more: the last one can.
    fn matches(&self, name: &str) -> bool {
        // Positions in the name are those of its bytes.
        let letter = |at: usize| name.get(at..).and_then(|rest| rest.chars().next());
        let (mut piece, mut at) = (0, 0);
        let mut last_many = None;
        loop {
            match (self.pieces.get(piece), letter(at)) {
                (None, None) => return true,
                (Some(Piece::Many), _) => {
                    last_many = Some((piece, at));
                    piece += 1;
                    continue;
                }
                (Some(wanted), Some(found)) if wanted.matches(found) => {
                    piece += 1;
                    at += found.len_utf8();
                    continue;
                }
                _ => {}
            }
            match last_many {
                Some((many, taken)) => {
                    let Some(next) = letter(taken) else {
                        return false;
                    };
                    at = taken + next.len_utf8();
                    last_many = Some((many, at));
                    piece = many + 1;
                }
                None => return false,
            }
        }
    }
}

impl Piece {
    fn matches(&self, found: char) -> bool {
        match self {
            Self::Same(wanted) => *wanted == found,
            Self::One => true,
            Self::Many => false,
            Self::Set { ranges, is_negated } => {
                let is_in = ranges
                    .iter()
                    .any(|(first, last)| (*first..=*last).contains(&found));
                is_in != *is_negated
            }
        }
    }
}

/// The set whose `[` is before `rest`, and the text after its `]`; none if nothing closes it. A `]` that comes first is
/// one of the set.
fn set(rest: &[char]) -> Option<(Piece, &[char])> {
    let (is_negated, body) = match rest.split_first() {
        Some(('!', body)) => (true, body),
        _ => (false, rest),
    };
    let end = 1 + body.iter().skip(1).position(|letter| *letter == ']')?;
    let (inside, after) = body.split_at_checked(end)?;
    let piece = Piece::Set {
        ranges: ranges(inside),
        is_negated,
    };
    Some((piece, after.get(1..)?))
}

fn ranges(mut inside: &[char]) -> Vec<(char, char)> {
    let mut ranges = Vec::new();
    loop {
        inside = match inside {
            [] => return ranges,
            [first, '-', last, rest @ ..] => {
                ranges.push((*first, *last));
                rest
            }
            [only, rest @ ..] => {
                ranges.push((*only, *only));
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, name: &str, expected: bool) {
        let globs = Globs::new([pattern]);
        assert_eq!(globs.matches(name), expected, "{pattern} on {name}");
    }

    /// What Python 3's `fnmatch.fnmatchcase` answers to the same.
    #[test]
    fn patterns_mean_what_fnmatch_says() {
        check("github/*", "github/create_issue", true);
        check("github/*", "gitlab/create_issue", false);
        check("*", "a/b", true);
        check("*", "", true);
        check("", "", true);
        check("", "a", false);
        check("*/delete_*", "files/delete_all", true);
        check("*/delete_*", "files/undelete_all", false);
        check("a?c", "a/c", true);
        check("a?c", "ac", false);
        check("[abc]x", "bx", true);
        check("[!abc]x", "bx", false);
        check("[!abc]x", "dx", true);
        check("[a-f]x", "ex", true);
        check("[f-a]x", "ex", false);
        check("[]]x", "]x", true);
        check("[!]]x", "]x", false);
        check("[a-]x", "-x", true);
        check("[a", "[a", true);
        check("[", "[", true);
        check("[]", "[]", true);
        check("[!]", "[!]", true);
        check("**a**", "bab", true);
        check("a*b*c", "a1b2b3c", true);
        check("a*b*c", "a1b2b3", false);
        check("GitHub/*", "github/a", false);
        check("ä*", "äpfel", true);
        check("a.b", "axb", false);
    }

    #[test]
    fn no_pattern_matches_nothing() {
        assert!(!Globs::default().matches(""));
        assert!(Globs::default().is_empty());
    }

    #[test]
    fn a_tool_is_matched_by_its_own_name_or_with_its_server() {
        let globs = Globs::new(["delete_*", "files/read"]);
        assert!(globs.matches_tool("files", "delete_all"));
        assert!(globs.matches_tool("files", "read"));
        assert!(!globs.matches_tool("other", "read"));
        assert!(!globs.matches_tool("delete_x", "read"));
    }

    /// A matcher that tries every way would not come back.
    #[test]
    fn many_stars_end() {
        let pattern = "*a".repeat(100);
        check(&pattern, &format!("{}b", "a".repeat(1000)), false);
    }
}
