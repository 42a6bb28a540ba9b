//! Identity from the headers of an authenticating proxy. Only configured peers are trusted, and a repeated header is
//! refused, because one of the two may be the client's own.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName};

use crate::error::{IdentityError, IdentityHeader};
use crate::identity::Identity;
use crate::value;
use mooring_session::names::Principal;
use mooring_settings::TrustedHeaderSettings;

/// Most teams, and most roles, of one request.
const ITEMS_MAX: usize = 64;

pub(super) fn identify(
    settings: &TrustedHeaderSettings,
    peer: IpAddr,
    headers: &HeaderMap,
) -> Result<Identity, IdentityError> {
    // A dual-stack socket shows 10.0.0.7 as ::ffff:10.0.0.7.
    let peer = peer.to_canonical();
    if !settings
        .trusted_peers
        .iter()
        .any(|network| network.contains(&peer))
    {
        return Err(IdentityError::PeerNotTrusted);
    }
    Ok(Identity {
        principal: principal(headers, &settings.user_header)?,
        teams: items(headers, &settings.teams_header, IdentityHeader::Teams)?.into(),
        roles: items(headers, &settings.roles_header, IdentityHeader::Roles)?,
        scopes: Vec::new(),
        token: None,
    })
}

fn principal(headers: &HeaderMap, name: &HeaderName) -> Result<Principal, IdentityError> {
    let invalid = IdentityError::Invalid(IdentityHeader::User);
    let text =
        only_value(headers, name, IdentityHeader::User)?.ok_or(IdentityError::UserMissing)?;
    if text.is_empty() {
        return Err(IdentityError::UserMissing);
    }
    value::principal(text).ok_or(invalid)
}

/// The items of a comma-separated header, without duplicates; an absent header has none.
fn items(
    headers: &HeaderMap,
    name: &HeaderName,
    which: IdentityHeader,
) -> Result<Vec<String>, IdentityError> {
    let text = only_value(headers, name, which)?.unwrap_or_default();
    value::distinct_items(text.split(','), ITEMS_MAX).map_err(|invalid| {
        match invalid.are_too_many {
            true => IdentityError::TooMany(which),
            false => IdentityError::Invalid(which),
        }
    })
}

/// The only value of a header, as UTF-8.
fn only_value<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
    which: IdentityHeader,
) -> Result<Option<&'a str>, IdentityError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(IdentityError::Repeated(which));
    }
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(IdentityError::Invalid(which)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use http::HeaderValue;

    use super::*;

    const USER: &str = "x-mooring-user";
    const TEAMS: &str = "x-mooring-teams";
    const ROLES: &str = "x-mooring-roles";

    fn settings() -> TrustedHeaderSettings {
        TrustedHeaderSettings {
            user_header: HeaderName::from_static(USER),
            teams_header: HeaderName::from_static(TEAMS),
            roles_header: HeaderName::from_static(ROLES),
            trusted_peers: vec![
                "10.0.0.0/8".parse().unwrap(),
                "fd00::1/128".parse().unwrap(),
            ],
        }
    }

    fn identity_of(peer: &str, headers: &[(&str, &[u8])]) -> Result<Identity, IdentityError> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_bytes(value).unwrap(),
            );
        }
        identify(&settings(), peer.parse().unwrap(), &map)
    }

    #[test]
    fn only_listed_peers_are_believed() {
        #[track_caller]
        fn check(peer: &str, is_believed: bool) {
            let found = identity_of(peer, &[(USER, b"ada@example.org")]);
            match is_believed {
                true => assert_eq!(found.unwrap().principal.as_str(), "ada@example.org"),
                false => assert_eq!(found, Err(IdentityError::PeerNotTrusted)),
            }
        }
        check("10.1.2.3", true);
        check("::ffff:10.1.2.3", true);
        check("fd00::1", true);
        check("fd00::2", false);
        check("11.0.0.1", false);
        check("127.0.0.1", false);
    }

    #[test]
    fn users() {
        #[track_caller]
        fn check(headers: &[(&str, &[u8])], expected: Result<&str, IdentityError>) {
            let found = identity_of("10.0.0.1", headers).map(|identity| identity.principal);
            assert_eq!(
                found.as_ref().map(Principal::as_str),
                expected.as_ref().copied()
            );
        }
        let invalid = Err(IdentityError::Invalid(IdentityHeader::User));
        check(&[], Err(IdentityError::UserMissing));
        check(&[(USER, b"")], Err(IdentityError::UserMissing));
        check(&[(USER, b"Ada Lovelace")], Ok("Ada Lovelace"));
        check(&[(USER, "Zoë".as_bytes())], Ok("Zoë"));
        check(&[(USER, &[b'x'; 320])], Ok(&"x".repeat(320)));
        check(&[(USER, &[b'x'; 321])], invalid);
        check(&[(USER, b"*")], invalid);
        check(&[(USER, Principal::gateway().as_str().as_bytes())], invalid);
        check(&[(USER, b"a*")], Ok("a*"));
        check(&[(USER, b"a\tb")], invalid);
        check(&[(USER, "a\u{85}b".as_bytes())], invalid);
        check(&[(USER, "\u{a0}ada".as_bytes())], invalid);
        check(&[(USER, b"\xff")], invalid);
        check(
            &[(USER, b"ada"), (USER, b"ada")],
            Err(IdentityError::Repeated(IdentityHeader::User)),
        );
    }

    #[test]
    fn teams_and_roles() {
        #[track_caller]
        fn check(value: &str, expected: Result<&[&str], IdentityError>) {
            let headers = [(USER, b"ada".as_slice()), (ROLES, value.as_bytes())];
            let found = identity_of("10.0.0.1", &headers).map(|identity| identity.roles);
            assert_eq!(
                found,
                expected.map(|roles| roles.iter().map(ToString::to_string).collect())
            );
        }
        check("", Ok(&[]));
        check("admin", Ok(&["admin"]));
        check(" admin ,viewer,, admin", Ok(&["admin", "viewer"]));
        check(
            &"x".repeat(129),
            Err(IdentityError::Invalid(IdentityHeader::Roles)),
        );
        let many: Vec<String> = (0..65).map(|number| number.to_string()).collect();
        check(
            &many.join(","),
            Err(IdentityError::TooMany(IdentityHeader::Roles)),
        );
        let repeated = [
            (USER, b"ada".as_slice()),
            (TEAMS, b"a".as_slice()),
            (TEAMS, b"b".as_slice()),
        ];
        assert_eq!(
            identity_of("10.0.0.1", &repeated),
            Err(IdentityError::Repeated(IdentityHeader::Teams))
        );
    }

    #[test]
    fn statuses() {
        assert_eq!(IdentityError::PeerNotTrusted.status(), 403);
        assert_eq!(IdentityError::UserMissing.status(), 401);
        assert_eq!(IdentityError::Repeated(IdentityHeader::User).status(), 401);
    }
}
