//! The settings read the URL of a Redis as the client does, which they do not depend on.

use mooring_settings::RedisUrl;
use redis::{ConnectionAddr, IntoConnectionInfo as _};

#[test]
fn the_settings_accept_exactly_the_urls_without_a_fragment_that_the_client_accepts() {
    for url in [
        "redis://h",
        "redis://h:1/2",
        "redis://h/",
        "redis://h/two",
        "redis://h/1/2",
        "redis://h/-1",
        "redis://h:port",
        "redis://h:65536",
        "redis://",
        "redis:///1",
        "redis:h",
        "redis://0.0.0.0",
        "redis://[::]",
        "redis://[::1]:7",
        "redis://127.0.0.1",
        "redis://u:p@h",
        "redis://:p%20q@h",
        "redis://:%ff@h",
        "redis://%ff@h",
        "redis://h?protocol=resp3",
        "redis://h?protocol=4",
        "redis://h?protocol=4&protocol=2",
        "rediss://h",
        "rediss://u:p@h:1/2",
        "unix:///run/r.sock",
        "unix:///run/r.sock?db=1&pass=p",
        "unix:///run/r.sock?db=one",
        "unix:///run/r.sock?db=",
        "unix://host/r.sock",
        "unix:r.sock",
        "redis+unix:///r",
        "redis+unix:///r?protocol=1",
    ] {
        let (read, client) = (RedisUrl::parse(url), url.into_connection_info());
        assert_eq!(read.is_ok(), client.is_ok(), "{url}: {read:?}, {client:?}");
        let (Ok(read), Ok(client)) = (read, client) else {
            continue;
        };
        let host = match client.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some((host.clone(), *port))
            }
            _ => None,
        };
        assert_eq!(read.host(), host, "{url}");
    }
}

/// The client library reads one, `#insecure`, and the connections of this crate are made without it.
#[test]
fn the_settings_accept_no_fragment() {
    for url in [
        "redis://h#insecure",
        "rediss://u:p@h:1/2#insecure",
        "rediss://h#secure",
        "unix:///run/r.sock#insecure",
    ] {
        let refused = RedisUrl::parse(url).unwrap_err();
        assert!(refused.contains("always verified"), "{url}: {refused}");
    }
}
