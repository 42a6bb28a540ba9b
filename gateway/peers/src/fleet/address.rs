//! Announced addresses: signed by the worker that is reached there, so that nobody else is forwarded to.
//!
//! Invariant: an address is used only after its tag is checked, and the tag is of one worker, boot id included. Who can
//! write to the store but has no key of the fleet cannot announce an address that is used.
//!
//! The form is `host:port|tag`, the tag in URL-safe base64. No URL contains `|`, so a release that does not know tags
//! takes it for an unusable address and sends nothing.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use mooring_session::names::WorkerId;

use super::keys::KeyRing;
use super::mac::{MacKey, MacRing, MacWriter, Purpose, SHORT_TAG_BYTES};

/// Between the address and its tag.
const SEPARATOR: char = '|';

/// The keys that sign and verify addresses.
#[derive(Clone)]
pub(super) struct AddressKeys(MacRing);

/// Why an announced address is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnverifiedAddress {
    /// It has no tag: the worker has no key or is of an earlier release, or somebody else wrote it.
    #[error(
        "the worker's address is not signed: give each gateway the same fleet_keys_file and release"
    )]
    Unsigned,
    /// No key of the ring made its tag for this address of this worker.
    #[error(
        "no key of this gateway made the signature of the worker's address: give each gateway the same fleet_keys_file"
    )]
    NotAuthentic,
}

impl AddressKeys {
    pub(super) fn new(ring: &KeyRing) -> Self {
        Self(ring.keys_for(Purpose::PeerAddress))
    }

    /// The address with its tag.
    pub(super) fn sign(&self, worker: &WorkerId, address: &str) -> String {
        let tag = signed(self.0.first(), worker, address).short_tag();
        let tag = BASE64_URL_SAFE_NO_PAD.encode(tag);
        format!("{address}{SEPARATOR}{tag}")
    }

    /// The address of a signed one, if any key of the ring signed it for this worker.
    pub(super) fn verify<'a>(
        &self,
        worker: &WorkerId,
        announced: &'a str,
    ) -> Result<&'a str, UnverifiedAddress> {
        let (address, tag) = announced
            .rsplit_once(SEPARATOR)
            .ok_or(UnverifiedAddress::Unsigned)?;
        let tag = BASE64_URL_SAFE_NO_PAD.decode(tag).ok();
        let tag: [u8; SHORT_TAG_BYTES] = tag
            .and_then(|tag| tag.try_into().ok())
            .ok_or(UnverifiedAddress::NotAuthentic)?;
        let is_authentic =
            (self.0.iter()).any(|key| signed(key, worker, address).matches_short(&tag));
        is_authentic
            .then_some(address)
            .ok_or(UnverifiedAddress::NotAuthentic)
    }
}

fn signed(key: &MacKey, worker: &WorkerId, address: &str) -> MacWriter {
    let worker = worker.as_str().as_bytes();
    key.start().part(worker).part(address.as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use mooring_settings::ADDRESS_TAG_BYTES;

    const ADDRESS: &str = "gateway-1.internal:4500";

    fn keys(keys: &[&str]) -> AddressKeys {
        let keys: Vec<_> = keys.iter().map(|key| key.as_bytes()).collect();
        AddressKeys::new(&KeyRing::of(&keys))
    }

    fn worker(id: &str) -> WorkerId {
        WorkerId::parse(id.as_bytes()).unwrap()
    }

    #[test]
    fn an_address_is_of_the_boot_that_signed_it() {
        let keys = keys(&["k"]);
        let announced = keys.sign(&worker("a:1"), ADDRESS);
        assert_eq!(announced.len(), ADDRESS.len() + ADDRESS_TAG_BYTES);
        assert_eq!(keys.verify(&worker("a:1"), &announced), Ok(ADDRESS));
        for other in ["a:2", "b:1", "a:1:1"] {
            let refused = keys.verify(&worker(other), &announced);
            assert_eq!(refused, Err(UnverifiedAddress::NotAuthentic), "{other}");
        }
    }

    #[test]
    fn what_was_written_without_a_key_is_no_address() {
        let keys = keys(&["k"]);
        let announced = keys.sign(&worker("a:1"), ADDRESS);
        let (_, tag) = announced.rsplit_once(SEPARATOR).unwrap();
        let check = |announced: &str, expected| {
            let refused = keys.verify(&worker("a:1"), announced);
            assert_eq!(refused, Err(expected), "{announced}");
        };
        check(ADDRESS, UnverifiedAddress::Unsigned);
        check("", UnverifiedAddress::Unsigned);
        for forged in [
            format!("10.6.6.6:4500|{tag}"),
            format!("10.6.6.6:4500|{announced}"),
            format!("{ADDRESS}|"),
            format!("{ADDRESS}|AAAAAAAAAAAAAAAAAAAAAA"),
            format!("{ADDRESS}|{}", &tag[1..]),
            format!("{announced}A"),
            format!("{announced}|{tag}"),
        ] {
            check(&forged, UnverifiedAddress::NotAuthentic);
        }
    }

    #[test]
    fn the_first_key_signs_and_every_key_verifies() {
        let worker = worker("a:1");
        let (old, both, new) = (keys(&["old"]), keys(&["new", "old"]), keys(&["new"]));
        assert!(both.verify(&worker, &old.sign(&worker, ADDRESS)).is_ok());
        assert!(new.verify(&worker, &both.sign(&worker, ADDRESS)).is_ok());
        assert!(old.verify(&worker, &both.sign(&worker, ADDRESS)).is_err());
    }

    #[test]
    fn an_earlier_release_sends_nothing_to_a_signed_address() {
        let announced = keys(&["k"]).sign(&worker("a:1"), ADDRESS);
        let url = format!("http://{announced}/peer/v1");
        assert!(url.parse::<http::Uri>().is_err(), "{url}");
    }
}
