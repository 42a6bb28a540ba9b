//! `[store]`: where session records live.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use redis::{ConnectionAddr, IntoConnectionInfo};

use super::paths::absolute_file;
use super::problem::without_credentials;
use super::reader::{Reader, Reason};
use super::setting::{Choice, ChoiceOption, Disclosure, Integer, Setting, SettingInfo, Text};
use super::source::Environment;
use super::state_home::state_home;

pub(super) const URL: Text = Text {
    about: SettingInfo::new(
        "store.url",
        "Where session records live: `embedded` is a SQLite file that the processes of one machine share; a \
         Redis URL names a server with the mooring module loaded, which any number of gateways share.",
    )
    .seed("REDIS_URL")
    .flag("--store"),
    default: Some("embedded"),
    shape: "embedded, redis://[user:password@]host[:port][/database], rediss://... with TLS, or \
            unix:///path/to/socket (also redis+unix://)",
    bytes_max: 2048,
    disclosure: Disclosure::Credentials,
};

pub(super) const PATH: Text = Text {
    about: SettingInfo::new(
        "store.path",
        "The file of the embedded store; its directory is made if it is missing. Without effect where \
         `store.url` names a Redis.",
    )
    .unset("`$XDG_STATE_HOME/mooring/sessions.db`, or `~/.local/state/mooring/sessions.db`"),
    default: None,
    shape: "an absolute path of a file",
    bytes_max: 4096,
    disclosure: Disclosure::Open,
};

pub(super) const ON_UNAVAILABLE: Choice<OnUnavailable> = Choice {
    about: SettingInfo::new(
        "store.on_unavailable",
        "What happens to requests while the store cannot be reached.",
    ),
    default: ChoiceOption {
        name: "fallback",
        value: OnUnavailable::Fallback,
        meaning: "serve from memory what can be served safely, and say so in every reply",
    },
    others: &[ChoiceOption {
        name: "fail",
        value: OnUnavailable::Fail,
        meaning: "answer 503 with Retry-After until it is back",
    }],
    later: &[],
};

pub(super) const KEY_PREFIX: Text = Text {
    about: SettingInfo::new(
        "store.key_prefix",
        "What every Redis key starts with. The module's own setting `mooring.prefixes` must list it.",
    ),
    default: Some("mcpgw:"),
    shape: "1 to 64 characters out of letters, digits and . _ : -, the last one a colon",
    bytes_max: 64,
    disclosure: Disclosure::Open,
};

pub(super) const COMMAND_TIMEOUT_MS: Integer = Integer {
    about: SettingInfo::new(
        "store.command_timeout_ms",
        "How long one command may take before the store counts as away for the request that sent it.",
    ),
    unit: "milliseconds",
    default: 500,
    least: 10,
    most: 60_000,
};

/// The rows of this section.
pub(super) const SETTINGS: &[Setting] = &[
    Setting::Text(&URL),
    Setting::Text(&PATH),
    Setting::Choice(&ON_UNAVAILABLE),
    Setting::Text(&KEY_PREFIX),
    Setting::Integer(&COMMAND_TIMEOUT_MS),
];

/// What happens to requests while the store is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUnavailable {
    /// Memory, for what can be served safely.
    Fallback,
    /// 503 with Retry-After.
    Fail,
}

/// The URL of a Redis. It may hold a password, so neither `Debug` nor `Display` shows one.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(String);

impl RedisUrl {
    /// The whole URL, password included: for the client, never for a log.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// The host and port of a server that is reached over TCP.
    #[must_use]
    pub fn host(&self) -> Option<(String, u16)> {
        let information = self.0.as_str().into_connection_info().ok()?;
        match information.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some((host.clone(), *port))
            }
            _ => None,
        }
    }

    /// Whether it is surely on this machine: a Unix socket or a loopback address.
    pub(super) fn is_on_this_machine(&self) -> bool {
        let Ok(information) = self.0.as_str().into_connection_info() else {
            return false;
        };
        match information.addr() {
            ConnectionAddr::Unix(_) => true,
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => {
                host == "localhost"
                    || host
                        .trim_matches(['[', ']'])
                        .parse::<IpAddr>()
                        .is_ok_and(|address| address.is_loopback())
            }
            _ => false,
        }
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&without_credentials(&self.0))
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RedisUrl({self})")
    }
}

/// Which store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreLocation {
    /// A SQLite file on this machine.
    Embedded {
        /// The file; its directory may not exist yet.
        path: PathBuf,
    },
    /// A Redis with the mooring module.
    Redis(RedisUrl),
}

impl fmt::Display for StoreLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded { path } => path.display().fmt(formatter),
            Self::Redis(url) => url.fmt(formatter),
        }
    }
}

/// Where session records live.
#[derive(Debug, Clone)]
pub struct StoreSettings {
    /// Which store.
    pub location: StoreLocation,
    /// What happens while it is away.
    pub on_unavailable: OnUnavailable,
    /// What every key starts with; ends with a colon.
    pub key_prefix: String,
    /// Longest wait for one command.
    pub command_timeout: Duration,
}

/// `store.url` before the path of the embedded file is known.
enum ParsedUrl {
    Embedded,
    Redis(RedisUrl),
}

pub(super) fn parse(reader: &mut Reader<'_>, environment: &Environment) -> StoreSettings {
    let url = reader.text(&URL, parse_url).unwrap_or(ParsedUrl::Embedded);
    let path = reader.text(&PATH, absolute_file);
    let location = match url {
        ParsedUrl::Redis(url) => StoreLocation::Redis(url),
        ParsedUrl::Embedded => StoreLocation::Embedded {
            path: path
                .or_else(|| Some(state_home(environment)?.join("mooring").join("sessions.db")))
                .unwrap_or_else(|| refuse_missing_path(reader)),
        },
    };
    StoreSettings {
        location,
        on_unavailable: reader.choice(&ON_UNAVAILABLE),
        key_prefix: reader
            .text(&KEY_PREFIX, parse_key_prefix)
            .unwrap_or_default(),
        command_timeout: Duration::from_millis(reader.integer(&COMMAND_TIMEOUT_MS)),
    }
}

fn parse_url(text: &str) -> Result<ParsedUrl, Reason> {
    if text == "embedded" {
        return Ok(ParsedUrl::Embedded);
    }
    let Some((scheme, _)) = text.split_once("://") else {
        return Err("it is not \"embedded\" and has no scheme".to_owned());
    };
    match scheme {
        "redis" | "rediss" | "unix" | "redis+unix" => {}
        _ if scheme.contains("sentinel") => {
            return Err("Redis Sentinel is not served by this version of mooring".to_owned());
        }
        _ if scheme.contains("cluster") => {
            return Err("Redis Cluster is not served by this version of mooring".to_owned());
        }
        _ => return Err(format!("the scheme {scheme:?} is not known")),
    }
    // The client's own parser decides the rest, so that what is accepted here can be connected to.
    // Its error text may repeat the URL, so only its general description is passed on.
    match text.into_connection_info() {
        Ok(_) => Ok(ParsedUrl::Redis(RedisUrl(text.to_owned()))),
        Err(error) => Err(format!("the Redis client refuses it: {}", error.category())),
    }
}

fn refuse_missing_path(reader: &mut Reader<'_>) -> PathBuf {
    if !reader.was_refused(&PATH.about) && !reader.was_refused(&URL.about) {
        reader.refuse(
            &PATH.about,
            String::new(),
            "the embedded store needs a file, and neither XDG_STATE_HOME nor HOME is an absolute path"
                .to_owned(),
            PATH.shape.to_owned(),
        );
    }
    PathBuf::new()
}

fn parse_key_prefix(text: &str) -> Result<String, Reason> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    if text.ends_with(':') && text.bytes().all(known) {
        Ok(text.to_owned())
    } else {
        Err(String::new())
    }
}
