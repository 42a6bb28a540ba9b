//! What LIST is asked with: a pattern over keys and a cursor. The first line is the pattern, the second the cursor, the
//! others are keys.
//!
//! The pattern is held against the definition, written down as it reads and tried in every way: slow, but plain.

#![no_main]

use std::collections::HashMap;

use libfuzzer_sys::fuzz_target;
use mooring_session::index::{Cursor, Glob};

/// The definition looks at pattern and key times each other, so that more would only be slow.
const KEY_BYTES_MAX: usize = 32;
const KEYS_MAX: usize = 4;

fuzz_target!(|input: &[u8]| {
    let mut lines = input.split(|byte| *byte == b'\n');
    let pattern = lines.next().unwrap_or_default();
    if let Ok(Some(cursor)) = Cursor::parse(lines.next().unwrap_or_default()) {
        let again = Cursor::parse(cursor.to_string().as_bytes());
        assert_eq!(again, Ok(Some(cursor)));
    }
    let Ok(glob) = Glob::parse(pattern) else {
        return;
    };
    let keys = lines.filter(|key| key.len() <= KEY_BYTES_MAX);
    for key in keys.take(KEYS_MAX) {
        let expected = matches(pattern, key, &mut HashMap::new());
        assert_eq!(glob.matches(key), expected, "{}", key.escape_ascii());
    }
});

/// What was found out of the rest of a pattern and the rest of a key, by their lengths.
type Known = HashMap<(usize, usize), bool>;

fn matches(pattern: &[u8], key: &[u8], known: &mut Known) -> bool {
    let place = (pattern.len(), key.len());
    if let Some(answer) = known.get(&place) {
        return *answer;
    }
    let answer = match (pattern, key) {
        ([], key) => key.is_empty(),
        ([b'*', after @ ..], key) => {
            matches(after, key, known) || (!key.is_empty() && matches(pattern, &key[1..], known))
        }
        (_, []) => false,
        ([b'?', after @ ..], [_, rest @ ..]) => matches(after, rest, known),
        ([b'[', after @ ..], [byte, rest @ ..]) => {
            let (is_in, after) = class(after, *byte);
            is_in && matches(after, rest, known)
        }
        ([b'\\', wanted, after @ ..] | [wanted, after @ ..], [byte, rest @ ..]) => {
            wanted == byte && matches(after, rest, known)
        }
    };
    known.insert(place, answer);
    answer
}

/// Whether the byte is in the class whose inside begins here, and what follows the class.
fn class(inside: &[u8], byte: u8) -> (bool, &[u8]) {
    let (negated, mut rest) = match inside {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut found = false;
    loop {
        match rest {
            [] => break,
            [b']', after @ ..] => {
                rest = after;
                break;
            }
            [b'\\', escaped, after @ ..] => {
                found |= *escaped == byte;
                rest = after;
            }
            [from, b'-', to, after @ ..] => {
                found |= (*from.min(to)..=*from.max(to)).contains(&byte);
                rest = after;
            }
            [one, after @ ..] => {
                found |= *one == byte;
                rest = after;
            }
        }
    }
    (found != negated, rest)
}
