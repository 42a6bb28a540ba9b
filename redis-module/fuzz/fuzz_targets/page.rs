//! The arguments of LIST: a key pattern and a cursor. The first line is the pattern, the second the cursor, the others
//! are keys.
//!
//! The result is compared with a second implementation, which follows all possible matches at once, so that it never
//! backtracks.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mooring_session::index::{Cursor, Glob};

/// The second implementation looks at every byte of the key for each part of the pattern: longer keys would only be slow.
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
        let expected = matches(pattern, key);
        assert_eq!(glob.matches(key), expected, "{}", key.escape_ascii());
    }
});

fn matches(mut pattern: &[u8], key: &[u8]) -> bool {
    // By a number of bytes: whether the parts read so far stand for that many at the start of the key.
    let mut stands_for = vec![false; key.len() + 1];
    stands_for[0] = true;
    while let [first, after @ ..] = pattern {
        if *first == b'*' {
            let shortest = stands_for.iter().position(|stands| *stands);
            stands_for[shortest.unwrap_or(key.len() + 1)..].fill(true);
            pattern = after;
            continue;
        }
        let longer = key.iter().zip(&stands_for);
        let longer = longer.map(|(byte, stands)| *stands && one(pattern, *byte).0);
        stands_for = [false].into_iter().chain(longer).collect();
        pattern = one(pattern, 0).1;
    }
    stands_for[key.len()]
}

/// Whether the pattern's first part, which is no star, stands for this byte, and what follows that part.
fn one(pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    match pattern {
        [b'?', after @ ..] => (true, after),
        [b'[', after @ ..] => class(after, byte),
        [b'\\', wanted, after @ ..] | [wanted, after @ ..] => (*wanted == byte, after),
        [] => (false, pattern),
    }
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
