//! The URL of a Redis, as its client reads it.
//!
//! Invariants: what is accepted here, the client can connect to (a test of the store compares them). The URL may hold a
//! password, so neither `Debug` nor `Display` nor an error shows one.

use std::fmt;
use std::net::IpAddr;

use percent_encoding::percent_decode_str;
use url::{Host, Url};

use super::problem::without_credentials;
use super::reader::Reason;

/// The port of a Redis whose URL has none.
const PORT: u16 = 6379;

/// The URL of a Redis.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    text: String,
    /// The host and port; none for a Unix socket.
    host: Option<(String, u16)>,
}

impl RedisUrl {
    /// Reads `redis://`, `rediss://`, `unix://` and `redis+unix://`.
    ///
    /// # Errors
    /// What is wrong with it, without any part that may be secret.
    pub fn parse(text: &str) -> Result<Self, Reason> {
        let url = Url::parse(text).map_err(|error| error.to_string())?;
        // The client library reads `#insecure`, which no connection obeys.
        if url.fragment().is_some() {
            return Err(
                "it has a fragment: the certificate of Redis is always verified".to_owned(),
            );
        }
        let (host, database) = match url.scheme() {
            "redis" | "rediss" => (
                Some(tcp_host(&url)?),
                Some(url.path().trim_matches('/').to_owned()),
            ),
            "unix" | "redis+unix" => {
                url.to_file_path()
                    .map_err(|()| "it has no path of a socket".to_owned())?;
                (None, query_value(&url, "db"))
            }
            scheme => return Err(format!("the scheme {scheme:?} is not known")),
        };
        if let Some(database) = database.filter(|database| !database.is_empty() || host.is_none())
            && database.parse::<i64>().is_err()
        {
            return Err(format!("the database {database:?} is no number"));
        }
        if let Some(protocol) = query_value(&url, "protocol")
            && !["2", "3", "resp2", "resp3"].contains(&protocol.as_str())
        {
            return Err(format!(
                "the protocol {protocol:?} is none of resp2 and resp3"
            ));
        }
        Ok(Self {
            text: text.to_owned(),
            host,
        })
    }

    /// The whole URL, password included: for the client, never for a log.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.text
    }

    /// The host and port of a server that is reached over TCP.
    #[must_use]
    pub fn host(&self) -> Option<(String, u16)> {
        self.host.clone()
    }

    /// Whether it is known to be on this machine: a Unix socket or a loopback address.
    pub(super) fn is_on_this_machine(&self) -> bool {
        self.host.as_ref().is_none_or(|(host, _)| {
            host == "localhost"
                || host
                    .parse::<IpAddr>()
                    .is_ok_and(|address| address.is_loopback())
        })
    }
}

/// The host and port of a URL over TCP, whose other parts are checked as well.
fn tcp_host(url: &Url) -> Result<(String, u16), Reason> {
    let host = match url.host() {
        Some(Host::Domain(name)) => name.to_owned(),
        Some(Host::Ipv4(address)) => address.to_string(),
        // Without brackets.
        Some(Host::Ipv6(address)) => address.to_string(),
        None => return Err("it has no host".to_owned()),
    };
    if host
        .parse::<IpAddr>()
        .is_ok_and(|address| address.is_unspecified())
    {
        return Err("it is a wildcard address, which no client can connect to".to_owned());
    }
    let is_text = |part: &str| percent_decode_str(part).decode_utf8().is_ok();
    if !is_text(url.username()) || !url.password().is_none_or(is_text) {
        return Err("the user or the password is not UTF-8".to_owned());
    }
    Ok((host, url.port().unwrap_or(PORT)))
}

/// The value of a name; of a repeated name the last one, as for the client.
fn query_value(url: &Url, name: &str) -> Option<String> {
    let values = url.query_pairs().filter(|(key, _)| key == name);
    values.last().map(|(_, value)| value.into_owned())
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&without_credentials(&self.text))
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RedisUrl({self})")
    }
}
