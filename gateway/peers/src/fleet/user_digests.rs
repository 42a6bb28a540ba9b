//! The digests that identify users in logs and metrics: the same at every gateway of a fleet, also after a restart.
//!
//! Invariant: a digest has a key that only the fleet has. Names can be guessed, and a plain digest of each guess compared.

use std::fmt;

use mooring_session::names::Principal;

use super::keys::KeyRing;
use super::mac::{MacKey, Purpose};

/// Makes digests of users.
#[derive(Clone)]
pub struct UserDigests(MacKey);

impl UserDigests {
    /// With the first key of the fleet; without a fleet, with one of this process.
    #[must_use]
    pub fn new(ring: Option<&KeyRing>) -> Self {
        Self(match ring {
            Some(ring) => ring.keys_for(Purpose::UserDigest).first().clone(),
            None => MacKey::new(&rand::random::<[u8; 32]>()).of(Purpose::UserDigest),
        })
    }

    /// The digest of this user: 16 hexadecimal digits.
    #[must_use]
    pub fn of(&self, user: &Principal) -> Box<str> {
        let tag = self.0.start().part(user.as_str().as_bytes()).short_tag();
        format!("{:016x}", u128::from_be_bytes(tag) >> 64).into()
    }
}

impl fmt::Debug for UserDigests {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("UserDigests")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn a_user_has_one_digest_in_a_fleet_and_another_in_every_other() {
        let ring = |key: &str| KeyRing::of(&[key.as_bytes()]);
        let user = |name: &str| Principal::parse(name.as_bytes()).unwrap();
        let of = |key: &str, name: &str| UserDigests::new(Some(&ring(key))).of(&user(name));
        let ada = of("one", "ada@example.org");
        assert_eq!((ada.len(), &ada), (16, &of("one", "ada@example.org")));
        assert_ne!(ada, of("one", "bob@example.org"));
        assert_ne!(ada, of("other", "ada@example.org"));
        let alone = || UserDigests::new(None).of(&user("ada"));
        assert_ne!(alone(), alone(), "it could be guessed");
    }
}
