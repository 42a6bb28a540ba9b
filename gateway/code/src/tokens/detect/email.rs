//! E-mail addresses: something, an `@` or its `%40` in a URL, and a host name with a dot. Letters of every alphabet count.
//! An address takes as much of the text as could belong to it.

use std::ops::Range;

/// How far the part before a `%40` is followed, in characters. Before an `@` it needs no limit: no address goes over
/// another's `@`.
const LOCAL_MAX: usize = 320;

/// Every address of a text, from left to right.
pub(super) fn find(text: &str, mut push: impl FnMut(Range<usize>)) {
    for at in memchr::memchr2_iter(b'@', b'%', text.as_bytes()) {
        let (before, after) = (text.get(..at), text.get(at..));
        let (Some(before), Some(after)) = (before, after) else {
            continue;
        };
        let (sign, most) = if after.starts_with('@') {
            ("@", usize::MAX)
        } else if after.starts_with("%40") {
            ("%40", LOCAL_MAX)
        } else {
            continue;
        };
        let local = local_length(before, most);
        let host = host_length(after.get(sign.len()..).unwrap_or_default());
        if local > 0 && host > 0 {
            push(at - local..at + sign.len() + host);
        }
    }
}

/// How many bytes at the end of `before` can be the part before the sign. An apostrophe is part of it between letters, as
/// in o'neil, and a quotation mark everywhere else.
fn local_length(before: &str, most: usize) -> usize {
    let mut length = 0;
    let mut own = 0;
    let mut is_after_letter = false;
    let mut letters = before.chars().rev().take(most).peekable();
    while let Some(letter) = letters.next() {
        let is_letter = letter.is_alphanumeric() || letter == '_';
        let is_before_letter = letters.peek().copied().is_some_and(char::is_alphanumeric);
        let is_known = match letter {
            '\'' => is_after_letter && is_before_letter,
            other => is_letter || ".%+-".contains(other),
        };
        if !is_known {
            break;
        }
        length += letter.len_utf8();
        if is_letter {
            own = length;
        }
        is_after_letter = is_letter;
    }
    own
}

/// How many bytes at the start of `after` are a host name with a dot: the longest that ends with a label of two
/// characters or more, one of them a letter.
fn host_length(after: &str) -> usize {
    let known = |letter: char| letter.is_alphanumeric() || letter == '-' || letter == '.';
    let end = after.find(|letter| !known(letter)).unwrap_or(after.len());
    let (mut start, mut length) = (0, 0);
    for (position, label) in after.get(..end).unwrap_or_default().split('.').enumerate() {
        if label.is_empty() {
            break;
        }
        let is_last_one = position > 0
            && label.chars().nth(1).is_some()
            && label.chars().any(char::is_alphabetic);
        if is_last_one {
            length = start + label.trim_end_matches('-').len();
        }
        start += label.len() + 1;
    }
    length
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test fails by panicking")]
mod tests {
    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let mut found = Vec::new();
        super::find(text, |range| found.push(&text[range]));
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn addresses_are_found() {
        check("ada@example.com", &["ada@example.com"]);
        check("<ada.l+x@mail.example.org>.", &["ada.l+x@mail.example.org"]);
        check("mailto:ada@example.com?x", &["ada@example.com"]);
        check("a@b.co,c@d.eu", &["a@b.co", "c@d.eu"]);
        check("jörg@müller.de", &["jörg@müller.de"]);
        check("ada@example.com.", &["ada@example.com"]);
        check("ada@example.com.2", &["ada@example.com"]);
        check("(o'neil@example.ie)", &["o'neil@example.ie"]);
        check("..-ada@example.com", &["ada@example.com"]);
        check("'ada@example.com'", &["ada@example.com"]);
        check("?to=ada%40example.com&x", &["ada%40example.com"]);
        check("https://x.y/ada@example.com", &["ada@example.com"]);
        check("_@example.com", &["_@example.com"]);
        check(
            "ada@xn--mller-kva.xn--p1ai",
            &["ada@xn--mller-kva.xn--p1ai"],
        );
        check("ADA@EXAMPLE.COM2", &["ADA@EXAMPLE.COM2"]);
    }

    #[test]
    fn what_is_none_is_left_alone() {
        check("@decorator.call", &[]);
        check("root@localhost", &[]);
        check("100%", &[]);
        check("a @ b.com", &[]);
        check("a@b.c", &[]);
        check("a@.com", &[]);
        check("a@1.22", &[]);
    }
}
