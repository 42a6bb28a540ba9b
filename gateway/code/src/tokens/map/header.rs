//! The first line of a map's file: the version, a name of its own, and how its lines are written.
//!
//! ```text
//! mooring-tokens 1 <32 hexadecimal digits> plain -
//! mooring-tokens 1 <32 hexadecimal digits> chacha20-poly1305 <16 hexadecimal digits that say which key>
//! ```

use super::error::TokensError;
use super::form::{Cipher, Form};
use crate::tokens::key::TokenKey;

const WORD: &str = "mooring-tokens";
/// The newest version this gateway reads; it is the one it writes.
const VERSION: u32 = 1;
const PLAIN: &str = "plain";
const ENCRYPTED: &str = "chacha20-poly1305";
/// In the place of the key's mark if there is no key.
const NO_KEY: &str = "-";
/// Longest first line.
pub(super) const BYTES_MAX: usize = 256;

/// The first line of a new file, with its end.
pub(super) fn new(key: Option<&TokenKey>) -> String {
    let map = format!("{:032x}", rand::random::<u128>());
    let (form, mark) = match key {
        None => (PLAIN, NO_KEY.to_owned()),
        Some(key) => (ENCRYPTED, key_mark(key, &map)),
    };
    format!("{WORD} {VERSION} {map} {form} {mark}\n")
}

/// How the lines below this one are written.
pub(super) fn read(line: &[u8], key: Option<&TokenKey>) -> Result<Form, TokensError> {
    let line = std::str::from_utf8(line).map_err(|_| TokensError::Damaged)?;
    let words: Vec<&str> = line.split(' ').collect();
    let [WORD, version, rest @ ..] = words.as_slice() else {
        return Err(TokensError::Damaged);
    };
    match version.parse() {
        Ok(VERSION) => {}
        Ok(newer @ VERSION..) => return Err(TokensError::Newer(newer)),
        _ => return Err(TokensError::Damaged),
    }
    let [map, form, mark] = rest else {
        return Err(TokensError::Damaged);
    };
    let is_name = map.len() == 32 && map.bytes().all(|byte| byte.is_ascii_hexdigit());
    match (*form, *mark, key) {
        _ if !is_name => Err(TokensError::Damaged),
        (PLAIN, NO_KEY, None) => Ok(Form::new(map, None)),
        (PLAIN, NO_KEY, Some(_)) => Err(TokensError::NotEncrypted),
        (ENCRYPTED, _, None) => Err(TokensError::NoKey),
        (ENCRYPTED, mark, Some(key)) if mark == key_mark(key, map) => {
            Ok(Form::new(map, Some(Cipher::new(key, map)?)))
        }
        (ENCRYPTED, mark, Some(_)) if mark.len() == 16 => Err(TokensError::WrongKey),
        _ => Err(TokensError::Damaged),
    }
}

/// Distinguishes keys without revealing anything about them.
fn key_mark(key: &TokenKey, map: &str) -> String {
    let derived = key.derive("mark", map.as_bytes());
    let [a, b, c, d, e, f, g, h, ..] = derived;
    format!("{:016x}", u64::from_be_bytes([a, b, c, d, e, f, g, h]))
}
