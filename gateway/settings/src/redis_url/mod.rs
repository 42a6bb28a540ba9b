//! The URL of a Redis: of one server, of several among which the primary is found, of the sentinels that know it, or of a cluster.
//!
//! Invariants: a URL is read once, here, and what is accepted can be connected to. It may hold passwords, so neither
//! `Debug` nor `Display` nor an error shows one.

mod cluster;
mod endpoint;
mod sentinels;
mod tls_files;

use std::fmt;

pub use self::cluster::RedisCluster;
use self::endpoint::SERVERS_MAX;
pub use self::endpoint::{RedisAddress, RedisEndpoint, RedisLogin, RespVersion};
pub use self::sentinels::SentinelService;
pub use self::tls_files::RedisTlsFiles;
use super::problem::without_credentials;
use super::reader::Reason;

/// The URL of a Redis.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    text: String,
    topology: RedisTopology,
}

/// How the server that serves is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisTopology {
    /// It is the one that the URL leads to, whatever its role.
    Single(RedisEndpoint),
    /// It is the first of these that is a primary.
    FirstPrimary(Vec<RedisEndpoint>),
    /// Sentinels know it.
    Sentinels(SentinelService),
    /// Every primary of a cluster serves its part of the keys.
    Cluster(RedisCluster),
}

impl RedisUrl {
    /// Reads `redis://`, `rediss://`, `unix://` and `redis+unix://`, several of them with commas or spaces between, or
    /// `redis+sentinel://`, `rediss+sentinel://`, `redis+cluster://` and `rediss+cluster://`.
    ///
    /// # Errors
    /// What is wrong with it, without any part that may be secret.
    pub fn parse(text: &str) -> Result<Self, Reason> {
        let topology = match *split_list(text).as_slice() {
            [url] if sentinels::is_sentinel_url(url) => {
                RedisTopology::Sentinels(SentinelService::parse(url)?)
            }
            [url] if cluster::is_cluster_url(url) => {
                RedisTopology::Cluster(RedisCluster::parse(url)?)
            }
            [url] => RedisTopology::Single(RedisEndpoint::parse(url)?),
            ref urls if urls.len() > SERVERS_MAX => {
                return Err(format!("it has {} URLs (limit {SERVERS_MAX})", urls.len()));
            }
            ref urls if urls.iter().any(|url| sentinels::is_sentinel_url(url)) => {
                return Err(
                    "sentinels are listed in one URL: redis+sentinel://host1,host2/service"
                        .to_owned(),
                );
            }
            ref urls if urls.iter().any(|url| cluster::is_cluster_url(url)) => {
                return Err(
                    "the nodes of a cluster are listed in one URL: redis+cluster://host1,host2"
                        .to_owned(),
                );
            }
            ref urls => RedisTopology::FirstPrimary(
                urls.iter()
                    .map(|url| RedisEndpoint::parse(url))
                    .collect::<Result<_, _>>()?,
            ),
        };
        Ok(Self {
            text: text.to_owned(),
            topology,
        })
    }

    /// The whole URL, passwords included: never for a log.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.text
    }

    /// How the server that serves is found.
    #[must_use]
    pub const fn topology(&self) -> &RedisTopology {
        &self.topology
    }

    /// The same URL, for servers and sentinels with these certificates.
    #[must_use]
    pub fn with_tls_files(mut self, files: &RedisTlsFiles) -> Self {
        match &mut self.topology {
            RedisTopology::Single(server) => server.tls_files = files.clone(),
            RedisTopology::FirstPrimary(servers) => {
                for server in servers {
                    server.tls_files = files.clone();
                }
            }
            RedisTopology::Sentinels(service) => service.set_tls_files(files),
            RedisTopology::Cluster(cluster) => cluster.set_tls_files(files),
        }
        self
    }

    /// The certificates of TLS; none if no server or sentinel that it names speaks TLS.
    #[must_use]
    pub fn tls_files(&self) -> Option<&RedisTlsFiles> {
        let is_tls = |server: &&RedisEndpoint| matches!(server.address, RedisAddress::Tls(..));
        let server = self.endpoints().iter().find(is_tls)?;
        Some(&server.tls_files)
    }

    /// The hosts and ports that the URL names.
    pub fn hosts(&self) -> impl Iterator<Item = (&str, u16)> {
        self.endpoints()
            .iter()
            .filter_map(|endpoint| endpoint.address.host())
    }

    /// Whether all that it names is known to be on this machine: Unix sockets and loopback addresses.
    pub(super) fn is_on_this_machine(&self) -> bool {
        self.endpoints()
            .iter()
            .all(|endpoint| endpoint.address.is_on_this_machine())
    }

    /// The servers, sentinels or nodes that the URL names; at least one.
    #[must_use]
    pub fn endpoints(&self) -> &[RedisEndpoint] {
        match &self.topology {
            RedisTopology::Single(server) => std::slice::from_ref(server),
            RedisTopology::FirstPrimary(servers) => servers,
            RedisTopology::Sentinels(service) => service.sentinels(),
            RedisTopology::Cluster(cluster) => cluster.seeds(),
        }
    }
}

/// The URLs of a list. Commas and spaces separate them only if another URL follows: a password may have either.
fn split_list(text: &str) -> Vec<&str> {
    let is_separator = |character: char| character == ',' || character.is_ascii_whitespace();
    let mut urls = Vec::new();
    let mut rest = text;
    let mut searched = 0;
    while let Some(at) = rest
        .get(searched..)
        .and_then(|part| part.find(is_separator))
    {
        let (url, after) = rest.split_at(searched + at);
        let next = after.trim_start_matches(is_separator);
        if starts_url(next) {
            urls.push(url);
            (rest, searched) = (next, 0);
        } else {
            searched = rest.len() - next.len();
        }
    }
    urls.push(rest);
    urls
}

/// Whether the text begins with a scheme.
fn starts_url(text: &str) -> bool {
    let is_of_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    text.split_once("://").is_some_and(|(scheme, _)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(is_of_scheme)
    })
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, url) in split_list(&self.text).into_iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(formatter, "{comma}{}", without_credentials(url))?;
        }
        Ok(())
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RedisUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn a_list_is_split_only_before_another_url() {
        for (text, urls) in [
            ("redis://a", &["redis://a"][..]),
            ("redis://:p,q@a", &["redis://:p,q@a"]),
            ("redis://a,redis://b", &["redis://a", "redis://b"]),
            (
                "redis://a redis://b, unix:///c",
                &["redis://a", "redis://b", "unix:///c"],
            ),
            ("unix:///a socket", &["unix:///a socket"]),
            (
                "redis://:p,,q@a,redis://b",
                &["redis://:p,,q@a", "redis://b"],
            ),
            ("redis+sentinel://a,b/c", &["redis+sentinel://a,b/c"]),
            ("redis://a,", &["redis://a,"]),
        ] {
            assert_eq!(split_list(text), urls, "{text}");
        }
    }

    #[test]
    fn a_list_has_servers_in_order_and_no_sentinels() {
        let url = RedisUrl::parse("redis://u:p@a:1/2, rediss://b unix:///c?pass=p").unwrap();
        let RedisTopology::FirstPrimary(servers) = url.topology() else {
            unreachable!("a list");
        };
        let addresses: Vec<_> = servers
            .iter()
            .map(|server| server.address.to_string())
            .collect();
        assert_eq!(addresses, ["a:1", "b:6379", "/c"]);
        assert_eq!(
            url.to_string(),
            "redis://***@a:1/2, rediss://b, unix:///c?***"
        );
        assert_eq!(url.hosts().collect::<Vec<_>>(), [("a", 1), ("b", 6379)]);
        for (text, part) in [
            ("redis://a,redis+sentinel://b/c", "in one URL"),
            (
                "redis://a,redis+cluster://b",
                "nodes of a cluster are listed in one URL",
            ),
            ("redis://a,ftp://b", "\"ftp\" is not known"),
        ] {
            let refused = RedisUrl::parse(text).unwrap_err();
            assert!(refused.contains(part), "{text}: {refused}");
        }
        let many = vec!["redis://a"; SERVERS_MAX + 1].join(",");
        let refused = RedisUrl::parse(&many).unwrap_err();
        assert!(refused.contains("limit 16"), "{refused}");
    }

    #[test]
    fn no_text_of_a_url_shows_a_password() {
        for text in [
            "redis://u:secret@a",
            "redis://u:secret@a,redis://v:secret@b",
            "unix:///a?pass=secret unix:///b?pass=secret",
            "redis+sentinel://u:secret@a,b/c?sentinel_password=secret",
            "redis+cluster://u:secret@a,b",
        ] {
            let url = RedisUrl::parse(text).unwrap();
            let shown = format!("{url} {url:?} {:?}", url.topology());
            assert!(!shown.contains("secret"), "{shown}");
        }
    }

    #[test]
    fn no_error_of_a_list_without_schemes_shows_a_password() {
        for (text, part) in [
            ("redis://u:s@a:6379/0,u:secret@b:6379/0", "is no number"),
            ("redis://u:s@a?protocol=3,u:secret@b", "is none of"),
            ("unix:///a?db=0,u:secret@b", "is no number"),
            ("redis://a,b", "begins with its scheme"),
            ("redis://u:secret@a,b:6379/0", "begins with its scheme"),
        ] {
            let refused = RedisUrl::parse(text).unwrap_err();
            assert!(!refused.contains("secret"), "{text}: {refused}");
            assert!(refused.contains(part), "{text}: {refused}");
        }
    }

    #[test]
    fn what_is_on_this_machine_is_known() {
        for (text, is_here) in [
            ("redis://localhost", true),
            ("redis://127.0.0.2,unix:///a", true),
            ("redis://[::1],redis://a", false),
            ("redis+sentinel://127.0.0.1,[::1]:7/c", true),
            ("redis+sentinel://127.0.0.1,a/c", false),
            ("redis+cluster://127.0.0.1:7,localhost", true),
            ("redis+cluster://127.0.0.1,a", false),
        ] {
            let url = RedisUrl::parse(text).unwrap();
            assert_eq!(url.is_on_this_machine(), is_here, "{text}");
        }
    }
}
