//! What servers give clients to bring back, sealed: the state of a request that needs input, and ids of tasks.
//!
//! A seal encrypts it with the keys of the fleet, for one caller at one server, together with the instance that it is of;
//! so any gateway reads it, and no client changes it or uses another's (MCP 2026-07-28, multi round-trip requests, "Server
//! Requirements"). A state is also bound to its request, expires, and is taken once. A task has one sealed id, which the
//! same key makes again from the server's.
//!
//! Invariant: what opens was sealed by a gateway of this fleet, for this caller at this server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mooring_session::names::{InstanceName, Principal, ServerName};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use mooring_peers::fleet::{KeyRing, SealError, SecretCipher};
use mooring_protocol::Message;

/// How long a client has for the input that a request needs. A person may have to be asked.
pub(crate) const STATE_KEPT: Duration = Duration::from_secs(3600);
/// Longest state of a server, in bytes.
pub(crate) const STATE_BYTES_MAX: usize = 64 * 1024;
/// Longest id of a task, in bytes.
pub(crate) const TASK_BYTES_MAX: usize = 1024;
/// Longest sealed text: the longest state, in which every other character is escaped, and what its encoding adds.
const SEALED_BYTES_MAX: usize = 3 * STATE_BYTES_MAX;

/// Seals what clients bring back. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClientStates(Arc<SecretCipher>);

/// Whom a seal is for.
#[derive(Clone, Debug)]
pub(crate) struct SealScope {
    pub(crate) principal: Principal,
    pub(crate) server: ServerName,
}

/// The state of a request, as it is sealed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RequestState {
    /// The instance that has given it.
    pub(crate) instance: String,
    /// The server's own text.
    pub(crate) state: String,
    /// The digest of the request, see [`digest_of`].
    pub(crate) request: String,
    /// When it expires, in milliseconds since the Unix epoch.
    pub(crate) expires_ms: u64,
}

/// A task, as it is sealed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    /// The instance that has it.
    pub(crate) instance: String,
    /// The server's own id.
    pub(crate) id: String,
}

/// Why a state is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StateRefusal {
    /// It does not open.
    #[error("requestState is not one that you got from this server through this gateway")]
    Foreign,
    /// Too late.
    #[error("requestState has expired: send the request again without it")]
    Expired,
    /// For another request.
    #[error(
        "requestState belongs to another request: send it with the request that it was given for"
    )]
    OtherRequest,
}

impl ClientStates {
    /// Seals with the keys of this ring.
    ///
    /// # Errors
    /// Never in practice: a derived key has the length of the cipher's.
    pub fn new(ring: &KeyRing) -> Result<Self, SealError> {
        SecretCipher::of_client_states(ring).map(|cipher| Self(Arc::new(cipher)))
    }

    /// Seals the state of a request; none if it is too long.
    pub(crate) fn seal_state(
        &self,
        scope: &SealScope,
        instance: &InstanceName,
        request: &str,
        state: &str,
    ) -> Option<String> {
        if state.len() > STATE_BYTES_MAX {
            return None;
        }
        let expires_at = SystemTime::now() + STATE_KEPT;
        let sealed = RequestState {
            instance: instance.as_str().to_owned(),
            state: state.to_owned(),
            request: request.to_owned(),
            expires_ms: unix_ms(expires_at),
        };
        let text = serde_json::to_vec(&sealed).ok()?;
        let sealed = self.0.seal(&scope.parts(b"request state"), &text).ok()?;
        let sealed = URL_SAFE_NO_PAD.encode(sealed);
        (sealed.len() <= SEALED_BYTES_MAX).then_some(sealed)
    }

    /// Opens the state of a request with this digest.
    ///
    /// # Errors
    /// It is not for this request, or not for it any more.
    pub(crate) fn open_state(
        &self,
        scope: &SealScope,
        request: &str,
        sealed: &str,
    ) -> Result<RequestState, StateRefusal> {
        self.open_state_at(SystemTime::now(), scope, request, sealed)
    }

    fn open_state_at(
        &self,
        now: SystemTime,
        scope: &SealScope,
        request: &str,
        sealed: &str,
    ) -> Result<RequestState, StateRefusal> {
        let text = self.open(&scope.parts(b"request state"), sealed);
        let opened = text.and_then(|text| serde_json::from_slice::<RequestState>(&text).ok());
        let opened = opened.ok_or(StateRefusal::Foreign)?;
        if opened.expires_ms < unix_ms(now) {
            return Err(StateRefusal::Expired);
        }
        if opened.request != request {
            return Err(StateRefusal::OtherRequest);
        }
        Ok(opened)
    }

    /// The id that a client gets for this task; none if the server's is too long.
    pub(crate) fn seal_task(
        &self,
        scope: &SealScope,
        instance: &InstanceName,
        id: &str,
    ) -> Option<String> {
        if id.len() > TASK_BYTES_MAX {
            return None;
        }
        let task = Task {
            instance: instance.as_str().to_owned(),
            id: id.to_owned(),
        };
        let text = serde_json::to_vec(&task).ok()?;
        let sealed = self.0.seal_alike(&scope.parts(b"task"), &text).ok()?;
        Some(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// The task with this sealed id; none if it is another caller's or another server's, or no sealed id.
    pub(crate) fn open_task(&self, scope: &SealScope, sealed: &str) -> Option<Task> {
        let text = self.open(&scope.parts(b"task"), sealed)?;
        serde_json::from_slice(&text).ok()
    }

    fn open(&self, parts: &[&[u8]], sealed: &str) -> Option<Vec<u8>> {
        if sealed.len() > SEALED_BYTES_MAX {
            return None;
        }
        let sealed = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        self.0.open_any(parts, &sealed)
    }
}

impl SealScope {
    fn parts<'a>(&'a self, what: &'a [u8]) -> [&'a [u8]; 3] {
        [
            what,
            self.principal.as_str().as_bytes(),
            self.server.as_str().as_bytes(),
        ]
    }
}

/// The members of params that may differ from one attempt to the next.
const NOT_DIGESTED: [&str; 3] = ["_meta", "inputResponses", "requestState"];

/// What identifies a request that is sent again with input: its method and its params, without the input itself and what may
/// differ from one attempt to the next. Members may be in another order, and numbers written in another way.
pub(crate) fn digest_of(message: &Message<'_>) -> String {
    let raw = message.raw_params().unwrap_or("{}");
    let params = match serde_json::from_str::<serde_json::Value>(raw) {
        Ok(serde_json::Value::Object(mut params)) => {
            for member in NOT_DIGESTED {
                params.remove(member);
            }
            serde_json::Value::Object(params).to_string()
        }
        // Some value is one that not every program can read, such as half of a character.
        _ => members_as_written(raw),
    };
    let mut digest = Sha256::new();
    for part in [message.method_name().unwrap_or_default(), &params] {
        digest.update(part.len().to_be_bytes());
        digest.update(part);
    }
    URL_SAFE_NO_PAD.encode(digest.finalize())
}

/// The members of params as their client wrote them. All of the text, which no state fits, if even they cannot be parsed.
fn members_as_written(params: &str) -> String {
    let members = serde_json::from_str::<BTreeMap<String, &RawValue>>(params);
    let written = members.ok().and_then(|mut members| {
        for member in NOT_DIGESTED {
            members.remove(member);
        }
        serde_json::to_string(&members).ok()
    });
    written.unwrap_or_else(|| params.to_owned())
}

/// The name under which the store remembers that a sealed state was taken.
pub(crate) fn once_name(sealed: &str) -> String {
    format!("once:{}", URL_SAFE_NO_PAD.encode(Sha256::digest(sealed)))
}

fn unix_ms(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use mooring_protocol::Sender;

    use super::*;

    fn scope(principal: &str, server: &str) -> SealScope {
        SealScope {
            principal: Principal::parse(principal.as_bytes()).unwrap(),
            server: ServerName::parse(server.as_bytes()).unwrap(),
        }
    }

    fn instance() -> InstanceName {
        InstanceName::parse(b"http://127.0.0.1:1/mcp").unwrap()
    }

    #[test]
    fn a_state_opens_for_its_caller_server_and_request_alone() {
        let states = ClientStates::new(&KeyRing::random()).unwrap();
        let ada = scope("ada", "tools");
        let sealed = states.seal_state(&ada, &instance(), "r", "secret").unwrap();
        assert!(!sealed.contains("secret"));
        let opened = states.open_state(&ada, "r", &sealed).unwrap();
        assert_eq!(
            (&*opened.state, &*opened.instance),
            ("secret", instance().as_str())
        );
        let foreign = StateRefusal::Foreign;
        for (other, request, text, refusal) in [
            (scope("bob", "tools"), "r", sealed.clone(), foreign),
            (scope("ada", "other"), "r", sealed.clone(), foreign),
            (ada.clone(), "q", sealed.clone(), StateRefusal::OtherRequest),
            (ada.clone(), "r", format!("{sealed}A"), foreign),
            (ada.clone(), "r", String::new(), foreign),
            (ada.clone(), "r", "ü".to_owned(), foreign),
        ] {
            assert_eq!(
                states.open_state(&other, request, &text).unwrap_err(),
                refusal
            );
        }
        let others = ClientStates::new(&KeyRing::random()).unwrap();
        assert_eq!(others.open_state(&ada, "r", &sealed).unwrap_err(), foreign);
        let long = "x".repeat(STATE_BYTES_MAX);
        let sealed_long = states.seal_state(&ada, &instance(), "r", &long).unwrap();
        assert_eq!(
            states.open_state(&ada, "r", &sealed_long).unwrap().state,
            long
        );
        assert_eq!(
            states.seal_state(&ada, &instance(), "r", &format!("{long}x")),
            None
        );
        // Of text that has to be escaped, what is sealed is what opens.
        let quotes = "\"".repeat(STATE_BYTES_MAX / 2);
        let sealed_quotes = states.seal_state(&ada, &instance(), "r", &quotes).unwrap();
        assert_eq!(
            states.open_state(&ada, "r", &sealed_quotes).unwrap().state,
            quotes
        );
        let escapes = "\u{1}".repeat(STATE_BYTES_MAX);
        assert_eq!(states.seal_state(&ada, &instance(), "r", &escapes), None);
        // A task is no state.
        let task = states.seal_task(&ada, &instance(), "t").unwrap();
        assert_eq!(states.open_state(&ada, "r", &task).unwrap_err(), foreign);
    }

    #[test]
    fn a_state_expires() {
        let states = ClientStates::new(&KeyRing::random()).unwrap();
        let ada = scope("ada", "tools");
        let sealed = states.seal_state(&ada, &instance(), "r", "s").unwrap();
        let open_after = |time| {
            let opened = states.open_state_at(SystemTime::now() + time, &ada, "r", &sealed);
            opened.map(|opened| opened.state)
        };
        assert_eq!(open_after(STATE_KEPT / 2).unwrap(), "s");
        assert_eq!(open_after(STATE_KEPT * 2), Err(StateRefusal::Expired));
    }

    #[test]
    fn a_task_has_one_sealed_id() {
        let states = ClientStates::new(&KeyRing::random()).unwrap();
        let ada = scope("ada", "tools");
        let sealed = states.seal_task(&ada, &instance(), "t-1").unwrap();
        assert_eq!(states.seal_task(&ada, &instance(), "t-1").unwrap(), sealed);
        assert_ne!(states.seal_task(&ada, &instance(), "t-2").unwrap(), sealed);
        assert_eq!(states.open_task(&ada, &sealed).unwrap().id, "t-1");
        for other in [scope("bob", "tools"), scope("ada", "other")] {
            assert!(states.open_task(&other, &sealed).is_none());
            assert_ne!(
                states.seal_task(&other, &instance(), "t-1").unwrap(),
                sealed
            );
        }
        assert!(states.open_task(&ada, "t-1").is_none());
    }

    #[test]
    fn a_request_is_the_same_with_input_and_in_another_spelling() {
        let digest = |method: &str, params: &str| {
            let text =
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
            digest_of(&Message::parse(text.as_bytes(), Sender::Client).unwrap())
        };
        let first = digest("tools/call", r#"{"name":"a","arguments":{"x":1,"y":2}}"#);
        let again = r#"{"_meta":{"a":1},"requestState":"s","inputResponses":{},"arguments":{"y": 2,"x":1},"name":"a"}"#;
        assert_eq!(digest("tools/call", again), first);
        for other in [
            digest("tools/call", r#"{"name":"a","arguments":{"x":1,"y":3}}"#),
            digest("tools/call", r#"{"name":"b","arguments":{"x":1,"y":2}}"#),
            digest("prompts/get", r#"{"name":"a","arguments":{"x":1,"y":2}}"#),
        ] {
            assert_ne!(other, first);
        }
    }

    #[test]
    fn a_request_that_not_every_program_can_read_is_the_same_in_all_its_members() {
        let digest = |params: &str| {
            let text =
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
            digest_of(&Message::parse(text.as_bytes(), Sender::Client).unwrap())
        };
        let first = digest(r#"{"name":"a","arguments":{"x":"\ud800"}}"#);
        let again =
            r#"{"requestState":"s","arguments":{"x":"\ud800"},"inputResponses":{},"name":"a"}"#;
        assert_eq!(digest(again), first);
        for other in [
            r#"{"name":"b","arguments":{"x":"\ud800"}}"#,
            r#"{"name":"a","arguments":{"x":"\ud801"}}"#,
            r#"{"name":"a","arguments":{"x":"\ud800"},"task":{}}"#,
        ] {
            assert_ne!(digest(other), first, "{other}");
        }
    }
}
