//! One line of a map's file: a number, and the value of its token.
//!
//! ```text
//! <number> <base64 of the body> <16 hexadecimal digits of a checksum>
//! ```
//!
//! The body is the category, a space, `t` for text or `n` for a number, and the value; where the file is encrypted, it is a
//! nonce and what it was encrypted to, bound to the number. The checksum covers the map's name, the number and the
//! body: a line that is damaged, incomplete or of another map is ignored.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest;

use super::error::TokensError;
use super::index::{PersonalValue, ValueType};
use crate::tokens::key::TokenKey;

/// How the lines of one map are written.
#[derive(Debug)]
pub(super) struct Form {
    map: Box<str>,
    cipher: Option<Cipher>,
}

/// The key of one map.
pub(super) struct Cipher(LessSafeKey);

impl Cipher {
    pub(super) fn new(key: &TokenKey, map: &str) -> Result<Self, TokensError> {
        let derived = key.derive("lines", map.as_bytes());
        let key = UnboundKey::new(&CHACHA20_POLY1305, &derived);
        Ok(Self(LessSafeKey::new(
            key.map_err(|_| TokensError::Encrypt)?,
        )))
    }

    /// A nonce of chance, and what the body becomes. A map's key encrypts far too few lines for two of them to meet.
    fn seal(&self, number: u32, mut body: Vec<u8>) -> Result<Vec<u8>, TokensError> {
        let nonce: [u8; NONCE_LEN] = rand::random();
        let number = Aad::from(number.to_be_bytes());
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), number, &mut body)
            .map_err(|_| TokensError::Encrypt)?;
        let mut sealed = nonce.to_vec();
        sealed.append(&mut body);
        Ok(sealed)
    }

    fn open(&self, number: u32, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, body) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let mut body = body.to_vec();
        let number = Aad::from(number.to_be_bytes());
        let opened = self.0.open_in_place(nonce, number, &mut body).ok()?;
        Some(opened.to_vec())
    }
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Cipher")
    }
}

impl Form {
    pub(super) fn new(map: &str, cipher: Option<Cipher>) -> Self {
        Self {
            map: map.into(),
            cipher,
        }
    }

    /// The line, with its end.
    pub(super) fn line(&self, number: u32, value: &PersonalValue) -> Result<String, TokensError> {
        let shape = match value.shape {
            ValueType::Text => 't',
            ValueType::Number => 'n',
        };
        let body = format!("{} {shape}{}", value.category, value.text).into_bytes();
        let body = match &self.cipher {
            None => body,
            Some(cipher) => cipher.seal(number, body)?,
        };
        let text = format!("{number} {}", BASE64_STANDARD_NO_PAD.encode(body));
        let checksum = self.checksum(&text);
        Ok(format!("{text} {checksum}\n"))
    }

    /// Parses a line, given without its newline; none if its checksum or its content is invalid.
    pub(super) fn read(&self, line: &[u8]) -> Option<(u32, PersonalValue)> {
        let line = std::str::from_utf8(line).ok()?;
        let (text, checksum) = line.rsplit_once(' ')?;
        if checksum != self.checksum(text) {
            return None;
        }
        let (number, body) = text.split_once(' ')?;
        let number = number.parse().ok().filter(|number| *number > 0)?;
        let body = BASE64_STANDARD_NO_PAD.decode(body).ok()?;
        let body = match &self.cipher {
            None => body,
            Some(cipher) => cipher.open(number, &body)?,
        };
        let body = String::from_utf8(body).ok()?;
        let (category, value) = body.split_once(' ')?;
        let (shape, text) = match value.split_at_checked(1)? {
            ("t", text) => (ValueType::Text, text),
            ("n", text) => (ValueType::Number, text),
            _ => return None,
        };
        Some((
            number,
            PersonalValue {
                category: category.into(),
                shape,
                text: text.into(),
            },
        ))
    }

    fn checksum(&self, text: &str) -> String {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(self.map.as_bytes());
        context.update(b" ");
        context.update(text.as_bytes());
        let digest = context.finish();
        let first = digest.as_ref().first_chunk::<8>();
        format!(
            "{:016x}",
            u64::from_be_bytes(first.copied().unwrap_or_default())
        )
    }
}
