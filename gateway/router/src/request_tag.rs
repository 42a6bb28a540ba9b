//! Tags of client requests: what tells a reply that belongs to a request from every other reply.
//!
//! A tag is 64 random bits and a check value over them that is keyed by the session. The random half distinguishes the
//! requests of a session, whose client may reuse ids. The check value lets any gateway verify that a message on a stream
//! of the session, which may have been resumed, belongs to the session at all. Invariant: a valid tag cannot be made
//! without the session's id; the upstream server sees only tags of its own requests.

use mooring_protocol::{RequestOrigin, RequestTag};
use mooring_session::names::ServerName;
use sha2::{Digest, Sha256};

use mooring_store::{Session, SessionKey};

/// Domain separation of these digests from all others over the same secrets.
const DOMAIN: &[u8] = b"mooring request\0";

/// A tag for a request that belongs to no session yet, or to a pooled upstream session. It can only be compared.
pub(crate) fn random_tag() -> RequestTag {
    RequestTag(rand::random())
}

/// A new tag for a request of a session to a server.
pub(crate) fn session_tag(session: &Session, server: &ServerName) -> RequestTag {
    let number = rand::random::<u64>();
    RequestTag(u128::from(number) << 64 | u128::from(check_value(&session.key, server, number)))
}

fn check_value(key: &SessionKey, server: &ServerName, number: u64) -> u64 {
    let mut digest = Sha256::new_with_prefix(DOMAIN);
    // The separator occurs in neither: keys and names are visible ASCII.
    digest.update(key.secret());
    digest.update([0]);
    digest.update(server.as_str());
    digest.update([0]);
    digest.update(number.to_be_bytes());
    let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(digest.finalize());
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// Whose requests the messages of a stream may refer to.
#[derive(Clone, Debug)]
pub(crate) enum StreamOwner {
    /// Any request of this session at this server.
    Session(SessionKey, ServerName),
    /// One request, over an upstream session that others use too.
    Request(RequestTag),
}

impl StreamOwner {
    /// The owner of the streams of a session at a server.
    pub(crate) fn of(session: &Session, server: &ServerName) -> Self {
        Self::Session(session.key.clone(), server.clone())
    }

    /// Whether a message that refers to a request of this origin belongs to the owner.
    pub(crate) fn owns(&self, origin: &RequestOrigin<'_>) -> bool {
        let RequestOrigin::Client { tag: Some(tag), .. } = origin else {
            return false;
        };
        match self {
            Self::Request(own) => tag == own,
            Self::Session(key, server) => {
                let [number, check] = [tag.0 >> 64, tag.0].map(|half| half as u64);
                check == check_value(key, server, number)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use mooring_session::names::{Principal, SessionId};

    fn session(id: &[u8]) -> Session {
        let principal = Principal::parse(b"ann").unwrap();
        Session::named("mcpgw:", SessionId::parse(id).unwrap(), principal)
    }

    fn origin(tag: RequestTag) -> RequestOrigin<'static> {
        let tag = Some(tag);
        RequestOrigin::Client {
            id: "1".into(),
            tag,
        }
    }

    #[test]
    fn a_tag_is_valid_for_its_session_and_server_only() {
        let (mine, tools) = (session(b"a"), ServerName::parse(b"tools").unwrap());
        let tag = session_tag(&mine, &tools);
        let owner = StreamOwner::of(&mine, &tools);
        assert!(owner.owns(&origin(tag)));
        for flipped in [0, 63, 64, 127] {
            assert!(!owner.owns(&origin(RequestTag(tag.0 ^ 1 << flipped))));
        }
        assert!(!StreamOwner::of(&session(b"b"), &tools).owns(&origin(tag)));
        let other = ServerName::parse(b"other").unwrap();
        assert!(!StreamOwner::of(&mine, &other).owns(&origin(tag)));
        let untagged = RequestOrigin::Client {
            id: "1".into(),
            tag: None,
        };
        for none in [untagged, RequestOrigin::Nobody, RequestOrigin::Foreign] {
            assert!(!owner.owns(&none));
        }
    }

    #[test]
    fn each_request_has_a_tag_of_its_own() {
        let (mine, tools) = (session(b"a"), ServerName::parse(b"tools").unwrap());
        let [one, other] = [(); 2].map(|()| session_tag(&mine, &tools));
        assert_ne!(one, other);
        assert!(StreamOwner::Request(one).owns(&origin(one)));
        assert!(!StreamOwner::Request(one).owns(&origin(other)));
    }

    /// Gateways of different versions have to agree.
    #[test]
    fn check_values_are_stable() {
        let (mine, tools) = (session(b"a"), ServerName::parse(b"tools").unwrap());
        let mut text = b"mooring request\0mcpgw:session_affinity:a\0tools\0".to_vec();
        text.extend_from_slice(&7_u64.to_be_bytes());
        let expected = mooring_secrets::digest::hex(&text);
        let check = check_value(&mine.key, &tools, 7);
        assert_eq!(format!("{check:016x}"), expected.split_at(16).0);
    }
}
