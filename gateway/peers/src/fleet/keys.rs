//! The shared keys of a fleet: one file, the same at every gateway.
//!
//! Invariant: a key never appears in a message, a log or `Debug`, and none is used directly: every purpose has a key
//! derived from it.
//!
//! To rotate keys without downtime: add the new one below the old at every gateway, then swap the two, then remove the
//! old. After each step every gateway accepts what any other one signs.

use std::fmt;
use std::path::Path;

use super::mac::{DERIVED_KEY_BYTES, KEY_BYTES_MAX, MacKey, MacRing, Purpose};
use mooring_secrets::file::FileError;

mod file;

/// Shortest key: the 256 bits of the hash it is used with.
const KEY_BYTES_MIN: usize = 32;
/// Most keys of a ring. Rotation needs two.
const KEYS_MAX: usize = 8;

/// The keys of a fleet, the current one first.
#[derive(Clone)]
pub struct KeyRing {
    first: MacKey,
    others: Vec<MacKey>,
}

impl KeyRing {
    /// Reads the ring from a file: one key per line, the current one first, each of 64 to 128 hexadecimal digits; empty
    /// lines and lines that begin with `#` are skipped. At most 8 keys and 64 KiB.
    ///
    /// The file must be readable by its owner only; if root owns it, also by its group, since orchestrators mount
    /// secrets like that for processes of another user.
    ///
    /// # Errors
    /// Names the file and the line.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let text = file::read(path)?;
        let named = |problem| FileError::new(format!("the key file {}{problem}", path.display()));
        Self::parse(&text).map_err(named)
    }

    /// Reads the ring like [`Self::read`], and generates a file with one random key if there is none: for a store that
    /// the gateways of one machine share. If several processes do so concurrently, one creates the file, and all use
    /// its key.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_or_generate(path: &Path) -> Result<Self, FileError> {
        match Self::read(path) {
            Err(error) if error.is_not_found() => {
                file::generate(path, &random_key())?;
                Self::read(path)
            }
            settled => settled,
        }
    }

    /// A ring with one random key that only this process knows.
    #[must_use]
    pub fn random() -> Self {
        Self {
            first: MacKey::new(&random_key()),
            others: Vec::new(),
        }
    }

    /// The number of keys.
    #[must_use]
    pub fn count(&self) -> usize {
        1 + self.others.len()
    }

    /// The keys for one purpose.
    pub(super) fn keys_for(&self, purpose: Purpose) -> MacRing {
        let others = self.others.iter().map(|key| key.of(purpose)).collect();
        MacRing::new(self.first.of(purpose), others)
    }

    /// The bytes of the keys for one purpose, the current one first.
    pub(super) fn derive(&self, purpose: Purpose) -> impl Iterator<Item = [u8; DERIVED_KEY_BYTES]> {
        let keys = std::iter::once(&self.first).chain(&self.others);
        keys.map(move |key| key.derive(purpose))
    }

    /// An error is the end of a sentence about the file. It has no part of the line that is wrong.
    fn parse(text: &[u8]) -> Result<Self, String> {
        let mut keys = Vec::new();
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let fail = |problem: String| format!(", line {}: {problem}", index + 1);
            if keys.len() == KEYS_MAX {
                return Err(fail(format!("more than {KEYS_MAX} keys")));
            }
            keys.push(MacKey::new(&parse_key(line).map_err(fail)?));
        }
        let mut keys = keys.into_iter();
        Ok(Self {
            first: keys.next().ok_or(" has no key")?,
            others: keys.collect(),
        })
    }

    /// A ring of these keys, of at most 64 bytes each.
    #[cfg(test)]
    #[allow(clippy::indexing_slicing, reason = "tests fail by panicking")]
    pub(crate) fn of(keys: &[&[u8]]) -> Self {
        Self {
            first: MacKey::new(keys[0]),
            others: keys[1..].iter().map(|key| MacKey::new(key)).collect(),
        }
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count() {
            1 => formatter.write_str("KeyRing(1 key)"),
            count => write!(formatter, "KeyRing({count} keys)"),
        }
    }
}

fn random_key() -> [u8; KEY_BYTES_MIN] {
    rand::random()
}

/// An error says what is wrong, without any part of the line.
fn parse_key(line: &[u8]) -> Result<Vec<u8>, String> {
    let nibble = |byte: &u8| {
        char::from(*byte)
            .to_digit(16)
            .and_then(|n| u8::try_from(n).ok())
    };
    let nibbles: Option<Vec<u8>> = line.iter().map(nibble).collect();
    let nibbles = nibbles.unwrap_or_default();
    let (pairs, odd) = nibbles.as_chunks::<2>();
    if pairs.is_empty() || !odd.is_empty() {
        return Err("a key is an even number of hexadecimal digits, alone on its line".to_owned());
    }
    let digits = |bytes: usize| format!("{} hexadecimal digits", bytes * 2);
    match pairs.len() {
        0..KEY_BYTES_MIN => Err(format!("the key is shorter than {}", digits(KEY_BYTES_MIN))),
        KEY_BYTES_MIN..=KEY_BYTES_MAX => {
            Ok(pairs.iter().map(|[high, low]| high << 4 | low).collect())
        }
        _ => Err(format!("the key is longer than {}", digits(KEY_BYTES_MAX))),
    }
}

#[cfg(test)]
mod tests;
