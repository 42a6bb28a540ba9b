//! The token of a form: it proves that a page of the same sign-in was shown to whoever sends the form.
//!
//! A token is `EXPIRY.TAG`: until when it is accepted, in seconds since 1970, and the tag of that time, the principal and the
//! sign-in. Any gateway of the fleet accepts it.
//!
//! Invariant: no token is accepted for another principal or another sign-in of the same one.

use mooring_identity::now;
use mooring_peers::fleet::SealKey;

/// How long the forms of a page can be sent.
const LIFETIME_SECONDS: u64 = 12 * 3600;
/// What a tag is for.
const PURPOSE: &[u8] = b"form";

/// Whose form it is.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct FormOwner<'a> {
    /// The principal; empty before a sign-in.
    pub(in crate::http) principal: &'a str,
    /// The id of the sign-in; empty where the request itself has the identity.
    pub(in crate::http) sign_in: &'a str,
}

/// Makes and verifies the tokens of forms.
#[derive(Debug)]
pub(in crate::http) struct FormTokens(SealKey);

impl FormTokens {
    pub(in crate::http) const fn new(seal: SealKey) -> Self {
        Self(seal)
    }

    /// A new token.
    pub(in crate::http) fn issue(&self, owner: FormOwner<'_>) -> String {
        let expiry = (now() + LIFETIME_SECONDS).to_string();
        let tag = self.0.tag(&parts(&expiry, owner));
        format!("{expiry}.{tag:032x}")
    }

    /// Whether it is a token of this owner that is still accepted.
    pub(in crate::http) fn verify(&self, token: &str, owner: FormOwner<'_>) -> bool {
        let Some((expiry, tag)) = token.split_once('.') else {
            return false;
        };
        let is_current = expiry.parse().is_ok_and(|expiry: u64| now() < expiry);
        let tag = u128::from_str_radix(tag, 16);
        is_current && tag.is_ok_and(|tag| self.0.verify(&parts(expiry, owner), tag))
    }
}

fn parts<'a>(expiry: &'a str, owner: FormOwner<'a>) -> [&'a [u8]; 4] {
    let FormOwner { principal, sign_in } = owner;
    [
        PURPOSE,
        expiry.as_bytes(),
        principal.as_bytes(),
        sign_in.as_bytes(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use mooring_peers::fleet::KeyRing;

    #[test]
    fn a_token_is_of_one_sign_in_and_expires() {
        let tokens = FormTokens::new(SealKey::of_page(&KeyRing::random()));
        let ada = FormOwner {
            principal: "ada",
            sign_in: "1",
        };
        let token = tokens.issue(ada);
        assert!(tokens.verify(&token, ada));
        for other in [
            FormOwner {
                principal: "bob",
                ..ada
            },
            FormOwner {
                sign_in: "2",
                ..ada
            },
            FormOwner {
                principal: "ad",
                sign_in: "a1",
            },
        ] {
            assert!(!tokens.verify(&token, other), "{other:?}");
        }
        let (expiry, tag) = token.split_once('.').unwrap_or_default();
        for forged in [
            "",
            ".",
            tag,
            &format!("9{expiry}.{tag}"),
            &format!("1.{tag}"),
        ] {
            assert!(!tokens.verify(forged, ada), "{forged}");
        }
        let expired = tokens.0.tag(&parts("1", ada));
        assert!(!tokens.verify(&format!("1.{expired:032x}"), ada));
    }
}
