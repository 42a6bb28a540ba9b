//! Untrusted text as comments and literals of both languages.
//!
//! Invariant: for any text, the result is exactly one comment or one literal of its language. No control character and
//! none that changes the order in which text is shown is left in it.

use std::fmt::Write as _;

/// One line: without line ends and control characters, and no longer than this many characters.
pub(super) fn line(text: &str, chars_max: usize) -> String {
    let mut line = String::new();
    for word in paragraph(text, chars_max).split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    line
}

/// Lines without control characters, all together no longer than this many characters; no white space at the ends.
pub(super) fn paragraph(text: &str, chars_max: usize) -> String {
    let mut kept = String::new();
    let mut letters = text.chars().peekable();
    let mut count = 0_usize;
    while let Some(letter) = letters.next() {
        let letter = match letter {
            '\r' if letters.peek() == Some(&'\n') => continue,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => '\n',
            '\t' => ' ',
            hidden if is_hidden(hidden) => continue,
            letter => letter,
        };
        if count == chars_max {
            kept.push('…');
            break;
        }
        count = count.saturating_add(1);
        kept.push(letter);
    }
    let lines: Vec<&str> = kept.trim().lines().map(str::trim_end).collect();
    lines.join("\n")
}

/// Whether a reader would not see it, or would see something else for it.
fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fe00}'..='\u{fe0f}'
                | '\u{e0000}'..='\u{e01ef}'
        )
}

/// A docstring of Python, its lines indented, with a line end behind it. The text is a [`paragraph`].
pub(super) fn docstring(text: &str, indent: &str) -> String {
    let escaped = without_triple_quotes(text);
    let mut found = format!("{indent}\"\"\"");
    for (number, line) in escaped.lines().enumerate() {
        if number > 0 {
            found.push('\n');
            if !line.is_empty() {
                found.push_str(indent);
            }
        }
        found.push_str(line);
    }
    if escaped.contains('\n') || escaped.ends_with('"') {
        found.push('\n');
        found.push_str(indent);
    }
    found.push_str("\"\"\"\n");
    found
}

/// Text whose backslashes mean themselves. A quotation mark reads best as it is, and is harmless unless another is
/// beside it: one of the text, or the last of the three that the docstring begins with.
fn without_triple_quotes(text: &str) -> String {
    let mut found = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    let mut before = '"';
    while let Some(letter) = letters.next() {
        let is_beside_another = before == '"' || letters.peek() == Some(&'"');
        if letter == '\\' || (letter == '"' && is_beside_another) {
            found.push('\\');
        }
        found.push(letter);
        before = letter;
    }
    found
}

/// A comment of JSDoc, its lines indented, with a line end behind it. The text is a [`paragraph`].
pub(super) fn jsdoc(text: &str, indent: &str) -> String {
    // An @ is no tag, no pragma and no directive behind a backslash.
    let escaped = text.replace("*/", "*\\/").replace('@', "\\@");
    let lines: Vec<&str> = escaped.lines().collect();
    if let [only] = lines.as_slice() {
        return format!("{indent}/** {only} */\n");
    }
    let mut found = format!("{indent}/**\n");
    for line in lines {
        // The blank keeps a line that begins with a slash from ending the comment, together with the star.
        let blank = if line.is_empty() { "" } else { " " };
        let _ = writeln!(found, "{indent} *{blank}{line}");
    }
    let _ = writeln!(found, "{indent} */");
    found
}

/// A literal of Python.
pub(super) fn python_string(text: &str) -> String {
    quoted(text, |code| match code {
        0..=0xff => format!("\\x{code:02x}"),
        0x100..=0xffff => format!("\\u{code:04x}"),
        _ => format!("\\U{code:08x}"),
    })
}

/// A literal of TypeScript.
pub(super) fn typescript_string(text: &str) -> String {
    quoted(text, |code| format!("\\u{{{code:x}}}"))
}

fn quoted(text: &str, escaped: impl Fn(u32) -> String) -> String {
    let mut found = String::with_capacity(text.len() + 2);
    found.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => {
                found.push('\\');
                found.push(letter);
            }
            '\n' => found.push_str("\\n"),
            '\t' => found.push_str("\\t"),
            ' '..='~' => found.push(letter),
            _ if letter.is_alphanumeric() => found.push(letter),
            _ => found.push_str(&escaped(u32::from(letter))),
        }
    }
    found.push('"');
    found
}
