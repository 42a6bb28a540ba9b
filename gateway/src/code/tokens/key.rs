//! The key that maps of tokens are encrypted with, from the file that `code.tokens_key_file` names.
//!
//! Invariant: the key is in no message, no log and no `Debug`, and encrypts nothing itself: each map has a key of its own,
//! which is derived from it, so that no key is ever used for more lines than one map has.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::hmac;

/// How long the key is.
const KEY_BYTES: usize = 32;
/// Most bytes of the file: the key in hexadecimal digits, and room for white space.
const FILE_BYTES_MAX: u64 = 1024;
/// What nobody but the owner may have.
const MODE_OF_OTHERS: u32 = 0o077;
/// The same for a file of root's, which its group may read, as orchestrators mount secrets for other users.
const MODE_OF_OTHERS_IF_ROOTS: u32 = 0o037;
const ROOT: u32 = 0;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum TokenKeyError {
    /// The file cannot be opened or read.
    #[error("cannot read the key file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// It is a directory, a pipe or the like.
    #[error("the key file {} is not a regular file", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// Others than its owner can read or write it.
    #[error("the key file {} has mode {mode:04o}: only its owner may read it (0600 or 0400; 0640 where it is root's)", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// What is in it is no key. It is never repeated.
    #[error("the key file {} does not hold 32 bytes as 64 hexadecimal digits or in base64", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
}

/// The key that the keys of maps are derived from.
#[derive(Clone)]
pub(crate) struct TokenKey(hmac::Key);

impl TokenKey {
    /// Reads the key from a file: 32 bytes, as 64 hexadecimal digits or in base64, with white space around them. Nobody but
    /// the owner may be able to read the file; a file of root's may be readable by its group too.
    ///
    /// # Errors
    /// See [`TokenKeyError`], which names the file.
    pub(crate) fn read(path: &Path) -> Result<Self, TokenKeyError> {
        let text = read_text(path)?;
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

fn read_text(path: &Path) -> Result<String, TokenKeyError> {
    let failed = |error| TokenKeyError::Read {
        path: path.to_owned(),
        error,
    };
    // A pipe would be waited for, so it is opened without waiting and refused below.
    let no_wait = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(no_wait)
        .open(path)
        .map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if !about.is_file() {
        return Err(TokenKeyError::NotAFile {
            path: path.to_owned(),
        });
    }
    let of_others = if about.uid() == ROOT {
        MODE_OF_OTHERS_IF_ROOTS
    } else {
        MODE_OF_OTHERS
    };
    if about.mode() & of_others != 0 {
        return Err(TokenKeyError::Exposed {
            path: path.to_owned(),
            mode: about.mode() & 0o7777,
        });
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    // What is no text is no key.
    Ok(String::from_utf8(bytes).unwrap_or_default())
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
        assert!(matches!(none, TokenKeyError::NotAFile { .. }), "{none}");
        let absent = TokenKey::read(&directory.path().join("x")).unwrap_err();
        assert!(matches!(absent, TokenKeyError::Read { .. }), "{absent}");
    }
}
