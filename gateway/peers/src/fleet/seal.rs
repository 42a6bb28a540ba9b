//! Sealing: a tag that proves to any gateway that a text was made by a gateway of this fleet.
//!
//! A client sees the ids of a server's requests and returns them to whichever gateway it reaches. The tag binds an id
//! to its session, principal, server and connection, so no client can answer another one's request. In the same way a
//! browser shows to any gateway who has signed in to the operators' page.

use std::fmt;

use super::keys::KeyRing;
use super::mac::{MacRing, Purpose};

/// The keys that make and verify tags.
#[derive(Clone)]
pub struct SealKey(MacRing);

impl SealKey {
    /// The keys of this ring for the ids of servers' requests.
    #[must_use]
    pub fn new(ring: &KeyRing) -> Self {
        Self(ring.keys_for(Purpose::ServerRequestId))
    }

    /// The keys of this ring for sign-ins to the operators' page.
    #[must_use]
    pub fn of_page(ring: &KeyRing) -> Self {
        Self(ring.keys_for(Purpose::PageSignIn))
    }

    /// The tag of these parts, 128 bits. Order and boundaries of the parts matter.
    #[must_use]
    pub fn tag(&self, parts: &[&[u8]]) -> u128 {
        let parts = parts.iter();
        let tag = parts
            .fold(self.0.first().start(), |writer, part| writer.part(part))
            .short_tag();
        u128::from_be_bytes(tag)
    }

    /// Whether this is the tag of these parts under any key of the ring; constant time for each key.
    #[must_use]
    pub fn verify(&self, parts: &[&[u8]], tag: u128) -> bool {
        self.0.iter().any(|key| {
            let parts = parts.iter();
            parts
                .fold(key.start(), |writer, part| writer.part(part))
                .matches_short(&tag.to_be_bytes())
        })
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SealKey")
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "tests fail by panicking"
    )]
    use super::*;

    const PARTS: &[&[u8]] = &[b"session", b"principal", b"server", b"7", b"\"id\""];

    fn ring(keys: &[&str]) -> KeyRing {
        KeyRing::of(&keys.iter().map(|key| key.as_bytes()).collect::<Vec<_>>())
    }

    #[test]
    fn a_tag_is_of_its_parts_alone() {
        let key = SealKey::new(&ring(&["one"]));
        let tag = key.tag(PARTS);
        assert!(key.verify(PARTS, tag));
        for part in 0..PARTS.len() {
            let mut others = PARTS.to_vec();
            others[part] = b"another";
            assert!(!key.verify(&others, tag), "part {part}");
        }
        assert!(!key.verify(&PARTS[..4], tag));
        for bit in 0..128 {
            assert!(!key.verify(PARTS, tag ^ (1 << bit)), "bit {bit}");
        }
    }

    #[test]
    fn keys_can_be_changed_while_clients_hold_tags() {
        let before = SealKey::new(&ring(&["old"]));
        let tag = before.tag(PARTS);
        for (keys, is_valid) in [
            (&["old", "new"][..], true),
            (&["new", "old"], true),
            (&["new"], false),
        ] {
            assert_eq!(SealKey::new(&ring(keys)).verify(PARTS, tag), is_valid);
        }
    }
}
