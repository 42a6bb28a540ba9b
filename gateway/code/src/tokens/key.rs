//! The key that maps of tokens are encrypted with, from the file that `code.tokens_key_file` names.
//!
//! Invariant: the key is in no message, no log and no `Debug`, and encrypts nothing itself: each map has a key of its own,
//! which is derived from it, so that no key is ever used for more lines than one map has.

use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::hmac;

use mooring_secrets::file::{self as secret_file, FileError};

/// How long the key is.
const KEY_BYTES: usize = 32;
/// Most bytes of the file: the key in hexadecimal digits, and room for white space.
const FILE_BYTES_MAX: u64 = 1024;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum TokenKeyError {
    /// The file cannot be read, or others can read it too.
    #[error(transparent)]
    File(#[from] FileError),
    /// Its content is not a valid key. It is never repeated in messages.
    #[error("the key file {} does not hold 32 bytes as 64 hexadecimal digits or in base64", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
}

/// The key that the keys of maps are derived from.
#[derive(Clone)]
pub struct TokenKey(hmac::Key);

impl TokenKey {
    /// Reads the key from a file: 32 bytes, as 64 hexadecimal digits or in base64, with white space around them. Only
    /// the owner may be able to read the file; a file of root's may be readable by its group too.
    ///
    /// # Errors
    /// See [`TokenKeyError`], which names the file.
    pub fn read(path: &Path) -> Result<Self, TokenKeyError> {
        let text = secret_file::read(path, FILE_BYTES_MAX)?;
        // What is no text is no key.
        let text = String::from_utf8(text).unwrap_or_default();
        let bytes = parse(text.trim()).ok_or_else(|| TokenKeyError::NoKey {
            path: path.to_owned(),
        })?;
        Ok(Self::new(bytes))
    }

    pub(super) fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
    }

    /// The 32 bytes of the key that serves one purpose in one map.
    pub(super) fn derive(&self, purpose: &str, map: &[u8]) -> [u8; KEY_BYTES] {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(b"mooring tokens 1 ");
        context.update(purpose.as_bytes());
        context.update(b" ");
        context.update(map);
        let mut key = [0; KEY_BYTES];
        for (to, from) in key.iter_mut().zip(context.sign().as_ref()) {
            *to = *from;
        }
        key
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TokenKey")
    }
}

fn parse(text: &str) -> Option<[u8; KEY_BYTES]> {
    let bytes = if text.len() == 2 * KEY_BYTES {
        let nibble = |byte: &u8| u8::try_from(char::from(*byte).to_digit(16)?).ok();
        let nibbles: Vec<u8> = text.as_bytes().iter().map(nibble).collect::<Option<_>>()?;
        let (pairs, _) = nibbles.as_chunks::<2>();
        pairs.iter().map(|[high, low]| high << 4 | low).collect()
    } else {
        BASE64_STANDARD.decode(text).ok()?
    };
    <[u8; KEY_BYTES]>::try_from(bytes).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn read(text: &str, mode: u32) -> Result<TokenKey, TokenKeyError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        TokenKey::read(&path)
    }

    #[test]
    fn both_spellings_are_one_key() {
        let hex = read(&format!("{}\n", "0f".repeat(32)), 0o600).unwrap();
        let base64 = read("Dw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8=", 0o400).unwrap();
        assert_eq!(hex.derive("a", b"b"), base64.derive("a", b"b"));
        assert_ne!(hex.derive("a", b"b"), hex.derive("a", b"c"));
        assert_ne!(hex.derive("a", b"b"), hex.derive("c", b"b"));
        assert_eq!(format!("{hex:?}"), "TokenKey");
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in [
            "",
            "0f",
            &"0g".repeat(32),
            &"0f".repeat(33),
            "Dw8PDw8P",
            &"é".repeat(32),
        ] {
            let error = read(text, 0o600).unwrap_err();
            assert!(matches!(error, TokenKeyError::NoKey { .. }), "{error}");
            assert!(text.len() < 3 || !error.to_string().contains(text));
        }
        let exposed = read(&"0f".repeat(32), 0o644).unwrap_err();
        assert!(exposed.to_string().contains("has mode 0644"), "{exposed}");
        let directory = tempfile::tempdir().unwrap();
        let none = TokenKey::read(directory.path()).unwrap_err();
        assert!(none.to_string().contains("is not a regular file"), "{none}");
        let absent = TokenKey::read(&directory.path().join("x")).unwrap_err();
        assert!(absent.to_string().contains("cannot open"), "{absent}");
    }
}
