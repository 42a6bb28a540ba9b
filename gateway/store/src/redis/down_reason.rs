//! Why there is no connection to Redis, and what an operator can do.
//!
//! Invariant: what may be otherwise at the next attempt is `Unreachable`; everything else ends a gateway that starts.

use std::io;

use redis::ServerError;

use super::{failure, tls};
use crate::error::OpenError;

/// No process listens there.
pub(super) const REFUSED: &str = "connection refused";

/// How a problem begins that Redis has told of itself.
pub(super) const ANSWERED: &str = "it answered";

/// How a problem begins that is one of certificates.
pub(super) const TLS_FAILED: &str = "TLS failed";

/// What Redis says of a long command before a client has authenticated: it reads only the number of its words.
const UNREAD: &str = "unauthenticated multibulk length";

/// What Redis says of CLUSTER where it is no node of one.
const NO_CLUSTER: &str = "cluster support disabled";

/// What Redis says of a password where its default user has none.
const NO_PASSWORD: &str = "without any password configured";

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DownReason {
    /// The server is unreachable, or does not serve this client now.
    Unreachable(String),
    /// The server refuses this client's user, which no further attempt changes.
    Denied(String),
    /// The server has not loaded the module.
    NoModule,
    /// The server cannot be used without the module.
    WithoutModule(String),
    /// Gateways that use the server in the other way run.
    OtherWay(String),
    /// The server's module lacks these commands.
    OldModule(String),
    /// No sentinel monitors a service of this name.
    UnknownService(String),
    /// The server is no node of a cluster.
    NoCluster,
}

impl DownReason {
    /// The store at this address cannot be opened for this reason.
    pub(crate) fn at(&self, address: &str) -> OpenError {
        let text = match self {
            Self::Unreachable(problem) => format!("cannot reach redis at {address}: {problem}"),
            Self::Denied(problem) => format!("redis at {address} refuses this client: {problem}"),
            Self::NoModule => format!(
                "redis at {address} runs without the mooring module: start it with `redis-server --loadmodule \
                 /path/to/libmooring.so`, or send it `MODULE LOAD /path/to/libmooring.so`; for a server that loads no \
                 module, set store.module to \"none\""
            ),
            Self::OtherWay(problem) => format!("redis at {address}: {problem}"),
            Self::WithoutModule(problem) => {
                format!("redis at {address} cannot be used with store.module = \"none\": {problem}")
            }
            Self::OldModule(missing) => format!(
                "the mooring module of redis at {address} is too old for this gateway: it lacks {missing}; load the \
                 libmooring.so of this release"
            ),
            Self::UnknownService(name) => format!(
                "no redis at {address}: the sentinels monitor no service {name:?}; store.url needs the name that \
                 `sentinel monitor` gives it, which SENTINEL MASTERS lists"
            ),
            Self::NoCluster => format!(
                "redis at {address} is no node of a cluster (its cluster-enabled is no): store.url of a single server \
                 begins with redis://"
            ),
        };
        OpenError::Redis(text.into())
    }

    /// Why none of several servers serves. Only if it is final for all of them, it is final.
    pub(super) fn of_all(problems: Vec<(String, Self)>) -> Self {
        let is_final = |down: &Self| !matches!(down, Self::Unreachable(_));
        match problems.as_slice() {
            [(_, first), rest @ ..]
                if is_final(first) && rest.iter().all(|(_, down)| is_final(down)) =>
            {
                first.clone()
            }
            several => {
                let texts: Vec<_> = several
                    .iter()
                    .map(|(address, down)| format!("{address}: {}", down.problem()))
                    .collect();
                Self::Unreachable(texts.join("; "))
            }
        }
    }

    /// What is wrong, in a few words.
    pub(super) fn problem(&self) -> String {
        match self {
            Self::Unreachable(problem)
            | Self::Denied(problem)
            | Self::WithoutModule(problem)
            | Self::OtherWay(problem) => problem.clone(),
            Self::NoModule => "it runs without the mooring module".to_owned(),
            Self::OldModule(missing) => format!("its mooring module lacks {missing}"),
            Self::UnknownService(name) => format!("it monitors no service {name:?}"),
            Self::NoCluster => "it is no node of a cluster".to_owned(),
        }
    }
}

/// What the server says of a command while a connection is set up. Only what it says of the user is final: one that is at
/// its limit of clients, or loads its data, serves this client later.
pub(super) fn refused(error: &ServerError) -> DownReason {
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
    } else if says(NO_CLUSTER) {
        DownReason::NoCluster
    } else {
        DownReason::Unreachable(format!("{ANSWERED} {text}"))
    }
}

/// The message of the system or TLS. A socket file that does not exist is a server that does not listen.
pub(super) fn down(error: &io::Error) -> DownReason {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
            DownReason::Unreachable(REFUSED.to_owned())
        }
        io::ErrorKind::TimedOut => timed_out(),
        _ => DownReason::Unreachable(match tls::problem(error) {
            Some(problem) => format!("{TLS_FAILED}: {problem}"),
            None => format!("I/O error: {error}"),
        }),
    }
}

pub(super) fn timed_out() -> DownReason {
    DownReason::Unreachable("timed out".to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use redis::Value;

    use super::*;

    #[test]
    fn of_several_servers_only_what_is_final_for_all_is_final() {
        let dead = || {
            (
                "a:1".to_owned(),
                DownReason::Unreachable(REFUSED.to_owned()),
            )
        };
        let bare = || ("b:2".to_owned(), DownReason::NoModule);
        let of_all = |problems: &[(String, DownReason)]| DownReason::of_all(problems.to_vec());
        assert_eq!(of_all(&[bare(), bare()]), DownReason::NoModule);
        let said = |text: &str| DownReason::Unreachable(text.to_owned());
        assert_eq!(of_all(&[dead()]), said("a:1: connection refused"));
        assert_eq!(
            of_all(&[bare(), dead()]),
            said("b:2: it runs without the mooring module; a:1: connection refused")
        );
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
