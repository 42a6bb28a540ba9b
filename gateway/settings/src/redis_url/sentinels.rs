//! `redis+sentinel://[user:password@]host1[:port],host2[:port]/service[/database][?options]`, as several clients write it.
//!
//! The user and password are those of the servers; the sentinels' own are options. With `rediss+sentinel://` both speak
//! TLS.

use url::Url;

use super::endpoint::{
    RedisAddress, RedisEndpoint, RedisLogin, RespVersion, SERVERS_MAX, database_number,
    query_value, tcp_host,
};
use super::tls_files::RedisTlsFiles;
use crate::reader::Reason;

/// The port of a sentinel whose URL has none.
const PORT: u16 = 26379;

/// Longest name of a service in bytes.
const SERVICE_BYTES_MAX: usize = 128;

const OPTIONS: [&str; 3] = ["protocol", "sentinel_username", "sentinel_password"];

/// A service whose primary the sentinels know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentinelService {
    name: String,
    sentinels: Vec<RedisEndpoint>,
    is_tls: bool,
    login: RedisLogin,
    database: i64,
    protocol: RespVersion,
    tls_files: RedisTlsFiles,
}

/// Whether the scheme is that of sentinels.
pub(super) fn is_sentinel_url(text: &str) -> bool {
    text.split_once("://")
        .is_some_and(|(scheme, _)| scheme.contains("sentinel"))
}

impl SentinelService {
    pub(super) fn parse(text: &str) -> Result<Self, Reason> {
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        let is_tls = match scheme {
            "redis+sentinel" => false,
            "rediss+sentinel" => true,
            _ => {
                return Err(format!(
                    "the scheme {scheme:?} is not known; that of sentinels is redis+sentinel"
                ));
            }
        };
        let (authority, after) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        // An @ there is that of a login, and what is before it must not be repeated as a host.
        if after.contains(['#', '@']) {
            return Err(
                "a # or @ after the sentinels; in a user or password, / ? # @ are %2F %3F %23 %40"
                    .to_owned(),
            );
        }
        let (path, query) = after.split_once('?').unwrap_or((after, ""));
        let (login, hosts) = split_login(authority)?;
        let (name, database) = read_path(path)?;
        let sentinel_login = read_options(query)?;
        let sentinels: Vec<_> = hosts
            .split(',')
            .map(|host| sentinel(host, is_tls, &sentinel_login))
            .collect::<Result<_, _>>()?;
        if sentinels.len() > SERVERS_MAX {
            return Err(format!(
                "it names {} sentinels (limit {SERVERS_MAX})",
                sentinels.len()
            ));
        }
        Ok(Self {
            name,
            sentinels,
            is_tls,
            login,
            database,
            protocol: RespVersion::parse(query_value(query, "protocol").as_deref())?,
            tls_files: RedisTlsFiles::default(),
        })
    }

    /// The name by which the sentinels know the service.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The sentinels, in the order of the URL; at least one.
    #[must_use]
    pub fn sentinels(&self) -> &[RedisEndpoint] {
        &self.sentinels
    }

    /// The server of the service that sentinels name by this host and port.
    #[must_use]
    pub fn server_at(&self, host: &str, port: u16) -> RedisEndpoint {
        RedisEndpoint {
            address: address_of(host.to_owned(), port, self.is_tls),
            login: self.login.clone(),
            database: self.database,
            protocol: self.protocol,
            tls_files: self.tls_files.clone(),
        }
    }

    pub(super) fn set_tls_files(&mut self, files: &RedisTlsFiles) {
        self.tls_files = files.clone();
        for sentinel in &mut self.sentinels {
            sentinel.tls_files = files.clone();
        }
    }
}

pub(super) fn address_of(host: String, port: u16, is_tls: bool) -> RedisAddress {
    match is_tls {
        true => RedisAddress::Tls(host, port),
        false => RedisAddress::Tcp(host, port),
    }
}

/// The login before the first host, and the hosts.
pub(super) fn split_login(authority: &str) -> Result<(RedisLogin, &str), Reason> {
    let Some((login, hosts)) = authority.rsplit_once('@') else {
        return Ok((RedisLogin::default(), authority));
    };
    if login.contains('@') {
        return Err(
            "user and password are given once, before the first host; an @ in them is %40"
                .to_owned(),
        );
    }
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (login, None),
    };
    Ok((RedisLogin::decode(user, password)?, hosts))
}

/// The service and the database.
fn read_path(path: &str) -> Result<(String, i64), Reason> {
    let path = path.trim_start_matches('/');
    let (name, database) = match path.split_once('/') {
        Some((name, database)) => (name, Some(database.trim_end_matches('/'))),
        None => (path, None),
    };
    // What the configuration of a sentinel accepts.
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if name.is_empty() {
        return Err(
            "it names no service: redis+sentinel://host/service, as in `sentinel monitor service ...`"
                .to_owned(),
        );
    }
    if name.len() > SERVICE_BYTES_MAX || !name.bytes().all(is_known) {
        return Err(format!(
            "the service {name:?} is not 1 to {SERVICE_BYTES_MAX} letters, digits and . - _"
        ));
    }
    let database = database.filter(|database| !database.is_empty());
    Ok((name.to_owned(), database_number(database)?))
}

/// The sentinels' own login.
fn read_options(query: &str) -> Result<RedisLogin, Reason> {
    let mut names = url::form_urlencoded::parse(query.as_bytes()).map(|(name, _)| name);
    if names.any(|name| !OPTIONS.contains(&&*name)) {
        return Err(format!(
            "it has an option that is none of {}",
            OPTIONS.join(", ")
        ));
    }
    let login = RedisLogin {
        user: query_value(query, "sentinel_username"),
        password: query_value(query, "sentinel_password"),
    };
    if login.user.is_some() && login.password.is_none() {
        return Err("it has sentinel_username without sentinel_password".to_owned());
    }
    Ok(login)
}

fn sentinel(host: &str, is_tls: bool, login: &RedisLogin) -> Result<RedisEndpoint, Reason> {
    if host.is_empty() {
        return Err("it has a sentinel without a host".to_owned());
    }
    let url = Url::parse(&format!("redis://{host}"))
        .map_err(|error| format!("the sentinel {host:?}: {error}"))?;
    let host = tcp_host(&url).map_err(|reason| format!("the sentinel {host:?}: {reason}"))?;
    Ok(RedisEndpoint {
        address: address_of(host, url.port().unwrap_or(PORT), is_tls),
        login: login.clone(),
        database: 0,
        protocol: RespVersion::Two,
        tls_files: RedisTlsFiles::default(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn a_url_names_the_sentinels_and_the_servers_login() {
        let url = "rediss+sentinel://u%40x:p%2Fq@a,[::1]:7,10.0.0.1:26380/my.master-1_x/3\
                   ?sentinel_username=s&sentinel_password=t&protocol=resp3";
        let service = SentinelService::parse(url).unwrap();
        assert_eq!(service.name(), "my.master-1_x");
        let addresses: Vec<_> = service
            .sentinels()
            .iter()
            .map(|sentinel| sentinel.address.to_string())
            .collect();
        assert_eq!(addresses, ["a:26379", "[::1]:7", "10.0.0.1:26380"]);
        let sentinel_login = RedisLogin {
            user: Some("s".to_owned()),
            password: Some("t".to_owned()),
        };
        assert!(service.sentinels().iter().all(|sentinel| {
            sentinel.login == sentinel_login
                && matches!(sentinel.address, RedisAddress::Tls(..))
                && sentinel.protocol == RespVersion::Two
        }));
        let server = service.server_at("::2", 9);
        assert_eq!(
            server,
            RedisEndpoint {
                address: RedisAddress::Tls("::2".to_owned(), 9),
                login: RedisLogin {
                    user: Some("u@x".to_owned()),
                    password: Some("p/q".to_owned()),
                },
                database: 3,
                protocol: RespVersion::Three,
                tls_files: RedisTlsFiles::default(),
            }
        );
    }

    #[test]
    fn the_shortest_url_needs_no_login() {
        for text in ["redis+sentinel://a/m", "redis+sentinel://a/m/"] {
            let service = SentinelService::parse(text).unwrap();
            assert_eq!(
                service.server_at("h", 1),
                RedisEndpoint::parse("redis://h:1").unwrap()
            );
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_secrets() {
        for (url, part) in [
            ("sentinel://a/m", "that of sentinels is redis+sentinel"),
            (
                "redis-sentinel://a/m",
                "that of sentinels is redis+sentinel",
            ),
            ("redis+sentinel://a,b", "names no service"),
            ("redis+sentinel://a,b/", "names no service"),
            ("redis+sentinel:///m", "a sentinel without a host"),
            ("redis+sentinel://a,,b/m", "a sentinel without a host"),
            ("redis+sentinel://a,b:port/m", "\"b:port\": invalid port"),
            ("redis+sentinel://a,0.0.0.0/m", "a wildcard address"),
            ("redis+sentinel://a/m/two", "its database is no number"),
            ("redis+sentinel://a/m/1/2", "its database is no number"),
            ("redis+sentinel://a/m n", "\"m n\" is not 1 to 128"),
            (
                "redis+sentinel://u:secret@a,u:secret@b/m",
                "an @ in them is %40",
            ),
            ("redis+sentinel://:%ff@a/m", "not UTF-8"),
            ("redis+sentinel://a/m?protocol=4", "its protocol is none of"),
            (
                "redis+sentinel://a/m?secret",
                "is none of protocol, sentinel_",
            ),
            (
                "redis+sentinel://a/m?sentinel_username=u",
                "without sentinel_password",
            ),
            ("redis+sentinel://:secret#@a/m", "# @ are %2F %3F %23 %40"),
            ("redis+sentinel://u:secret/x@a/m", "# @ are %2F %3F %23 %40"),
            (
                "redis+sentinel://u:secret/m?x@a/m",
                "# @ are %2F %3F %23 %40",
            ),
            (
                "redis+sentinel://a/m#insecure",
                "a # or @ after the sentinels",
            ),
        ] {
            let refused = SentinelService::parse(url).unwrap_err();
            assert!(refused.contains(part), "{url}: {refused}");
            assert!(!refused.contains("secret"), "{url}: {refused}");
        }
        let many = format!(
            "redis+sentinel://{}/m",
            vec!["a"; SERVERS_MAX + 1].join(",")
        );
        let refused = SentinelService::parse(&many).unwrap_err();
        assert!(refused.contains("17 sentinels (limit 16)"), "{refused}");
    }
}
