//! Encrypts secrets for their owner and purpose (AES-256-GCM), under names that reveal neither.
//!
//! Invariant: a sealed secret opens only with the key that sealed it and with the same parts, so it cannot be moved to
//! another owner. The name of a secret follows from key and parts, so that each key finds its own.

use std::fmt;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use super::keys::KeyRing;
use super::mac::{MacKey, Purpose};

/// The first byte of a sealed secret: its format, which is authenticated too.
const FORMAT: u8 = 1;

/// The keys that seal and open secrets. The first one seals.
pub struct SecretCipher(Box<[SecretKey]>);

struct SecretKey {
    names: MacKey,
    secrets: LessSafeKey,
}

/// The keys cannot be used, or the secret cannot be sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a secret cannot be encrypted")]
pub struct SealError;

impl SecretCipher {
    /// The keys of this ring.
    ///
    /// # Errors
    /// Never in practice: a derived key has the length of the cipher's.
    pub fn new(ring: &KeyRing) -> Result<Self, SealError> {
        Self::derived(ring, Purpose::SealedSecretName, Purpose::SealedSecret)
    }

    /// The keys of this ring for what clients bring back.
    ///
    /// # Errors
    /// Never in practice, as for [`Self::new`].
    pub fn of_client_states(ring: &KeyRing) -> Result<Self, SealError> {
        Self::derived(ring, Purpose::ClientStateNonce, Purpose::ClientState)
    }

    fn derived(ring: &KeyRing, names: Purpose, secrets: Purpose) -> Result<Self, SealError> {
        let (names, secrets) = (ring.derive(names), ring.derive(secrets));
        let keys = names.zip(secrets).map(|(names, secrets)| {
            let secrets = UnboundKey::new(&AES_256_GCM, &secrets).map_err(|_| SealError)?;
            Ok(SecretKey {
                names: MacKey::new(&names),
                secrets: LessSafeKey::new(secrets),
            })
        });
        Ok(Self(keys.collect::<Result<_, _>>()?))
    }

    /// The names of the secret of these parts: one for each key, the first key's first.
    #[must_use]
    pub fn names(&self, parts: &[&[u8]]) -> Vec<String> {
        let name = |key: &SecretKey| {
            let tag = parts
                .iter()
                .fold(key.names.start(), |tag, part| tag.part(part));
            format!("{:032x}", u128::from_be_bytes(tag.short_tag()))
        };
        self.0.iter().map(name).collect()
    }

    /// Seals a secret of these parts with the first key.
    ///
    /// # Errors
    /// The secret is longer than 64 GiB.
    pub fn seal(&self, parts: &[&[u8]], secret: &[u8]) -> Result<Vec<u8>, SealError> {
        // Random nonces of 96 bits are distinct for 2^32 secrets of a key (NIST SP 800-38D, 8.3).
        self.seal_with(rand::random(), parts, secret)
    }

    /// Seals a secret of these parts with the first key, to the same bytes each time.
    ///
    /// # Errors
    /// As [`Self::seal`].
    pub fn seal_alike(&self, parts: &[&[u8]], secret: &[u8]) -> Result<Vec<u8>, SealError> {
        let key = self.0.first().ok_or(SealError)?;
        let tag = parts
            .iter()
            .fold(key.names.start(), |tag, part| tag.part(part));
        // Part of a keyed digest of everything that is sealed: it repeats only with all of that.
        let tag = tag.part(secret).short_tag();
        let (nonce, _) = tag.split_first_chunk::<NONCE_LEN>().ok_or(SealError)?;
        self.seal_with(*nonce, parts, secret)
    }

    fn seal_with(
        &self,
        nonce: [u8; NONCE_LEN],
        parts: &[&[u8]],
        secret: &[u8],
    ) -> Result<Vec<u8>, SealError> {
        let key = self.0.first().ok_or(SealError)?;
        let mut sealed = [&[FORMAT][..], &nonce, secret].concat();
        let (_, text) = sealed
            .split_at_mut_checked(1 + NONCE_LEN)
            .ok_or(SealError)?;
        let tag = key
            .secrets
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(joined(parts)),
                text,
            )
            .map_err(|_| SealError)?;
        sealed.extend_from_slice(tag.as_ref());
        Ok(sealed)
    }

    /// Opens a secret of these parts, which was found under this one of [`Self::names`]; none if it is another one's or
    /// was changed.
    #[must_use]
    pub fn open(&self, name: usize, parts: &[&[u8]], sealed: &[u8]) -> Option<Vec<u8>> {
        let (format, sealed) = sealed.split_first()?;
        let (nonce, sealed) = sealed.split_at_checked(NONCE_LEN)?;
        if *format != FORMAT {
            return None;
        }
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut text = sealed.to_vec();
        let key = &self.0.get(name)?.secrets;
        let opened = key.open_in_place(nonce, Aad::from(joined(parts)), &mut text);
        let length = opened.ok()?.len();
        text.truncate(length);
        Some(text)
    }

    /// Opens a secret of these parts that any of the keys has sealed; none if it is another one's or was changed.
    #[must_use]
    pub fn open_any(&self, parts: &[&[u8]], sealed: &[u8]) -> Option<Vec<u8>> {
        (0..self.0.len()).find_map(|key| self.open(key, parts, sealed))
    }
}

impl fmt::Debug for SecretCipher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretCipher")
    }
}

/// The format and the parts, each after its length, so that no two lists of parts are the same bytes.
fn joined(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![FORMAT];
    for part in parts {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part);
    }
    bytes
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "tests fail by panicking"
    )]
    use super::*;

    const ADA: &[&[u8]] = &[b"https://login.example", b"ada", b"tools"];

    fn cipher(keys: &[&str]) -> SecretCipher {
        let keys: Vec<_> = keys.iter().map(|key| key.as_bytes()).collect();
        SecretCipher::new(&KeyRing::of(&keys)).unwrap()
    }

    #[test]
    fn a_secret_opens_for_its_parts_alone_and_unchanged() {
        let cipher = cipher(&["one"]);
        let sealed = cipher.seal(ADA, b"hunter2").unwrap();
        assert_eq!(cipher.open(0, ADA, &sealed).unwrap(), b"hunter2");
        assert!(!sealed.windows(7).any(|window| window == b"hunter2"));
        assert_ne!(cipher.seal(ADA, b"hunter2").unwrap(), sealed);
        for part in 0..ADA.len() {
            let mut others = ADA.to_vec();
            others[part] = b"another";
            assert_eq!(cipher.open(0, &others, &sealed), None, "part {part}");
            assert_ne!(cipher.names(&others), cipher.names(ADA), "part {part}");
        }
        let moved: &[&[u8]] = &[b"https://login.examplea", b"da", b"tools"];
        assert_eq!(cipher.open(0, moved, &sealed), None);
        for byte in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[byte] ^= 1;
            assert_eq!(cipher.open(0, ADA, &changed), None, "byte {byte}");
            assert_eq!(cipher.open(0, ADA, &sealed[..byte]), None, "{byte} bytes");
        }
    }

    #[test]
    fn what_is_sealed_alike_is_the_same_for_the_same_parts_alone() {
        let states = |keys: &[&str]| {
            let keys: Vec<_> = keys.iter().map(|key| key.as_bytes()).collect();
            SecretCipher::of_client_states(&KeyRing::of(&keys)).unwrap()
        };
        let before = states(&["old"]);
        let sealed = before.seal_alike(ADA, b"t").unwrap();
        assert_eq!(before.seal_alike(ADA, b"t").unwrap(), sealed);
        assert_ne!(before.seal_alike(ADA, b"u").unwrap(), sealed);
        assert_ne!(before.seal_alike(&ADA[..2], b"t").unwrap(), sealed);
        let rotated = states(&["new", "old"]);
        assert_eq!(rotated.open_any(ADA, &sealed).unwrap(), b"t");
        assert_eq!(states(&["new"]).open_any(ADA, &sealed), None);
        assert_eq!(
            cipher(&["old"]).open_any(ADA, &sealed),
            None,
            "another purpose"
        );
    }

    #[test]
    fn each_key_of_the_ring_finds_and_opens_its_own() {
        let before = cipher(&["old"]);
        let sealed = before.seal(ADA, b"hunter2").unwrap();
        let rotated = cipher(&["new", "old"]);
        assert_eq!(rotated.names(ADA)[1], before.names(ADA)[0]);
        assert_eq!(rotated.open(1, ADA, &sealed).unwrap(), b"hunter2");
        assert_eq!(rotated.open(0, ADA, &sealed), None);
        assert_eq!(rotated.open(2, ADA, &sealed), None);
    }
}
