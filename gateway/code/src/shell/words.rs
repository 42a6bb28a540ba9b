//! From a line to words and pipes.
//!
//! Invariant: every character of the line is part of a word, a quote, white space or a pipe, or the line is refused.

use std::iter::Peekable;
use std::str::Chars;

use mooring_sandbox::Argument;

use super::ShellError;

/// One part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A command or an argument.
    Word(Argument),
    /// `|`
    Pipe {
        /// Where it is.
        at: usize,
    },
}

/// Unquoted characters with a meaning to other shells: the character, as it is shown, and its name.
const UNSUPPORTED: [(char, &str, &str); 12] = [
    (';', ";", "a list of commands"),
    ('&', "&", "a background command or a list"),
    ('>', ">", "a redirection"),
    ('<', "<", "a redirection"),
    ('$', "$", "a variable or substitution"),
    ('`', "`", "a command substitution"),
    ('(', "(", "a subshell"),
    (')', ")", "a subshell"),
    ('{', "{", "a group or brace expansion"),
    ('}', "}", "a group or brace expansion"),
    ('\n', "\n", "a second line"),
    ('\r', "\r", "a second line"),
];
/// The same for characters that mean something only where a word begins.
const UNSUPPORTED_FIRST: [(char, &str, &str); 2] =
    [('#', "#", "a comment"), ('~', "~", "a home directory")];
/// The characters that stay special between double quotes.
const UNSUPPORTED_IN_QUOTES: [char; 2] = ['$', '`'];
/// The characters that make a word a pattern of file names.
const PATTERN: [char; 3] = ['*', '?', '['];

/// The words and pipes of a line.
pub(super) fn tokens(line: &str) -> Result<Vec<Token>, ShellError> {
    let mut reader = Reader {
        rest: line.chars().peekable(),
        at: 0,
    };
    let mut tokens = Vec::new();
    while let Some(next) = reader.peek() {
        match next {
            ' ' | '\t' => {
                reader.take();
            }
            '|' => {
                reader.take();
                let at = reader.at;
                if reader.peek() == Some('|') {
                    return Err(unsupported("a list of commands", "||", at));
                }
                tokens.push(Token::Pipe { at });
            }
            _ => tokens.push(Token::Word(reader.word()?)),
        }
    }
    Ok(tokens)
}

const fn unsupported(what: &'static str, found: &'static str, at: usize) -> ShellError {
    ShellError::Unsupported { what, found, at }
}

fn refuse(
    character: char,
    at: usize,
    table: &[(char, &'static str, &'static str)],
) -> Result<(), ShellError> {
    match table.iter().find(|(refused, ..)| *refused == character) {
        Some((_, found, what)) => Err(unsupported(what, found, at)),
        None => Ok(()),
    }
}

/// A word in the making.
#[derive(Default)]
struct Word {
    text: String,
    /// It has pattern characters that are not quoted.
    is_pattern: bool,
    /// ... one of which opens a class.
    has_class: bool,
    /// It has pattern characters that are quoted.
    quotes_pattern: bool,
    /// It has quoted characters that mean something inside a class.
    quotes_class: bool,
}

impl Word {
    fn push_plain(&mut self, character: char) {
        self.is_pattern |= PATTERN.contains(&character);
        self.has_class |= character == '[';
        self.text.push(character);
    }

    fn push_quoted(&mut self, character: char) {
        self.quotes_pattern |= PATTERN.contains(&character) || "]\\".contains(character);
        self.quotes_class |= "!^-".contains(character);
        self.text.push(character);
    }

    fn finish(self, at: usize) -> Result<Argument, ShellError> {
        let is_mixed = self.quotes_pattern || (self.has_class && self.quotes_class);
        match self.is_pattern {
            true if is_mixed => Err(ShellError::MixedPattern { at }),
            true => Ok(Argument::Pattern(self.text)),
            false => Ok(Argument::Literal(self.text)),
        }
    }
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    /// How many characters were taken: the place of the last one.
    at: usize,
}

impl Reader<'_> {
    fn peek(&mut self) -> Option<char> {
        self.rest.peek().copied()
    }

    fn take(&mut self) -> Option<char> {
        let character = self.rest.next()?;
        self.at = self.at.saturating_add(1);
        Some(character)
    }

    /// The word that begins with the next character.
    fn word(&mut self) -> Result<Argument, ShellError> {
        let mut word = Word::default();
        let begins_at = self.at.saturating_add(1);
        while let Some(next) = self.peek() {
            if matches!(next, ' ' | '\t' | '|') {
                break;
            }
            self.take();
            let at = self.at;
            match next {
                '\'' => self.single_quoted(&mut word)?,
                '"' => self.double_quoted(&mut word)?,
                '\\' => match self.take() {
                    None => return Err(ShellError::TrailingBackslash { at }),
                    Some(escaped) => {
                        check_control(escaped, self.at)?;
                        word.push_quoted(escaped);
                    }
                },
                _ => {
                    refuse(next, at, &UNSUPPORTED)?;
                    if at == begins_at {
                        refuse(next, at, &UNSUPPORTED_FIRST)?;
                    }
                    check_control(next, at)?;
                    word.push_plain(next);
                }
            }
        }
        word.finish(begins_at)
    }

    /// Everything up to the other quote, unchanged.
    fn single_quoted(&mut self, word: &mut Word) -> Result<(), ShellError> {
        let opened_at = self.at;
        loop {
            match self.take() {
                None => {
                    return Err(ShellError::Unclosed {
                        quote: '\'',
                        at: opened_at,
                    });
                }
                Some('\'') => return Ok(()),
                Some(character) => {
                    check_control(character, self.at)?;
                    word.push_quoted(character);
                }
            }
        }
    }

    /// The same, but that a backslash escapes what would be special.
    fn double_quoted(&mut self, word: &mut Word) -> Result<(), ShellError> {
        let opened_at = self.at;
        loop {
            let character = match self.take() {
                None => {
                    return Err(ShellError::Unclosed {
                        quote: '"',
                        at: opened_at,
                    });
                }
                Some('"') => return Ok(()),
                Some(character) => character,
            };
            if UNSUPPORTED_IN_QUOTES.contains(&character) {
                refuse(character, self.at, &UNSUPPORTED)?;
            }
            if character == '\\'
                && let Some(next) = self.peek()
                && matches!(next, '$' | '`' | '"' | '\\')
            {
                self.take();
                word.push_quoted(next);
                continue;
            }
            check_control(character, self.at)?;
            word.push_quoted(character);
        }
    }
}

/// Tabs are allowed in quotes; other control characters are not.
fn check_control(character: char, at: usize) -> Result<(), ShellError> {
    refuse(
        character,
        at,
        &[('\n', "\n", "a second line"), ('\r', "\r", "a second line")],
    )?;
    if character.is_control() && character != '\t' {
        return Err(ShellError::Control {
            found: character,
            at,
        });
    }
    Ok(())
}
