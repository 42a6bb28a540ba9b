//! `redis+cluster://[user:password@]host1[:port],host2[:port][?protocol=resp3]`: nodes of a Redis Cluster, which name all
//! others.
//!
//! The user and password are those of every node. With `rediss+cluster://` all of them speak TLS. A cluster has one
//! database.

use url::Url;

use super::endpoint::{
    RedisAddress, RedisEndpoint, RedisLogin, RespVersion, SERVERS_MAX, query_value, tcp_host,
};
use super::sentinels::{address_of, split_login};
use super::tls_files::RedisTlsFiles;
use crate::reader::Reason;

/// The port of a node whose URL has none.
const PORT: u16 = 6379;

/// A Redis Cluster, as its URL names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisCluster {
    seeds: Vec<RedisEndpoint>,
    is_tls: bool,
    login: RedisLogin,
    protocol: RespVersion,
    tls_files: RedisTlsFiles,
}

/// Whether the scheme is that of a cluster.
pub(super) fn is_cluster_url(text: &str) -> bool {
    text.split_once("://")
        .is_some_and(|(scheme, _)| scheme.contains("cluster"))
}

impl RedisCluster {
    pub(super) fn parse(text: &str) -> Result<Self, Reason> {
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        let is_tls = match scheme {
            "redis+cluster" => false,
            "rediss+cluster" => true,
            _ => {
                return Err(format!(
                    "the scheme {scheme:?} is not known; that of a cluster is redis+cluster"
                ));
            }
        };
        let (authority, after) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        // An @ there is that of a login, and what is before it must not be repeated as a host.
        if after.contains(['#', '@']) {
            return Err(
                "a # or @ after the nodes; in a user or password, / ? # @ are %2F %3F %23 %40"
                    .to_owned(),
            );
        }
        let (path, query) = after.split_once('?').unwrap_or((after, ""));
        if !matches!(path, "" | "/" | "/0" | "/0/") {
            return Err(
                "it has a path: a cluster has only database 0, which needs none".to_owned(),
            );
        }
        let mut names = url::form_urlencoded::parse(query.as_bytes()).map(|(name, _)| name);
        if names.any(|name| &*name != "protocol") {
            return Err("it has an option other than protocol".to_owned());
        }
        let (login, hosts) = split_login(authority)?;
        let mut cluster = Self {
            seeds: Vec::new(),
            is_tls,
            login,
            protocol: RespVersion::parse(query_value(query, "protocol").as_deref())?,
            tls_files: RedisTlsFiles::default(),
        };
        for host in hosts.split(',') {
            let seed = cluster.seed(host)?;
            cluster.seeds.push(seed);
        }
        if cluster.seeds.len() > SERVERS_MAX {
            return Err(format!(
                "it names {} nodes (limit {SERVERS_MAX}); a few are enough, since they name all others",
                cluster.seeds.len()
            ));
        }
        Ok(cluster)
    }

    fn seed(&self, host: &str) -> Result<RedisEndpoint, Reason> {
        if host.is_empty() {
            return Err("it has a node without a host".to_owned());
        }
        let url = Url::parse(&format!("redis://{host}"))
            .map_err(|error| format!("the node {host:?}: {error}"))?;
        let name = tcp_host(&url).map_err(|reason| format!("the node {host:?}: {reason}"))?;
        Ok(self.node_at(&name, url.port().unwrap_or(PORT)))
    }

    /// The nodes that the URL names, in its order; at least one.
    #[must_use]
    pub fn seeds(&self) -> &[RedisEndpoint] {
        &self.seeds
    }

    /// The node of the cluster at this host and port.
    #[must_use]
    pub fn node_at(&self, host: &str, port: u16) -> RedisEndpoint {
        RedisEndpoint {
            address: self.address_at(host, port),
            login: self.login.clone(),
            database: 0,
            protocol: self.protocol,
            tls_files: self.tls_files.clone(),
        }
    }

    /// Its address.
    #[must_use]
    pub fn address_at(&self, host: &str, port: u16) -> RedisAddress {
        address_of(host.to_owned(), port, self.is_tls)
    }

    pub(super) fn set_tls_files(&mut self, files: &RedisTlsFiles) {
        self.tls_files = files.clone();
        for seed in &mut self.seeds {
            seed.tls_files = files.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn a_url_names_nodes_and_the_login_of_all() {
        let url = "rediss+cluster://u%40x:p%2Fq@a,[::1]:7,10.0.0.1:7001?protocol=resp3";
        let cluster = RedisCluster::parse(url).unwrap();
        let addresses: Vec<_> = cluster
            .seeds()
            .iter()
            .map(|seed| seed.address.to_string())
            .collect();
        assert_eq!(addresses, ["a:6379", "[::1]:7", "10.0.0.1:7001"]);
        assert!(cluster.seeds().contains(&cluster.node_at("::1", 7)));
        let node = cluster.node_at("b", 9);
        assert_eq!(node.address, RedisAddress::Tls("b".to_owned(), 9));
        assert_eq!(node.login.password.as_deref(), Some("p/q"));
        assert_eq!((node.database, node.protocol), (0, RespVersion::Three));
        for short in [
            "redis+cluster://a",
            "redis+cluster://a/",
            "redis+cluster://a/0",
        ] {
            let cluster = RedisCluster::parse(short).unwrap();
            assert_eq!(
                cluster.seeds(),
                [RedisEndpoint::parse("redis://a").unwrap()]
            );
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_secrets() {
        for (url, part) in [
            ("cluster://a", "that of a cluster is redis+cluster"),
            ("redis-cluster://a", "that of a cluster is redis+cluster"),
            ("redis+cluster://", "a node without a host"),
            ("redis+cluster://a,,b", "a node without a host"),
            ("redis+cluster://a,b:port", "\"b:port\": invalid port"),
            ("redis+cluster://a,0.0.0.0", "a wildcard address"),
            ("redis+cluster://a/1", "only database 0"),
            ("redis+cluster://a?db=0", "other than protocol"),
            ("redis+cluster://a?protocol=4", "its protocol is none of"),
            (
                "redis+cluster://u:secret@a,u:secret@b",
                "an @ in them is %40",
            ),
            ("redis+cluster://:%ff@a", "not UTF-8"),
            ("redis+cluster://u:secret/x@a", "# @ are %2F %3F %23 %40"),
        ] {
            let refused = RedisCluster::parse(url).unwrap_err();
            assert!(refused.contains(part), "{url}: {refused}");
            assert!(!refused.contains("secret"), "{url}: {refused}");
        }
        let many = format!("redis+cluster://{}", vec!["a"; SERVERS_MAX + 1].join(","));
        let refused = RedisCluster::parse(&many).unwrap_err();
        assert!(refused.contains("17 nodes (limit 16)"), "{refused}");
    }
}
