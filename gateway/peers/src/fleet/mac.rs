//! HMAC-SHA256 over parts, with a key for each purpose.
//!
//! Invariant: a tag for one purpose never verifies for another, and no two lists of parts have the same encoding: every
//! part is preceded by its length.

use hmac::digest::Key;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Most bytes of a key: one block of SHA-256. HMAC hashes longer keys, which adds nothing.
pub(super) const KEY_BYTES_MAX: usize = 64;

/// The length of a derived key, in bytes.
pub(super) const DERIVED_KEY_BYTES: usize = 32;
/// The length of a truncated tag in bytes: 128 bits, which cannot be guessed over a network.
const SHORT_TAG_BYTES: usize = 16;

/// What a key is used for. The texts are input of the derivation: changing one invalidates all earlier tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The private key of the authority that signs the certificates of gateways.
    PeerAuthority,
    /// The key that signs the tokens of callers.
    CallerToken,
    /// Ids of a server's requests: a client sees them, and its response may reach any gateway.
    ServerRequestId,
    /// Encrypts what users store.
    SealedSecret,
    /// Names what users store.
    SealedSecretName,
    /// Encrypts what clients without sessions bring back.
    ClientState,
    /// Makes what is encrypted for them twice the same.
    ClientStateNonce,
    /// Identifies users in logs.
    UserDigest,
    /// Who has signed in to the operators' page: a browser shows it to whichever gateway it reaches.
    PageSignIn,
}

impl Purpose {
    const fn label(self) -> &'static [u8] {
        match self {
            Self::PeerAuthority => b"mooring peer authority v1",
            Self::CallerToken => b"mooring caller token v1",
            Self::ServerRequestId => b"mooring server request id v1",
            Self::SealedSecret => b"mooring sealed secret v1",
            Self::SealedSecretName => b"mooring sealed secret name v1",
            Self::ClientState => b"mooring client state v1",
            Self::ClientStateNonce => b"mooring client state nonce v1",
            Self::UserDigest => b"mooring user digest v1",
            Self::PageSignIn => b"mooring page sign-in v1",
        }
    }
}

/// A key with its padding already hashed. It has no `Debug`.
#[derive(Clone)]
pub(super) struct MacKey(Hmac<Sha256>);

impl MacKey {
    /// A key of these bytes, at most [`KEY_BYTES_MAX`]; HMAC pads a shorter key with zeros.
    pub(super) fn new(bytes: &[u8]) -> Self {
        let mut block = Key::<Hmac<Sha256>>::default();
        for (to, from) in block.iter_mut().zip(bytes) {
            *to = *from;
        }
        Self(Hmac::new(&block))
    }

    /// The key derived for this purpose.
    pub(super) fn of(&self, purpose: Purpose) -> Self {
        Self::new(&self.derive(purpose))
    }

    /// The bytes of the key derived for this purpose.
    pub(super) fn derive(&self, purpose: Purpose) -> [u8; DERIVED_KEY_BYTES] {
        self.start().part(purpose.label()).tag()
    }

    /// Begins a tag.
    pub(super) fn start(&self) -> MacWriter {
        MacWriter(self.0.clone())
    }
}

/// A tag under construction. A copy continues from the original's state.
#[derive(Clone)]
pub(super) struct MacWriter(Hmac<Sha256>);

impl MacWriter {
    /// Adds a part, after its length.
    pub(super) fn part(mut self, bytes: &[u8]) -> Self {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.0.update(&length.to_be_bytes());
        self.0.update(bytes);
        self
    }

    /// The whole tag.
    fn tag(self) -> [u8; DERIVED_KEY_BYTES] {
        self.0.finalize().into_bytes().into()
    }

    /// The first half of the tag.
    pub(super) fn short_tag(self) -> [u8; SHORT_TAG_BYTES] {
        let mut short = [0; SHORT_TAG_BYTES];
        for (to, from) in short.iter_mut().zip(self.tag()) {
            *to = from;
        }
        short
    }

    /// Whether this is the first half of the tag, in constant time.
    pub(super) fn matches_short(self, tag: &[u8; SHORT_TAG_BYTES]) -> bool {
        self.0.verify_truncated_left(tag).is_ok()
    }
}

/// The keys of a ring for one purpose. The first one signs, all verify, so that keys can be rotated in a running fleet.
#[derive(Clone)]
pub(super) struct MacRing {
    first: MacKey,
    others: Box<[MacKey]>,
}

impl MacRing {
    pub(super) fn new(first: MacKey, others: Box<[MacKey]>) -> Self {
        Self { first, others }
    }

    /// The signing key.
    pub(super) const fn first(&self) -> &MacKey {
        &self.first
    }

    /// Every key, the signing one first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &MacKey> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_is_that_of_hmac_sha256() {
        // RFC 4231, test case 2: without parts, the writer is plain HMAC.
        let mut writer = MacKey::new(b"Jefe").start();
        writer.0.update(b"what do ya want for nothing?");
        assert_eq!(
            writer.clone().tag(),
            [
                0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24, 0x26, 0x08, 0x95,
                0x75, 0xc7, 0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27, 0x39, 0x83, 0x9d, 0xec, 0x58, 0xb9,
                0x64, 0xec, 0x38, 0x43,
            ]
        );
        assert!(writer.clone().matches_short(&writer.short_tag()));
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        let key = MacKey::new(b"key");
        let joined = key.start().part(b"ab").part(b"c").short_tag();
        for other in [
            key.start().part(b"a").part(b"bc"),
            key.start().part(b"abc"),
            key.start().part(b"ab").part(b"c").part(b""),
            key.start().part(b"").part(b"ab").part(b"c"),
        ] {
            assert!(!other.matches_short(&joined));
        }
    }

    #[test]
    fn a_purpose_has_a_key_of_its_own() {
        let key = MacKey::new(b"key");
        let (one, other) = (Purpose::PeerAuthority, Purpose::ServerRequestId);
        assert_ne!(key.derive(one), key.derive(other));
        let tag = key.of(one).start().part(b"x").short_tag();
        assert!(key.of(one).start().part(b"x").matches_short(&tag));
        assert!(!key.of(other).start().part(b"x").matches_short(&tag));
    }
}
