//! Connects to Redis, and checks that the server has the module in a compatible version.
//!
//! Invariant: a connection is returned only if the server knows every command of [`NEEDED`], and its replies name their
//! requests.

use std::time::Duration;

use mooring_session::request_digest::NAMES_REQUEST;
use redis::{Client, IntoConnectionInfo, RedisError, Value};
use tokio::time::timeout;

use super::command_connection::CommandConnection;
use super::failure;
use super::reply::text;
use crate::error::OpenError;

/// Every command of the module that this gateway sends. A module without one of them is too old and is refused at the
/// start, not at the first call.
const NEEDED: [&str; 21] = [
    "session.create",
    "session.touch",
    "session.get",
    "session.end",
    "session.kill",
    "session.route",
    "session.bind",
    "session.confirm",
    "session.rebind",
    "session.unbind",
    "session.enter",
    "session.leave",
    "session.list",
    "session.reap",
    "session.claim",
    "session.forget",
    "session.rate",
    "worker.beat",
    "worker.gone",
    "worker.list",
    "worker.wait",
];

/// No process listens there.
const REFUSED: &str = "connection refused";

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DownReason {
    /// The server is unreachable.
    Unreachable(String),
    /// The server refuses this client.
    Denied(String),
    /// The server has not loaded the module.
    NoModule,
    /// The server's module lacks these commands.
    OldModule(String),
}

impl DownReason {
    /// The store at this address cannot be opened for this reason.
    pub(crate) fn at(&self, address: &str) -> OpenError {
        let text = match self {
            Self::Unreachable(problem) => format!("cannot reach redis at {address}: {problem}"),
            Self::Denied(problem) => format!("redis at {address} refuses this client: {problem}"),
            Self::NoModule => format!(
                "redis at {address} runs without the mooring module: start it with `redis-server --loadmodule \
                 /path/to/libmooring.so`, or send it `MODULE LOAD /path/to/libmooring.so`"
            ),
            Self::OldModule(missing) => format!(
                "the mooring module of redis at {address} is too old for this gateway: it lacks {missing}; load the \
                 libmooring.so of this release"
            ),
        };
        OpenError::Redis(text.into())
    }
}

/// The address of Redis, and its timeouts.
#[derive(Debug)]
pub(super) struct Dialer {
    client: Client,
    pub(super) address: String,
    pub(super) command_timeout: Duration,
    is_tls: bool,
}

impl Dialer {
    /// Parses the URL. Nothing is sent yet.
    ///
    /// # Errors
    /// The URL is invalid.
    pub(super) fn new(url: &str, command_timeout: Duration) -> Result<Self, OpenError> {
        let info = url.into_connection_info().map_err(OpenError::Url)?;
        let address = info.addr().to_string();
        let is_tls = matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. });
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        Ok(Self {
            client: Client::open(info.set_tcp_settings(tcp)).map_err(OpenError::Url)?,
            address,
            command_timeout,
            is_tls,
        })
    }

    /// Connects and checks the module, within twice the command timeout.
    pub(super) async fn connect(&self) -> Result<CommandConnection, DownReason> {
        self.try_connect().await.map_err(|down| match down {
            DownReason::Unreachable(problem) if self.is_tls && problem != REFUSED => {
                DownReason::Unreachable(format!(
                    "{problem}; no TLS was agreed: rediss:// needs a port that speaks TLS with a certificate that this \
                     system trusts, and redis:// is for a port without TLS"
                ))
            }
            down => down,
        })
    }

    async fn try_connect(&self) -> Result<CommandConnection, DownReason> {
        let timed_out = || DownReason::Unreachable("timed out".to_owned());
        let opening = CommandConnection::open(&self.client);
        let connection = match timeout(self.command_timeout, opening).await {
            Ok(opened) => opened.map_err(down)?,
            Err(_) => return Err(timed_out()),
        };
        let mut command = redis::cmd("COMMAND");
        command.arg("INFO").arg(&NEEDED);
        match timeout(self.command_timeout, connection.send(&command)).await {
            Ok(Ok(Value::ServerError(error))) => Err(denied(error.code(), error.details())),
            Ok(Ok(value)) => is_complete(&value).map(|()| connection),
            Ok(Err(error)) => Err(down(error)),
            Err(_) => Err(timed_out()),
        }
    }
}

/// A module that has every command, but whose replies name no request.
const WITHOUT_NAMES: &str = "replies that name their request";

/// Where an entry of COMMAND INFO has the hints.
const HINTS: usize = 7;

/// What Redis says of a long command before a client has authenticated: it reads only the number of its words.
const UNREAD: &str = "unauthenticated multibulk length";

fn denied(code: &str, details: Option<&str>) -> DownReason {
    DownReason::Denied(match details {
        Some(details) if details.contains(UNREAD) => {
            "NOAUTH Authentication required; store.url has no password".to_owned()
        }
        details => failure::in_its_words(code, details),
    })
}

/// COMMAND INFO returns one entry per name: null or an empty list if the command is unknown.
fn is_complete(answer: &Value) -> Result<(), DownReason> {
    let entries = answer.as_sequence().unwrap_or(&[]);
    let is_known = |index: usize| {
        let entry = entries.get(index).and_then(Value::as_sequence);
        entry.is_some_and(|entry| !entry.is_empty())
    };
    let missing: Vec<&str> = NEEDED
        .iter()
        .enumerate()
        .filter(|(index, _)| !is_known(*index))
        .map(|(_, name)| *name)
        .collect();
    let names_request = |entry: &Value| {
        let hints = entry.as_sequence().and_then(|entry| entry.get(HINTS));
        let mut hints = hints.and_then(Value::as_sequence).into_iter().flatten();
        hints.any(|hint| text(hint) == Some(NAMES_REQUEST))
    };
    match missing.len() {
        0 if !entries.iter().any(names_request) => {
            Err(DownReason::OldModule(WITHOUT_NAMES.to_owned()))
        }
        0 => Ok(()),
        all if all == NEEDED.len() => Err(DownReason::NoModule),
        _ => Err(DownReason::OldModule(missing.join(", "))),
    }
}

/// Of errors of the client only the kind is kept, and the message of the system or TLS: other texts may contain parts of
/// the URL. Redis' own texts do not.
fn down(error: RedisError) -> DownReason {
    if error.kind() == redis::ErrorKind::AuthenticationFailed {
        return DownReason::Denied("authentication failed: wrong user or password".to_owned());
    }
    let in_its_words = |code| failure::in_its_words(code, error.detail());
    match error.code() {
        Some(code @ ("NOAUTH" | "WRONGPASS" | "NOPERM")) => DownReason::Denied(in_its_words(code)),
        Some(code) => DownReason::Unreachable(format!("it answered {}", in_its_words(code))),
        None if error.is_connection_refusal() => DownReason::Unreachable(REFUSED.to_owned()),
        None if error.is_timeout() => DownReason::Unreachable("timed out".to_owned()),
        None => DownReason::Unreachable(with_cause(&error)),
    }
}

fn with_cause(error: &RedisError) -> String {
    match std::error::Error::source(error).filter(|_| error.is_io_error()) {
        Some(cause) => format!("{}: {cause}", error.category()),
        None => error.category().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "tests fail by panicking"
    )]
    use super::*;

    fn answer(is_known: impl Fn(&str) -> bool) -> Value {
        answer_with(NAMES_REQUEST, is_known)
    }

    fn answer_with(hint: &str, is_known: impl Fn(&str) -> bool) -> Value {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let entry = |name: &&str| match is_known(name) {
            true => {
                let mut entry = vec![Value::Nil; HINTS];
                entry[0] = text(name);
                entry.push(Value::Array(vec![text(hint)]));
                Value::Array(entry)
            }
            false => Value::Nil,
        };
        Value::Array(NEEDED.iter().map(entry).collect())
    }

    #[test]
    fn a_module_that_lacks_a_command_is_told_from_none_at_all() {
        assert_eq!(is_complete(&answer(|_| true)), Ok(()));
        let nameless = answer_with("nondeterministic_output", |_| true);
        let old = DownReason::OldModule(WITHOUT_NAMES.to_owned());
        assert_eq!(is_complete(&nameless), Err(old));
        assert_eq!(is_complete(&answer(|_| false)), Err(DownReason::NoModule));
        assert_eq!(is_complete(&Value::Nil), Err(DownReason::NoModule));
        let without = |name: &str| !name.starts_with("worker.") && name != "session.bind";
        let Err(DownReason::OldModule(missing)) = is_complete(&answer(without)) else {
            unreachable!("commands are missing");
        };
        assert!(missing.starts_with("session.bind, worker."), "{missing}");
    }
}
