//! One server: where it listens, and how a client logs in.
//!
//! The client library reads the same URLs in the same way, which a test of the store compares. Invariant: no text of a
//! login shows its password.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use url::{Host, Url};

use super::tls_files::RedisTlsFiles;
use crate::reader::Reason;

/// Most servers, or sentinels, that one URL names.
pub(super) const SERVERS_MAX: usize = 16;

/// The port of a server whose URL has none.
const PORT: u16 = 6379;

/// A server, and how a client logs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisEndpoint {
    /// Where it listens.
    pub address: RedisAddress,
    /// Who logs in.
    pub login: RedisLogin,
    /// The number of the database.
    pub database: i64,
    /// The version of the protocol.
    pub protocol: RespVersion,
    /// The certificates of TLS; without effect at an address without TLS.
    pub tls_files: RedisTlsFiles,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisAddress {
    /// At a port, without TLS.
    Tcp(String, u16),
    /// At a port, with TLS: its certificate has this host.
    Tls(String, u16),
    /// At a socket file.
    Unix(PathBuf),
}

/// Who logs in.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RedisLogin {
    /// The user; none for the default user.
    pub user: Option<String>,
    /// The password; without one a client does not log in.
    pub password: Option<String>,
}

/// The version of Redis' protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RespVersion {
    /// RESP2, which every server speaks at first.
    #[default]
    Two,
    /// RESP3.
    Three,
}

impl RedisEndpoint {
    /// Reads `redis://`, `rediss://`, `unix://` and `redis+unix://`.
    pub(super) fn parse(text: &str) -> Result<Self, Reason> {
        let url = Url::parse(text).map_err(|error| error.to_string())?;
        // The client library reads `#insecure`, which no connection obeys.
        if url.fragment().is_some() {
            return Err(
                "it has a fragment: the certificate of Redis is always verified".to_owned(),
            );
        }
        let option = |name: &str| query_value(url.query().unwrap_or_default(), name);
        let (address, login, database) = match url.scheme() {
            "redis" | "rediss" => {
                let host = tcp_host(&url)?;
                // No name has one. It is the second server of a list.
                if host.contains(',') {
                    return Err(
                        "its host has a comma: each URL of a list begins with its scheme"
                            .to_owned(),
                    );
                }
                let port = url.port().unwrap_or(PORT);
                let address = match url.scheme() {
                    "rediss" => RedisAddress::Tls(host, port),
                    _ => RedisAddress::Tcp(host, port),
                };
                let login = RedisLogin::decode(url.username(), url.password())?;
                let path = url.path().trim_matches('/');
                let database = (!path.is_empty()).then(|| path.to_owned());
                (address, login, database)
            }
            "unix" | "redis+unix" => {
                let path = url
                    .to_file_path()
                    .map_err(|()| "it has no path of a socket".to_owned())?;
                let login = RedisLogin {
                    user: option("user"),
                    password: option("pass"),
                };
                (RedisAddress::Unix(path), login, option("db"))
            }
            scheme => return Err(format!("the scheme {scheme:?} is not known")),
        };
        Ok(Self {
            address,
            login,
            database: database_number(database.as_deref())?,
            protocol: RespVersion::parse(option("protocol").as_deref())?,
            tls_files: RedisTlsFiles::default(),
        })
    }
}

impl RedisAddress {
    /// The host and port of a server that is reached over TCP.
    #[must_use]
    pub fn host(&self) -> Option<(&str, u16)> {
        match self {
            Self::Tcp(host, port) | Self::Tls(host, port) => Some((host, *port)),
            Self::Unix(_) => None,
        }
    }

    pub(super) fn is_on_this_machine(&self) -> bool {
        self.host().is_none_or(|(host, _)| {
            host == "localhost"
                || host
                    .parse::<IpAddr>()
                    .is_ok_and(|address| address.is_loopback())
        })
    }
}

impl fmt::Display for RedisAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) | Self::Tls(host, port) if host.contains(':') => {
                write!(formatter, "[{host}]:{port}")
            }
            Self::Tcp(host, port) | Self::Tls(host, port) => write!(formatter, "{host}:{port}"),
            Self::Unix(path) => path.display().fmt(formatter),
        }
    }
}

impl RedisLogin {
    /// From the parts of a URL, in which each may be percent-encoded.
    pub(super) fn decode(user: &str, password: Option<&str>) -> Result<Self, Reason> {
        let decoded = |part: &str| match percent_decode_str(part).decode_utf8() {
            Ok(text) => Ok(text.into_owned()),
            Err(_) => Err("the user or the password is not UTF-8".to_owned()),
        };
        let user = Some(user).filter(|user| !user.is_empty());
        Ok(Self {
            user: user.map(decoded).transpose()?,
            password: password.map(decoded).transpose()?,
        })
    }
}

impl fmt::Debug for RedisLogin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |part: &Option<String>| if part.is_some() { "***" } else { "none" };
        let (user, password) = (shown(&self.user), shown(&self.password));
        write!(formatter, "RedisLogin(user: {user}, password: {password})")
    }
}

impl RespVersion {
    pub(super) fn parse(text: Option<&str>) -> Result<Self, Reason> {
        match text {
            None | Some("2" | "resp2") => Ok(Self::Two),
            Some("3" | "resp3") => Ok(Self::Three),
            // Its text may be the rest of a list, as that of a database may.
            Some(_) => Err("its protocol is none of resp2 and resp3".to_owned()),
        }
    }
}

/// The number of a database; zero if none is named. Other text is not repeated: where a comma is amiss, it is the rest of
/// a list, logins included.
pub(super) fn database_number(text: Option<&str>) -> Result<i64, Reason> {
    let number = text.map_or(Ok(0), str::parse);
    number.map_err(|_| "its database is no number".to_owned())
}

/// The host of a URL over TCP, an IPv6 address without brackets.
pub(super) fn tcp_host(url: &Url) -> Result<String, Reason> {
    let host = match url.host() {
        Some(Host::Domain(name)) => name.to_owned(),
        Some(Host::Ipv4(address)) => address.to_string(),
        Some(Host::Ipv6(address)) => address.to_string(),
        None => return Err("it has no host".to_owned()),
    };
    let address = host.parse::<IpAddr>();
    if address.is_ok_and(|address| address.is_unspecified()) {
        return Err("it is a wildcard address, which no client can connect to".to_owned());
    }
    Ok(host)
}

/// The value of an option; of a repeated one the last value, as for the client library.
pub(super) fn query_value(query: &str, name: &str) -> Option<String> {
    let values = url::form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == name);
    values.last().map(|(_, value)| value.into_owned())
}
