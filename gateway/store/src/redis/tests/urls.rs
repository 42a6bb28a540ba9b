//! The settings read URLs themselves, for which they do not depend on the client library. One server they read as it does.

use mooring_settings::{RedisAddress, RedisEndpoint, RedisTopology, RedisUrl, RespVersion};
use proptest::prelude::*;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, ProtocolVersion};

/// What the client library reads, as the settings say it.
fn of_client(info: &ConnectionInfo) -> RedisEndpoint {
    let settings = info.redis_settings();
    let mut endpoint = match RedisUrl::parse("redis://h").unwrap().topology() {
        RedisTopology::Single(endpoint) => endpoint.clone(),
        other => panic!("{other:?}"),
    };
    endpoint.address = match info.addr() {
        ConnectionAddr::Tcp(host, port) => RedisAddress::Tcp(host.clone(), *port),
        ConnectionAddr::TcpTls { host, port, .. } => RedisAddress::Tls(host.clone(), *port),
        ConnectionAddr::Unix(path) => RedisAddress::Unix(path.clone()),
        other => panic!("{other:?}"),
    };
    endpoint.login.user = settings.username().map(str::to_owned);
    endpoint.login.password = settings.password().map(str::to_owned);
    endpoint.database = settings.db();
    endpoint.protocol = match settings.protocol() {
        ProtocolVersion::RESP3 => RespVersion::Three,
        _ => RespVersion::Two,
    };
    endpoint
}

/// Both read the same, or both refuse it. Only the client library accepts a host with a comma.
fn check_same(url: &str) {
    let (read, client) = (RedisUrl::parse(url), url.into_connection_info());
    if let Ok(client) = &client
        && let ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } = client.addr()
        && host.contains(',')
    {
        assert!(read.is_err(), "{url}: {read:?}");
        return;
    }
    assert_eq!(read.is_ok(), client.is_ok(), "{url}: {read:?}, {client:?}");
    if let (Ok(read), Ok(client)) = (read, client) {
        let expected = RedisTopology::Single(of_client(&client));
        assert_eq!(*read.topology(), expected, "{url}");
    }
}

#[test]
fn one_server_is_read_as_the_client_library_reads_it() {
    [
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
        "redis+unix:///r?user=u&pass=p%40&pass=q+r",
        "redis://u:p,q@h",
        "redis://h?protocol=3",
    ]
    .into_iter()
    .for_each(check_same);
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

proptest! {
    #[test]
    fn made_up_urls_of_one_server_are_read_as_the_client_library_reads_them(
        url in "(redis|rediss|unix|redis\\+unix)://[a-z0-9:@/?.%,&=\\[\\]-]{0,24}",
    ) {
        check_same(&url);
    }

    #[test]
    fn no_text_is_read_with_a_panic(
        scheme in "(redis|rediss)\\+sentinel://",
        rest in "([a-z0-9:@/?.%,&=#\\[\\] -]|redis://|secret){0,12}",
    ) {
        let url = format!("{scheme}{rest}");
        if let Ok(read) = RedisUrl::parse(&url) {
            let sentinels = read.hosts().count();
            prop_assert!((1..=16).contains(&sentinels), "{}", url);
        }
    }

    /// What is written by the form of the page is read back, whatever is in it.
    #[test]
    fn a_url_of_sentinels_is_read_back(
        user in proptest::option::of("\\PC{1,8}"),
        password in "\\PC{0,8}",
        hosts in proptest::collection::vec(("[a-z][a-z0-9-]{0,6}[a-z0-9]", 1_u16..), 1..=16),
        service in "[A-Za-z0-9._-]{1,12}",
        database in 0_i64..100,
        sentinel_password in "\\PC{1,8}",
    ) {
        let encode = |text: &str| -> String {
            url_encoded(text.as_bytes())
        };
        let listed: Vec<_> = hosts.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        let url = format!(
            "redis+sentinel://{}:{}@{}/{service}/{database}?sentinel_password={}",
            encode(user.as_deref().unwrap_or_default()),
            encode(&password),
            listed.join(","),
            encode(&sentinel_password),
        );
        let read = RedisUrl::parse(&url).unwrap();
        let read_hosts: Vec<_> = read.hosts().map(|(host, port)| (host.to_owned(), port)).collect();
        prop_assert_eq!(read_hosts, hosts);
        let RedisTopology::Sentinels(found) = read.topology() else {
            panic!("{url}");
        };
        let server = found.server_at("h", 1);
        prop_assert_eq!(found.name(), service);
        prop_assert_eq!((server.login.user, server.database), (user, database));
        prop_assert_eq!(server.login.password, Some(password));
        for sentinel in found.sentinels() {
            prop_assert_eq!(sentinel.login.password.as_deref(), Some(&*sentinel_password));
        }
    }
}

/// Every byte as %XX.
fn url_encoded(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("%{byte:02X}")).collect()
}
