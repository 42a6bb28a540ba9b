//! Connects to Redis, and checks that the server has the module in a compatible version.
//!
//! Invariant: a connection is returned only if the server knows every command of [`NEEDED`], and its replies name their
//! requests.

use std::io;
use std::time::Duration;

use mooring_session::request_digest::NAMES_REQUEST;
use redis::{ConnectionInfo, IntoConnectionInfo, ProtocolVersion, ServerError, Value};
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

/// How a problem begins that Redis has told of itself.
const ANSWERED: &str = "it answered";

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DownReason {
    /// The server is unreachable, or does not serve this client now.
    Unreachable(String),
    /// The server refuses this client's user, which no further attempt changes.
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
    info: ConnectionInfo,
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
        Ok(Self {
            info,
            address,
            command_timeout,
            is_tls,
        })
    }

    /// Connects and checks the module, within twice the command timeout.
    pub(super) async fn connect(&self) -> Result<CommandConnection, DownReason> {
        self.try_connect().await.map_err(|down| match down {
            DownReason::Unreachable(problem)
                if self.is_tls && problem != REFUSED && !problem.starts_with(ANSWERED) =>
            {
                DownReason::Unreachable(format!(
                    "{problem}; no TLS was agreed: rediss:// needs a port that speaks TLS with a certificate that this \
                     system trusts, and redis:// is for a port without TLS"
                ))
            }
            down => down,
        })
    }

    async fn try_connect(&self) -> Result<CommandConnection, DownReason> {
        let timed_out = |_| DownReason::Unreachable("timed out".to_owned());
        let opening = async {
            let connection = CommandConnection::open(self.info.addr()).await;
            let connection = connection.map_err(|error| down(&error))?;
            self.set_up(&connection).await?;
            Ok(connection)
        };
        let opened = timeout(self.command_timeout, opening).await;
        let connection = opened.map_err(timed_out)??;
        let mut command = redis::cmd("COMMAND");
        command.arg("INFO").arg(&NEEDED);
        let answer = timeout(self.command_timeout, connection.send(&command)).await;
        match answer.map_err(timed_out)? {
            Ok(Value::ServerError(error)) => Err(refused(&error)),
            Ok(value) => is_complete(&value).map(|()| connection),
            Err(error) => Err(down(&error)),
        }
    }

    /// Authenticates, and selects the protocol and the database.
    async fn set_up(&self, connection: &CommandConnection) -> Result<(), DownReason> {
        let settings = self.info.redis_settings();
        let mut commands = Vec::new();
        if let Some(password) = settings.password() {
            let mut command = redis::cmd("AUTH");
            command.arg(settings.username()).arg(password);
            commands.push(command);
        }
        if settings.protocol() == ProtocolVersion::RESP3 {
            let mut command = redis::cmd("HELLO");
            command.arg(3);
            commands.push(command);
        }
        if settings.db() != 0 {
            let mut command = redis::cmd("SELECT");
            command.arg(settings.db());
            commands.push(command);
        }
        for command in commands {
            match connection.send(&command).await {
                Ok(Value::ServerError(error)) => return Err(refused(&error)),
                Ok(_) => {}
                Err(error) => return Err(down(&error)),
            }
        }
        Ok(())
    }
}

/// A module that has every command, but whose replies name no request.
const WITHOUT_NAMES: &str = "replies that name their request";

/// Where an entry of COMMAND INFO has the hints.
const HINTS: usize = 7;

/// What Redis says of a long command before a client has authenticated: it reads only the number of its words.
const UNREAD: &str = "unauthenticated multibulk length";

/// What Redis says of a password where its default user has none.
const NO_PASSWORD: &str = "without any password configured";

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

/// What the server says of a command while a connection is set up. Only what it says of the user is final: one that is at
/// its limit of clients, or loads its data, serves this client later.
fn refused(error: &ServerError) -> DownReason {
    let says = |part: &str| {
        error
            .details()
            .is_some_and(|details| details.contains(part))
    };
    let text = failure::in_its_words(error.code(), error.details());
    if error.code() == "WRONGPASS" || says(NO_PASSWORD) {
        DownReason::Denied("authentication failed: wrong user or password".to_owned())
    } else if says(UNREAD) {
        let problem = "NOAUTH Authentication required; store.url has no password";
        DownReason::Denied(problem.to_owned())
    } else if matches!(error.code(), "NOAUTH" | "NOPERM") {
        DownReason::Denied(text)
    } else {
        DownReason::Unreachable(format!("{ANSWERED} {text}"))
    }
}

/// The message of the system or TLS. A socket file that does not exist is a server that does not listen.
fn down(error: &io::Error) -> DownReason {
    DownReason::Unreachable(match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => REFUSED.to_owned(),
        io::ErrorKind::TimedOut => "timed out".to_owned(),
        _ => format!("I/O error: {error}"),
    })
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

    #[test]
    fn only_what_redis_says_of_the_user_is_final() {
        let said = |line: &str| {
            let reply = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
            let Value::ServerError(error) = reply else {
                unreachable!("{line} is an error");
            };
            refused(&error)
        };
        let wrong = "authentication failed: wrong user or password";
        for (line, problem) in [
            (
                "WRONGPASS invalid username-password pair or user is disabled.",
                wrong,
            ),
            (
                "ERR AUTH <password> called without any password configured for the default user.",
                wrong,
            ),
            (
                "ERR Protocol error: unauthenticated multibulk length",
                "NOAUTH Authentication required; store.url has no password",
            ),
            (
                "NOAUTH Authentication required.",
                "NOAUTH Authentication required.",
            ),
            (
                "NOPERM User u has no permissions to run the 'command|info' command",
                "NOPERM User u has no permissions to run the 'command|info' command",
            ),
        ] {
            assert_eq!(said(line), DownReason::Denied(problem.to_owned()), "{line}");
        }
        for line in [
            "ERR max number of clients reached",
            "LOADING Redis is loading the dataset in memory",
            "ERR DB index is out of range",
        ] {
            let answered = format!("it answered {line}");
            assert_eq!(said(line), DownReason::Unreachable(answered));
        }
    }
}
