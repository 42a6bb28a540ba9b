//! The names of tickets: derived from the client's request, so that any gateway can compute them, plus a part per
//! attempt.
//!
//! Invariant: without knowing the session, the name of a request cannot be computed, and two requests with the same id
//! never share a ticket. A ticket says whether its request was sent to its server.

use mooring_session::names::{NameError, ServerName, Token};

use mooring_secrets::digest;
use mooring_store::{SessionKey, fresh_token};

/// Domain separation of these digests from all others over the same secrets.
const DOMAIN: &str = "mooring turn";
/// 128 bits, in hexadecimal digits.
const NAME_CHARS: usize = 32;
/// Ends the name of a request that is not sent yet, so that no name is a prefix of another.
const END: char = '.';
/// Ends the name of a request that was sent and requests its turn again.
const END_RESUMED: char = ':';

/// The prefixes of a request's tickets: before it is sent, and when it requests its turn again.
pub(super) fn beginnings(
    key: &SessionKey,
    server: &ServerName,
    request_id_json: &str,
) -> Result<[Token; 2], NameError> {
    let mut name = name(key, server, request_id_json);
    let first = Token::parse(name.as_bytes())?;
    name.pop();
    name.push(END_RESUMED);
    Ok([first, Token::parse(name.as_bytes())?])
}

/// A new ticket for a call that requests its turn again, with the same request's name if it has one.
pub(super) fn resumed(before: &Token) -> Result<Token, NameError> {
    match before.as_str().split_once([END, END_RESUMED]) {
        Some((name, _)) => {
            Token::parse(format!("{name}{END_RESUMED}{:016x}", rand::random::<u64>()).as_bytes())
        }
        None => fresh_token(),
    }
}

/// A new ticket for a request.
pub(super) fn ticket(
    key: &SessionKey,
    server: &ServerName,
    request_id_json: &str,
) -> Result<Token, NameError> {
    let name = name(key, server, request_id_json);
    Token::parse(format!("{name}{:016x}", rand::random::<u64>()).as_bytes())
}

fn name(key: &SessionKey, server: &ServerName, request_id_json: &str) -> String {
    // The separator occurs in no part: keys and names are visible ASCII, and JSON text escapes it.
    let parts = [DOMAIN, key.secret(), server.as_str(), request_id_json];
    let mut name = digest::hex(parts.join("\0").as_bytes());
    name.truncate(NAME_CHARS);
    name.push(END);
    name
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use mooring_store::test_support::requests as make;

    fn named(session: &str, server: &str, id: &str) -> String {
        let (key, server) = (make::key(session), make::server(server));
        let [first, _] = beginnings(&key, &server, id).unwrap();
        first.to_string()
    }

    #[test]
    fn a_cancellation_finds_a_resumed_request() {
        let (key, server) = (make::key("s"), make::server("tools"));
        let [first, again] = beginnings(&key, &server, "7").unwrap();
        let mut before = ticket(&key, &server, "7").unwrap();
        for _ in 0..2 {
            let resumed = resumed(&before).unwrap();
            assert!(resumed.as_str().starts_with(again.as_str()));
            assert!(!resumed.as_str().starts_with(first.as_str()));
            assert_ne!(resumed, before);
            before = resumed;
        }
        // A ticket without a request's name gets none.
        let unnamed = make::token("unnamed");
        assert_ne!(resumed(&unnamed).unwrap(), unnamed);
    }

    #[test]
    fn attempts_share_a_name_and_have_distinct_tickets() {
        let (key, server) = (make::key("s"), make::server("tools"));
        let tickets = [1, 2].map(|_| ticket(&key, &server, "7").unwrap());
        assert_ne!(tickets[0], tickets[1]);
        for ticket in tickets {
            assert!(ticket.as_str().starts_with(&named("s", "tools", "7")));
        }
    }

    #[test]
    fn names_depend_on_session_server_and_id() {
        let names = [
            named("s", "tools", "7"),
            named("s2", "tools", "7"),
            named("s", "tools2", "7"),
            named("s", "tools", "\"7\""),
            named("s", "tools", "70"),
        ];
        for (at, name) in names.iter().enumerate() {
            let others = names.iter().enumerate().filter(|(other, _)| *other != at);
            for (_, other) in others {
                assert!(!other.starts_with(name), "{other} begins with {name}");
            }
        }
    }

    /// Gateways of different versions have to agree.
    #[test]
    fn names_are_stable() {
        let digest = digest::hex(b"mooring turn\0mcpgw:session_affinity:s\0tools\0\"a\"");
        let expected = format!("{}.", digest.split_at(32).0);
        assert_eq!(named("s", "tools", "\"a\""), expected);
    }
}
