//! Names in text that has JSON in it, or the `repr` of it: the text under a key that is or ends with `name`, between the
//! same quotation marks as the key, also where both are escaped because the JSON is within a JSON text. A text that
//! was cut off in the middle of a name has the rest of its line as the name.

use std::ops::Range;

/// The end of every such key.
const KEY_END: &[u8] = b"name";

/// Every such name of a text.
pub(super) fn find(text: &str, mut push: impl FnMut(Range<usize>)) {
    let bytes = text.as_bytes();
    let mut from = 0;
    while let Some(found) = key_end(bytes, from) {
        from = found;
        let Some(body) = value_start(bytes, found) else {
            continue;
        };
        let end = value_end(bytes, &body);
        if end > body.start {
            push(body.start..end);
        }
        from = end;
    }
}

/// Where a text under a key begins, and what closes it.
struct Body {
    start: usize,
    quote: u8,
    backslashes: usize,
}

/// Behind the next `name`, in any case.
fn key_end(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let last = rest
        .windows(KEY_END.len())
        .position(|window| window.eq_ignore_ascii_case(KEY_END))?;
    Some(from + last + KEY_END.len())
}

/// Reads `": "` and the like behind a key; the marks around the colon are the same.
fn value_start(bytes: &[u8], key_end: usize) -> Option<Body> {
    let (quote, backslashes, at) = mark(bytes, key_end)?;
    let at = skip_blank(bytes, at);
    let at = skip_blank(bytes, (bytes.get(at) == Some(&b':')).then_some(at + 1)?);
    let (other, as_many, start) = mark(bytes, at)?;
    (other == quote && as_many == backslashes).then_some(Body {
        start,
        quote,
        backslashes,
    })
}

/// A quotation mark with the backslashes in front of it, and what comes after.
fn mark(bytes: &[u8], at: usize) -> Option<(u8, usize, usize)> {
    let rest = bytes.get(at..)?;
    let backslashes = rest.iter().take_while(|byte| **byte == b'\\').count();
    let quote = *rest.get(backslashes)?;
    matches!(quote, b'"' | b'\'').then_some((quote, backslashes, at + backslashes + 1))
}

fn skip_blank(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest
        .iter()
        .take_while(|byte| byte.is_ascii_whitespace())
        .count()
}

/// The end of the text: at its quotation mark, which has at most as many backslashes as the opening one, or at the end
/// of the line.
fn value_end(bytes: &[u8], body: &Body) -> usize {
    let mut backslashes = 0;
    for (at, byte) in bytes.iter().enumerate().skip(body.start) {
        match byte {
            b'\\' => backslashes += 1,
            b'\n' => return at,
            byte if *byte == body.quote => {
                // Within a text of its own, two backslashes are one, and open no mark.
                let is_escaped = match body.backslashes {
                    0 => backslashes % 2 == 1,
                    own => backslashes > own,
                };
                if !is_escaped {
                    return at - backslashes.min(body.backslashes);
                }
                backslashes = 0;
            }
            _ => backslashes = 0,
        }
    }
    bytes.len()
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
    fn names_in_json_in_text_are_found() {
        check(
            r#"bad row {"name": "Ada L"}, {"Name":"Bob"}"#,
            &["Ada L", "Bob"],
        );
        check("{'first_name': 'Ada', 'x': 'y'}", &["Ada"]);
        check(r#"{"text": "{\"name\": \"Ada\", \"x\": 1}"}"#, &["Ada"]);
        check(r#""name": "A \"the\" B", "x": "y""#, &[r#"A \"the\" B"#]);
        check(r#""name": "A\\", "x": "y""#, &[r"A\\"]);
        check("\"name\" :\n \"Ada\"", &["Ada"]);
        check("\"name\": \"Ada Love", &["Ada Love"]);
        check("\"name\": \"Ada Love\nnext", &["Ada Love"]);
        check("\"name\": \"Jörg\"", &["Jörg"]);
    }

    #[test]
    fn what_is_none_is_left_alone() {
        check("name: Ada", &[]);
        check("\"name\": \"\"", &[]);
        check("\"name\": 1, \"names\": \"a\"", &[]);
        check("\"name", &[]);
        check("\"name\": \\", &[]);
    }
}
