//! The keys by which requests without a session (MCP 2026-07-28) share one, in headers: one that the client chooses or
//! repeats, or a cookie for each server. Clients that keep cookies need to know nothing of this.
//!
//! Invariant: a key is never logged.

use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue};

use super::request_fields::joined;
use mooring_pipeline::ContinuityFields;
use mooring_protocol::SessionKeyChange;
use mooring_protocol::header::MOORING_SESSION;

/// What the names of the cookies begin with; the id of the server follows.
const COOKIE_PREFIX: &str = "mooring-session-";
/// Most cookies that are read.
const COOKIES_MAX: usize = 64;

/// The keys in these headers.
pub(super) fn read(headers: &HeaderMap) -> ContinuityFields {
    let sensitive = |mut value: HeaderValue| {
        value.set_sensitive(true);
        value
    };
    let lines = headers.get_all(COOKIE).iter();
    let pairs = lines.filter_map(|line| line.to_str().ok());
    let pairs = pairs.flat_map(|line| line.split(';'));
    let cookies = pairs.filter_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        let server = name.strip_prefix(COOKIE_PREFIX)?;
        let value = HeaderValue::from_str(value).ok()?;
        Some((server.into(), sensitive(value)))
    });
    ContinuityFields {
        header: joined(headers, &MOORING_SESSION).map(sensitive),
        cookies: cookies.take(COOKIES_MAX).collect(),
    }
}

/// Writes a change of a key. A script of a page cannot read the cookie, and pages of other sites cannot use it.
/// Where the client reaches the gateway over TLS, it never goes in the clear.
pub(super) fn write(change: &SessionKeyChange, is_secure: bool, headers: &mut HeaderMap) {
    let attributes = match is_secure {
        true => "; Path=/; HttpOnly; SameSite=Strict; Secure",
        false => "; Path=/; HttpOnly; SameSite=Strict",
    };
    let cookie = match change {
        SessionKeyChange::Issued { server, key } => {
            let mut header = key.clone();
            header.set_sensitive(true);
            headers.insert(MOORING_SESSION, header);
            let key = key.to_str().unwrap_or_default();
            format!("{COOKIE_PREFIX}{server}={key}{attributes}")
        }
        SessionKeyChange::Ended { server } => {
            format!("{COOKIE_PREFIX}{server}={attributes}; Max-Age=0")
        }
    };
    // The ids of servers and sessions have no other letters than a cookie may have.
    if let Ok(mut cookie) = HeaderValue::try_from(cookie) {
        cookie.set_sensitive(true);
        headers.append(SET_COOKIE, cookie);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]
    use super::*;

    #[test]
    fn an_issued_key_comes_back_as_header_or_cookie() {
        let mut written = HeaderMap::new();
        let issued = SessionKeyChange::Issued {
            server: "tools".into(),
            key: HeaderValue::from_static("a1"),
        };
        write(&issued, false, &mut written);
        assert_eq!(written[MOORING_SESSION], "a1");
        let cookie = written[SET_COOKIE].to_str().unwrap();
        assert_eq!(
            cookie,
            "mooring-session-tools=a1; Path=/; HttpOnly; SameSite=Strict"
        );

        let mut sent = HeaderMap::new();
        sent.append(
            COOKIE,
            HeaderValue::from_static("x=1; mooring-session-tools=a1"),
        );
        sent.append(
            COOKIE,
            HeaderValue::from_static("mooring-session-other=b2; y"),
        );
        let read_back = read(&sent);
        let cookies: Vec<_> = (read_back.cookies.iter())
            .map(|(server, key)| (&**server, key.to_str().unwrap()))
            .collect();
        assert_eq!(cookies, [("tools", "a1"), ("other", "b2")]);
        assert_eq!(read_back.header, None);
        assert!(
            !format!("{read_back:?}").contains("a1"),
            "a key is a secret"
        );
        sent.append(MOORING_SESSION, HeaderValue::from_static("a1"));
        assert_eq!(read(&sent).header.unwrap(), "a1");
    }

    #[test]
    fn the_cookie_of_a_session_that_has_ended_is_taken_back() {
        let mut written = HeaderMap::new();
        let server = "tools".into();
        write(&SessionKeyChange::Ended { server }, true, &mut written);
        let cookie = written[SET_COOKIE].to_str().unwrap();
        assert!(
            cookie.starts_with("mooring-session-tools=;")
                && cookie.ends_with("; Secure; Max-Age=0")
        );
        assert_eq!(written.get(MOORING_SESSION), None);
    }
}
