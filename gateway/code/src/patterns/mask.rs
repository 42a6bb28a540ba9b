//! Code with its comments, and the text of its strings, replaced by spaces.
//!
//! Invariant: what is left keeps its byte and its line, so that a place found in it is a place in the code.
//! Where a string or comment does not end, everything after it counts as part of it: such code does not run.

use mooring_settings::Language;

/// One source text with comments, and with comments and strings, replaced by spaces.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MaskedCode {
    /// Without comments.
    pub(super) without_comments: String,
    /// Without comments and without the text between quotes.
    pub(super) without_strings: String,
}

/// The lexer's state.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LexerState {
    Code,
    LineComment,
    BlockComment,
    String(&'static str),
}

const PYTHON_QUOTES: [&str; 4] = ["\"\"\"", "'''", "\"", "'"];
const TYPESCRIPT_QUOTES: [&str; 3] = ["\"", "'", "`"];

/// Reads code once, from the left.
pub(super) fn mask_code(language: Language, code: &str) -> MaskedCode {
    let mut masked = MaskedCode {
        without_comments: String::with_capacity(code.len()),
        without_strings: String::with_capacity(code.len()),
    };
    let mut within = LexerState::Code;
    let mut rest = code;
    while let Some(character) = rest.chars().next() {
        let (length, shown, next) = step(language, within, rest, character);
        let (taken, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
        masked.push(taken, shown);
        within = next;
        rest = after;
    }
    masked
}

/// In which of the two readings a character is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Visibility {
    Everywhere,
    WithStrings,
    Nowhere,
}

/// How many bytes are read, where they are shown, and what the ones after them belong to.
fn step(
    language: Language,
    within: LexerState,
    rest: &str,
    character: char,
) -> (usize, Visibility, LexerState) {
    let one = character.len_utf8();
    match within {
        LexerState::Code => {
            let (comment, quotes) = match language {
                Language::Python => ("#", &PYTHON_QUOTES[..]),
                Language::TypeScript => ("//", &TYPESCRIPT_QUOTES[..]),
            };
            if rest.starts_with(comment) {
                return (comment.len(), Visibility::Nowhere, LexerState::LineComment);
            }
            if language == Language::TypeScript && rest.starts_with("/*") {
                return (2, Visibility::Nowhere, LexerState::BlockComment);
            }
            match quotes.iter().find(|quote| rest.starts_with(**quote)) {
                Some(quote) => (
                    quote.len(),
                    Visibility::Everywhere,
                    LexerState::String(quote),
                ),
                None => (one, Visibility::Everywhere, within),
            }
        }
        LexerState::LineComment if character == '\n' => {
            (one, Visibility::Everywhere, LexerState::Code)
        }
        LexerState::BlockComment if rest.starts_with("*/") => {
            (2, Visibility::Nowhere, LexerState::Code)
        }
        LexerState::LineComment | LexerState::BlockComment => (one, Visibility::Nowhere, within),
        LexerState::String(quote) => {
            if character == '\\' {
                let escaped = rest.chars().nth(1).map_or(0, char::len_utf8);
                return (one.saturating_add(escaped), Visibility::WithStrings, within);
            }
            if rest.starts_with(quote) {
                return (quote.len(), Visibility::Everywhere, LexerState::Code);
            }
            // Only long strings go over the end of a line; a short one that seems to is none (a regular expression of
            // TypeScript may hold a single quote).
            let is_long = quote.len() == 3 || quote == "`";
            if character == '\n' && !is_long {
                return (one, Visibility::Everywhere, LexerState::Code);
            }
            (one, Visibility::WithStrings, within)
        }
    }
}

impl MaskedCode {
    fn push(&mut self, taken: &str, shown: Visibility) {
        for (text, is_shown) in [
            (&mut self.without_comments, shown != Visibility::Nowhere),
            (&mut self.without_strings, shown == Visibility::Everywhere),
        ] {
            if is_shown {
                text.push_str(taken);
            } else {
                let blank = |byte: u8| if byte == b'\n' { '\n' } else { ' ' };
                text.extend(taken.bytes().map(blank));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(language: Language, code: &str, without_comments: &str, without_strings: &str) {
        let masked = mask_code(language, code);
        assert_eq!(masked.without_comments, without_comments, "{code:?}");
        assert_eq!(masked.without_strings, without_strings, "{code:?}");
    }

    #[test]
    fn comments_and_strings_become_spaces_of_the_same_length() {
        let python = |code, commentless, stringless| {
            check(Language::Python, code, commentless, stringless);
        };
        python("a # b\nc", "a    \nc", "a    \nc");
        python("a = 'b#c' # d", "a = 'b#c'    ", "a = '   '    ");
        python(r"'a\'b' c", r"'a\'b' c", "'    ' c");
        python(
            "\"\"\"a\n'b\"\"\" c",
            "\"\"\"a\n'b\"\"\" c",
            "\"\"\" \n  \"\"\" c",
        );
        python("'ä' b", "'ä' b", "'  ' b");
        python("'a\nb", "'a\nb", "' \nb");
        python("'a\\", "'a\\", "'  ");
        let typescript = |code, commentless, stringless| {
            check(Language::TypeScript, code, commentless, stringless);
        };
        typescript("a // b\nc", "a     \nc", "a     \nc");
        typescript("a /* b\n*/ c", "a     \n   c", "a     \n   c");
        typescript("`a\n${b}` c", "`a\n${b}` c", "` \n    ` c");
        typescript("'http://x'", "'http://x'", "'        '");
        typescript("a # b", "a # b", "a # b");
    }
}
