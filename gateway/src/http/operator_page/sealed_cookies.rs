//! The cookies of the page: who has signed in, and a sign-in that is under way. Each is JSON with a tag of the fleet's keys.
//!
//! Invariant: a text of one kind is never accepted as the other, and none after its expiry.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};
use mooring_identity::{Identity, SignInFlow, now};
use mooring_peers::fleet::SealKey;
use mooring_session::names::Principal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Longest cookie that browsers keep (RFC 6265, 6.1), with room for its name and attributes.
const COOKIE_BYTES_MAX: usize = 3_800;
/// How long a sign-in at the provider may take.
pub(in crate::http) const FLOW_SECONDS: u64 = 600;

/// A person who has signed in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::http) struct SignIn {
    /// Distinguishes the sign-ins of a person.
    pub(in crate::http) id: Box<str>,
    user: Box<str>,
    teams: Vec<String>,
    roles: Vec<String>,
    scopes: Vec<String>,
    /// The API key, which may be revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) api_key: Option<Box<str>>,
    /// In seconds since 1970.
    pub(in crate::http) until: u64,
}

/// A sign-in at the provider that was begun.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::http) struct BegunSignIn {
    pub(in crate::http) flow: SignInFlow,
    /// Where the person was going.
    pub(in crate::http) to: String,
    pub(in crate::http) until: u64,
}

/// What a cookie holds.
pub(in crate::http) trait SealedText: Serialize + DeserializeOwned {
    /// The cookie's name.
    const NAME: &'static str;
    /// Where browsers send it.
    const PATH: &'static str;
    /// `Lax` where the provider leads the browser back, `Strict` otherwise.
    const SAME_SITE: &'static str;

    /// Until when it is accepted, in seconds since 1970.
    fn until(&self) -> u64;
}

impl SealedText for SignIn {
    const NAME: &'static str = "mooring-page";
    const PATH: &'static str = "/ui";
    const SAME_SITE: &'static str = "Strict";

    fn until(&self) -> u64 {
        self.until
    }
}

impl SealedText for BegunSignIn {
    const NAME: &'static str = "mooring-sign-in";
    const PATH: &'static str = "/ui/sign-in";
    const SAME_SITE: &'static str = "Lax";

    fn until(&self) -> u64 {
        self.until
    }
}

impl SignIn {
    /// A new one of this person, until this time.
    pub(in crate::http) fn new(identity: &Identity, api_key: Option<Box<str>>, until: u64) -> Self {
        Self {
            id: format!("{:032x}", rand::random::<u128>()).into(),
            user: identity.principal.as_str().into(),
            teams: identity.teams.to_vec(),
            roles: identity.roles.clone(),
            scopes: identity.scopes.clone(),
            api_key,
            until,
        }
    }

    /// Who it is.
    pub(in crate::http) fn identity(&self) -> Option<Arc<Identity>> {
        Some(Arc::new(Identity {
            teams: self.teams.clone().into(),
            roles: self.roles.clone(),
            scopes: self.scopes.clone(),
            ..Identity::of(Principal::parse(self.user.as_bytes()).ok()?)
        }))
    }
}

/// Seals and opens the texts of cookies.
#[derive(Debug)]
pub(in crate::http) struct SealedCookies(SealKey);

impl SealedCookies {
    pub(in crate::http) const fn new(seal: SealKey) -> Self {
        Self(seal)
    }

    /// The cookie of the request, if it is one that a gateway of the fleet has set and it has not expired.
    pub(in crate::http) fn open<T: SealedText>(&self, headers: &HeaderMap) -> Option<T> {
        let opened = |text: &str| {
            let (payload, tag) = text.split_once('.')?;
            let tag = u128::from_str_radix(tag, 16).ok()?;
            let is_ours = self
                .0
                .verify(&[T::NAME.as_bytes(), payload.as_bytes()], tag);
            let payload = URL_SAFE_NO_PAD.decode(payload).ok().filter(|_| is_ours)?;
            let text: T = serde_json::from_slice(&payload).ok()?;
            (now() < text.until()).then_some(text)
        };
        let cookies = headers.get_all(COOKIE).iter();
        let cookies = cookies.filter_map(|cookies| cookies.to_str().ok());
        let mut pairs = cookies.flat_map(|cookies| cookies.split(';'));
        pairs.find_map(|pair| match pair.trim().split_once('=') {
            Some((name, text)) if name == T::NAME => opened(text),
            _ => None,
        })
    }

    /// The value of a `Set-Cookie` header; none if the text is longer than a browser would keep.
    pub(in crate::http) fn set<T: SealedText>(
        &self,
        value: &T,
        is_secure: bool,
    ) -> Option<HeaderValue> {
        let payload = URL_SAFE_NO_PAD.encode(serde_json::to_vec(value).ok()?);
        if payload.len() > COOKIE_BYTES_MAX {
            return None;
        }
        let tag = self.0.tag(&[T::NAME.as_bytes(), payload.as_bytes()]);
        let seconds = value.until().saturating_sub(now());
        header::<T>(&format!("{payload}.{tag:032x}"), seconds, is_secure)
    }
}

/// The value of a `Set-Cookie` header that deletes the cookie.
pub(in crate::http) fn deletion<T: SealedText>(is_secure: bool) -> Option<HeaderValue> {
    header::<T>("", 0, is_secure)
}

fn header<T: SealedText>(value: &str, seconds: u64, is_secure: bool) -> Option<HeaderValue> {
    let (name, path, same_site) = (T::NAME, T::PATH, T::SAME_SITE);
    let secure = if is_secure { "; Secure" } else { "" };
    let text = format!(
        "{name}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite={same_site}{secure}"
    );
    let mut header = HeaderValue::try_from(text).ok()?;
    header.set_sensitive(true);
    Some(header)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use mooring_peers::fleet::KeyRing;

    fn cookies() -> SealedCookies {
        SealedCookies::new(SealKey::of_page(&KeyRing::random()))
    }

    fn sign_in(until: u64) -> SignIn {
        let ada = Identity {
            teams: ["dev".to_owned()].into(),
            roles: vec!["admin".to_owned()],
            ..Identity::of(Principal::parse(b"ada").unwrap())
        };
        SignIn::new(&ada, None, until)
    }

    fn sent(set: &HeaderValue) -> HeaderMap {
        let pair = set.to_str().unwrap().split(';').next().unwrap();
        let text = format!("theme=dark; {pair}");
        HeaderMap::from_iter([(COOKIE, HeaderValue::try_from(text).unwrap())])
    }

    #[test]
    fn a_cookie_is_of_its_fleet_its_kind_and_its_time() {
        let ours = cookies();
        let set = ours.set(&sign_in(now() + 60), true).unwrap();
        let text = set.to_str().unwrap();
        assert!(
            text.ends_with("; Path=/ui; Max-Age=60; HttpOnly; SameSite=Strict; Secure"),
            "{text}"
        );
        let found: SignIn = ours.open(&sent(&set)).unwrap();
        let identity = found.identity().unwrap();
        assert_eq!(identity.principal.as_str(), "ada");
        assert_eq!(
            (&*identity.teams, &*identity.roles),
            (&["dev".to_owned()][..], &["admin".to_owned()][..])
        );

        assert!(
            cookies().open::<SignIn>(&sent(&set)).is_none(),
            "another fleet's"
        );
        assert!(
            ours.open::<BegunSignIn>(&sent(&set)).is_none(),
            "another kind"
        );
        let expired = ours.set(&sign_in(now()), false).unwrap();
        assert!(ours.open::<SignIn>(&sent(&expired)).is_none(), "expired");
        let changed = text.replacen('.', "A.", 1);
        let changed = HeaderValue::try_from(changed).unwrap();
        assert!(ours.open::<SignIn>(&sent(&changed)).is_none(), "changed");
    }

    #[test]
    fn an_identity_that_no_browser_would_keep_is_not_set() {
        let mut large = sign_in(now() + 60);
        large.teams = (0..200).map(|number| format!("{number:036}")).collect();
        assert!(cookies().set(&large, true).is_none());
    }
}
