//! The doors of the fuzz targets in `fuzz/`: what reads the words of others and needs no server. There only in a
//! build for fuzzing.

use crate::commands;
use crate::failure::{CODES, Failure};
use crate::settings::prefixes;

/// Longest message: of a word 64 bytes are shown, each at most as `\xff`.
const MESSAGE_BYTES_MAX: usize = 320;

/// Reads the words of a command, its name first.
///
/// # Panics
/// Where a refusal is not what clients are promised: its code first, and short.
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

/// Takes a list of prefixes, and asks it about keys.
///
/// # Panics
/// Where what was taken is not what CONFIG GET would tell, or a key under a prefix is not covered.
pub fn prefixes(text: &[u8]) {
    if prefixes::set(text).is_err() {
        return;
    }
    let told = prefixes::text();
    for prefix in told.split(' ') {
        assert!(prefixes::cover(prefix.as_bytes()), "{prefix}");
        assert!(prefixes::cover(format!("{prefix}x").as_bytes()), "{prefix}");
        let shorter = &prefix.as_bytes()[..prefix.len() - 1];
        let by_another = told
            .split(' ')
            .any(|other| shorter.starts_with(other.as_bytes()));
        assert_eq!(prefixes::cover(shorter), by_another, "{prefix}");
    }
    assert!(prefixes::set(told.as_bytes()).is_ok());
    assert_eq!(prefixes::text(), told);
}
