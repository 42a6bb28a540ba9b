//! How a client's request is called in the queue: by what any worker can work out from the request, and by the attempt.
//!
//! Invariant: whoever does not know the session cannot tell the name of its requests, and two requests of one id never
//! share a ticket. A ticket says whether its request has been sent to its server.

use mooring_session::names::{NameError, ServerName, Token};

use mooring_secrets::digest;
use mooring_store::{SessionKey, fresh_token};

/// What sets these digests apart from all others over the same secrets.
const DOMAIN: &str = "mooring turn";
/// 128 bits, in hexadecimal digits.
const NAME_CHARS: usize = 32;
/// What ends the name of a request that is not sent yet. No name is the beginning of another.
const END: char = '.';
/// What ends the name of a request that was sent, and asks for its turn again.
const END_RESUMED: char = ':';

/// What the tickets of a request begin with: before it is sent, and where it asks for its turn again.
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

/// A ticket for a call that asks for its turn again: another one each time, and named after the same request if the one
/// before was.
pub(super) fn resumed(before: &Token) -> Result<Token, NameError> {
    match before.as_str().split_once([END, END_RESUMED]) {
        Some((name, _)) => {
            Token::parse(format!("{name}{END_RESUMED}{:016x}", rand::random::<u64>()).as_bytes())
        }
        None => fresh_token(),
    }
}

/// A ticket for a request: another one each time.
pub(super) fn ticket(
    key: &SessionKey,
    server: &ServerName,
    request_id_json: &str,
) -> Result<Token, NameError> {
    let name = name(key, server, request_id_json);
    Token::parse(format!("{name}{:016x}", rand::random::<u64>()).as_bytes())
}

fn name(key: &SessionKey, server: &ServerName, request_id_json: &str) -> String {
    // No part can hold the character between them: keys and names are visible ASCII, and JSON text escapes it.
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
    fn a_resumed_request_has_a_name_of_its_own_that_a_cancellation_finds() {
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
        // A ticket that names no request has none to keep.
        let unnamed = make::token("unnamed");
        assert_ne!(resumed(&unnamed).unwrap(), unnamed);
    }

    #[test]
    fn a_request_has_one_name_and_every_attempt_a_ticket_of_its_own() {
        let (key, server) = (make::key("s"), make::server("tools"));
        let tickets = [1, 2].map(|_| ticket(&key, &server, "7").unwrap());
        assert_ne!(tickets[0], tickets[1]);
        for ticket in tickets {
            assert!(ticket.as_str().starts_with(&named("s", "tools", "7")));
        }
    }

    #[test]
    fn another_session_server_or_id_has_another_name() {
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

    /// Workers of two versions have to agree.
    #[test]
    fn the_name_is_what_it_always_was() {
        let digest = digest::hex(b"mooring turn\0mcpgw:session_affinity:s\0tools\0\"a\"");
        let expected = format!("{}.", digest.split_at(32).0);
        assert_eq!(named("s", "tools", "\"a\""), expected);
    }
}
