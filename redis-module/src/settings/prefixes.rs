//! `mooring.prefixes`: the prefixes of session keys.
//!
//! Every keyspace event of the server checks whether its key has one of the prefixes. So they are published as plain
//! machine words, which are compared without a lock or an allocation, and need no cleanup when the module is unloaded.
//! Invariant: published prefixes satisfy their limits; an invalid list is refused as a whole.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use mooring_session::limits::PREFIXES_MAX;

use crate::ffi::TextSetting;

/// The setting as registered with the server.
pub(crate) static SETTING: TextSetting = TextSetting::new(c"prefixes", text, |value| {
    set(value).map_err(|refused| refused.to_string())
});
/// The default: the prefixes of the gateway's keys. Code sessions and agent sessions each have their own, because a cap
/// counts the sessions under the prefix of its key.
pub(crate) const DEFAULT: &CStr = c"mcpgw: mcpgw:code_exec_session: mcpgw:agent_session:";
/// What it does; for the reference page.
#[cfg(test)]
pub(crate) const MEANING: &str = "the prefixes of the keys that are indexed, separated by spaces; a key is counted, \
                                  for CAP, under the longest that it begins with; a change rebuilds the indexes in \
                                  the background";
/// Its allowed values; for the reference page.
#[cfg(test)]
pub(crate) const RANGE: &str = "1 to 16 of 1 to 64 visible ASCII characters each";

/// Longest prefix, in bytes.
const PREFIX_BYTES_MAX: usize = 64;

/// Why a list of prefixes was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PrefixesError {
    /// An empty list would index nothing.
    #[error("prefixes must name at least one prefix")]
    None,
    /// Too many.
    #[error("prefixes must name at most {PREFIXES_MAX} prefixes")]
    TooMany,
    /// A prefix is too long.
    #[error("prefixes must be at most {PREFIX_BYTES_MAX} bytes long each")]
    TooLong,
    /// A prefix has a byte that is not visible ASCII.
    #[error("prefixes must be made of visible ASCII characters, with spaces between them")]
    Alphabet,
    /// A prefix is listed twice.
    #[error("prefixes must differ from each other")]
    Repeated,
}

/// The list as it was given, for CONFIG GET.
static TEXT: RwLock<String> = RwLock::new(String::new());
/// The list as it is compared.
static PUBLISHED: PublishedPrefixes = PublishedPrefixes::new();

/// Sets the list of prefixes, separated by spaces.
///
/// # Errors
/// Says what is wrong with it; the previous list stays in use.
pub(crate) fn set(text: &[u8]) -> Result<(), PrefixesError> {
    let list = parse(text)?;
    let text = list.join(&b' ');
    *TEXT.write().unwrap_or_else(PoisonError::into_inner) =
        String::from_utf8_lossy(&text).into_owned();
    PUBLISHED.publish(&list);
    Ok(())
}

/// The list as it was given, with single spaces.
pub(crate) fn text() -> String {
    TEXT.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Frees the list, before the module is unloaded.
pub(crate) fn release() {
    SETTING.release();
    *TEXT.write().unwrap_or_else(PoisonError::into_inner) = String::new();
}

/// How often the list was set: data that was derived from an earlier list is outdated.
pub(crate) fn version() -> u64 {
    PUBLISHED.version.load(Ordering::Relaxed)
}

/// Whether the key starts with one of the prefixes.
pub(crate) fn cover(key: &[u8]) -> bool {
    PUBLISHED.cover(key)
}

fn parse(text: &[u8]) -> Result<Vec<&[u8]>, PrefixesError> {
    let mut list: Vec<&[u8]> = Vec::new();
    for prefix in text.split(|byte| *byte == b' ') {
        if prefix.is_empty() {
            continue;
        }
        if prefix.len() > PREFIX_BYTES_MAX {
            return Err(PrefixesError::TooLong);
        }
        if !prefix.iter().all(u8::is_ascii_graphic) {
            return Err(PrefixesError::Alphabet);
        }
        if list.contains(&prefix) {
            return Err(PrefixesError::Repeated);
        }
        if list.len() == PREFIXES_MAX {
            return Err(PrefixesError::TooMany);
        }
        list.push(prefix);
    }
    if list.is_empty() {
        return Err(PrefixesError::None);
    }
    Ok(list)
}

const WORD_BYTES: usize = size_of::<u64>();
const WORDS: usize = PREFIX_BYTES_MAX / WORD_BYTES;

/// The prefixes as machine words. Redis sets settings and sends keyspace events on one thread; a reader on another
/// thread could see a partly changed list, and get one wrong result.
struct PublishedPrefixes {
    version: AtomicU64,
    /// The first bytes of all prefixes, one bit each: they are enough to exclude most other keys.
    first_bytes: [AtomicU64; 4],
    count: AtomicUsize,
    rows: [PrefixRow; PREFIXES_MAX],
}

struct PrefixRow {
    length: AtomicUsize,
    words: [AtomicU64; WORDS],
}

impl PublishedPrefixes {
    const fn new() -> Self {
        Self {
            version: AtomicU64::new(0),
            first_bytes: [const { AtomicU64::new(0) }; 4],
            count: AtomicUsize::new(0),
            rows: [const {
                PrefixRow {
                    length: AtomicUsize::new(0),
                    words: [const { AtomicU64::new(0) }; WORDS],
                }
            }; PREFIXES_MAX],
        }
    }

    fn publish(&self, list: &[&[u8]]) {
        for (row, prefix) in self.rows.iter().zip(list) {
            row.length.store(prefix.len(), Ordering::Relaxed);
            for (word, bytes) in row.words.iter().zip(prefix.chunks(WORD_BYTES)) {
                word.store(word_of(bytes), Ordering::Relaxed);
            }
        }
        for (word, bits) in (0_u8..).zip(&self.first_bytes) {
            let firsts = list.iter().filter_map(|prefix| prefix.first());
            let own = firsts.filter(|first| *first / 64 == word);
            bits.store(
                own.fold(0, |bits, first| bits | 1 << (first % 64)),
                Ordering::Relaxed,
            );
        }
        self.count.store(list.len(), Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    fn cover(&self, key: &[u8]) -> bool {
        if !key.first().is_some_and(|first| self.begins_any(*first)) {
            return false;
        }
        let count = self.count.load(Ordering::Relaxed);
        self.rows.iter().take(count).any(|row| row.begins(key))
    }
}

impl PublishedPrefixes {
    fn begins_any(&self, first: u8) -> bool {
        let bits = self.first_bytes.get(usize::from(first / 64));
        bits.is_some_and(|bits| bits.load(Ordering::Relaxed) >> (first % 64) & 1 == 1)
    }
}

impl PrefixRow {
    fn begins(&self, key: &[u8]) -> bool {
        let head = key.get(..self.length.load(Ordering::Relaxed));
        head.is_some_and(|head| {
            head.chunks(WORD_BYTES)
                .zip(&self.words)
                .all(|(bytes, word)| word_of(bytes) == word.load(Ordering::Relaxed))
        })
    }
}

/// Up to eight bytes as one word.
fn word_of(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or_else(
        |_| {
            bytes
                .iter()
                .fold(0, |word, byte| word << 8 | u64::from(*byte))
        },
        u64::from_be_bytes,
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn keys_are_covered_by_any_prefix_and_by_nothing_else() {
        let long = [b'x'; PREFIX_BYTES_MAX];
        let published = PublishedPrefixes::new();
        assert!(!published.cover(b"mcpgw:a"), "before any list nothing is");
        published.publish(&[b"mcpgw:", b"12345678", b"123456789abc", &long]);
        for key in [
            &b"mcpgw:"[..],
            b"mcpgw:\0\xff",
            b"123456780",
            b"123456789abc",
            &[b'x'; 65],
        ] {
            assert!(published.cover(key), "{}", key.escape_ascii());
        }
        for key in [
            &b""[..],
            b"mcpgw",
            b"mcpgx:a",
            b"1234567",
            b"\0mcpgw:",
            &[b'x'; 63],
        ] {
            assert!(!published.cover(key), "{}", key.escape_ascii());
        }
        published.publish(&[b"other:"]);
        assert!(!published.cover(b"mcpgw:a"));
        assert!(published.cover(b"other:a"));
    }

    #[test]
    fn lists_are_taken_whole_or_refused_with_the_reason() {
        let count = |text: &str| parse(text.as_bytes()).map(|list| list.len());
        let many = |count: usize| (0..count).map(|n| format!("p{n}: ")).collect::<String>();
        assert_eq!(count("mcpgw:"), Ok(1));
        assert_eq!(count("  a:   b: "), Ok(2));
        assert_eq!(count(&many(PREFIXES_MAX)), Ok(PREFIXES_MAX));
        assert_eq!(count(&many(PREFIXES_MAX + 1)), Err(PrefixesError::TooMany));
        assert_eq!(count(" "), Err(PrefixesError::None));
        assert_eq!(count("a: b: a:"), Err(PrefixesError::Repeated));
        assert_eq!(count("a:\tb:"), Err(PrefixesError::Alphabet));
        assert_eq!(count(&"x".repeat(64)), Ok(1));
        assert_eq!(count(&"x".repeat(65)), Err(PrefixesError::TooLong));
    }
}
