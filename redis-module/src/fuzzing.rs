//! The entry points of the fuzz targets in `fuzz/`: parsers of untrusted input that need no server. Compiled only for
//! fuzzing.

use crate::commands;
use crate::failure::{CODES, Failure};
use crate::settings::prefixes;

/// Longest message: 64 bytes of a word are shown, each as at most `\xff`.
const MESSAGE_BYTES_MAX: usize = 320;

/// Parses the words of a command, its name first.
///
/// # Panics
/// If an error message does not begin with its code, or is too long.
pub fn arguments(words: &[&[u8]]) {
    if let Some(Err(failure)) = commands::parse(words) {
        check(&failure);
    }
}

fn check(failure: &Failure) {
    let message = failure.to_string();
    let code = message.split(' ').next().unwrap_or_default();
    assert!(CODES.contains(&code), "{message}");
    assert!(message.len() <= MESSAGE_BYTES_MAX, "{message}");
    assert!(
        message
            .bytes()
            .all(|byte| byte.is_ascii_graphic() || byte == b' '),
        "{message}"
    );
}

/// Sets a list of prefixes, and checks keys against it.
///
/// # Panics
/// If CONFIG GET would not return the list, or a key under a prefix is not covered.
pub fn prefixes(text: &[u8]) {
    if prefixes::set(text).is_err() {
        return;
    }
    let list = prefixes::text();
    for prefix in list.split(' ') {
        assert!(prefixes::cover(prefix.as_bytes()), "{prefix}");
        assert!(prefixes::cover(format!("{prefix}x").as_bytes()), "{prefix}");
        let shorter = &prefix.as_bytes()[..prefix.len() - 1];
        let by_another = list
            .split(' ')
            .any(|other| shorter.starts_with(other.as_bytes()));
        assert_eq!(prefixes::cover(shorter), by_another, "{prefix}");
    }
    assert!(prefixes::set(list.as_bytes()).is_ok());
    assert_eq!(prefixes::text(), list);
}
