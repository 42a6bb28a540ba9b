//! `[listen]`: where clients connect, which of their requests are heard at all, and what they may use up.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use super::hosts::{AllowedHosts, AllowedOrigins, HostRule, Origin};
use super::paths::{ABSOLUTE_FILE, PATH_BYTES_MAX, absolute_file};
use super::reader::{Reader, Reason, text};
use super::rows::{settings, words};
use super::setting::{List, Text};

settings! {
    /// Where clients connect and which of their requests are heard.
    pub struct ListenSettings {
        /// The one address and port that clients connect to. An address that other machines can reach needs `auth.mode`
        /// other than `none`. Port 0 lets the system choose a free port.
        pub address: SocketAddr = Text("listen.address", 64,
            "an IP address and a port, such as 127.0.0.1:4444, 0.0.0.0:4444 or [::1]:4444", Some("127.0.0.1:4444"))
            .flag("--listen") => |reader, row| reader.text(row, parse_address).unwrap_or(DEFAULT_ADDRESS),
        /// How clients reach the gateway: the URL of which `/mcp` and the other paths are part. Clients that need a token
        /// ask for one for this URL (RFC 9728); `listen.allowed_hosts` must list its host.
        pub public_url: Option<String> = Text("listen.public_url", 512,
            "an http:// or https:// URL without query, such as https://gateway.example", None)
            .unset("the Host header of each request, with https:// if there is `listen.tls`") => text(parse_public_url),
        /// The accepted Host headers; any other gets 421. This protects against DNS rebinding, where a web page points
        /// its own name at this machine. A name without a port allows every port; `*` alone turns the check off.
        pub allowed_hosts: AllowedHosts = List("listen.allowed_hosts", 64, 260,
            "host names or addresses with or without a port, such as gateway.example, 10.0.0.7:4444 or [::1], or \"*\" alone")
            .unset("localhost, 127.0.0.1, [::1] and the address of `listen.address`, on every port")
            => |reader, row| parse_hosts(reader, row, address.ip()),
        /// The web origins whose pages may call the gateway: their browsers are answered as CORS asks, without cookies.
        /// A request with any other Origin header gets 403. Requests without an Origin header do not come from a web
        /// page and are accepted. The gateway's own pages need no entry, unless `listen.allowed_hosts` allows every host and
        /// `listen.public_url` is not set.
        pub allowed_origins: AllowedOrigins = List("listen.allowed_origins", 64, 300,
            "origins, each a scheme, a host and a port if it is not the scheme's own, such as https://app.example or \
             http://localhost:6274")
            .unset("pages served by this machine itself (localhost, 127.0.0.1 and [::1], every port) while `listen.address` is \
                 a loopback address, otherwise none")
            => |reader, row| match reader.list(row, Origin::parse_exact) {
                Some(origins) => AllowedOrigins::Listed(origins),
                None if address.ip().is_loopback() => AllowedOrigins::Loopback,
                None => AllowedOrigins::Listed(Vec::new()),
            },
        /// Maximum size of a request body; a larger one gets 413.
        pub body_bytes_max: usize =
            Integer("listen.body_bytes_max", "bytes", 4 * 1024 * 1024, 1024..=64 * 1024 * 1024),
        /// Maximum total size of the request bodies in memory, including copies of long ones. A body counts from its
        /// first byte until the request no longer needs it. One user gets at most a quarter of it, and an eighth is
        /// reserved for bodies up to 64 KiB; if `auth.mode` is `none`, all clients are one user, who gets all of it. A
        /// request whose body no longer fits gets 503 with Retry-After. At least `listen.body_bytes_max`.
        pub body_budget_bytes: usize =
            Integer("listen.body_budget_bytes", "bytes", 256 * 1024 * 1024, 1024..=64 * 1024 * 1024 * 1024)
            => |reader, row| reader.at_least(row, body_bytes_max, "a body", "listen.body_bytes_max"),
        /// Maximum requests per minute of one user to this process; 0 means no limit. They may arrive in one burst;
        /// further ones get 429 with Retry-After. Each message of a batch counts. If `auth.mode` is `none`, all clients
        /// are one user.
        pub requests_per_user_per_minute: Option<u32> =
            Integer("listen.requests_per_user_per_minute", "requests", 0, 0..=1_000_000),
        /// Maximum concurrent requests of one user at this process; 0 means no limit. A request counts from when its
        /// body is read until its reply has ended, or until its client has disconnected and all work for it is done.
        /// Further ones get 429 with Retry-After. A batch counts once, and so does a call of a group or of code with
        /// all calls that it makes. Streams that a client opens with GET do not count. If `auth.mode` is `none`, all
        /// clients are one user.
        pub calls_per_user_at_once: Option<u32> =
            Integer("listen.calls_per_user_at_once", "requests", 256, 0..=1_000_000),
        /// Maximum refusals per second that this process sends to unknown senders at one IPv4 address or one IPv6 /64
        /// network; 0 means no limit. Further ones are delayed until the rate permits them, by at most 2 seconds. A
        /// sender is unknown until it is authenticated; if `auth.mode` is `none`, until it names an existing server.
        /// Public replies (health probes, metrics, metadata, CORS preflights) have ten times this limit, and are
        /// delayed by at most half a second.
        pub refusals_per_peer_per_second: Option<u32> =
            Integer("listen.refusals_per_peer_per_second", "refusals", 10, 0..=1_000_000),
        /// Who sees the details of `/readyz`, such as the names and states of servers, and `/metrics`. Other clients
        /// get only the status of `/readyz`, and 403 for `/metrics`. `/healthz` is the same for all.
        pub probe_detail: ProbeDetail = Choice("listen.probe_detail"),
        /// Whether their connections are encrypted.
        pub tls: Option<ListenerTlsSettings> => parse_tls,
        /// Limits of their connections.
        pub connections: ConnectionSettings => ConnectionSettings::read,
    }
}

settings! {
    /// Limits of client connections.
    pub struct ConnectionSettings {
        /// Maximum client connections, and never more than half of the files that the system lets the process open. Up
        /// to 64 connections beyond it are served only `/healthz`, `/readyz` and `/metrics`, and 503 for everything
        /// else; further ones are closed.
        pub connections_max: usize = Integer("listen.connections_max", "connections", 10_000, 1..=1_000_000),
        /// Maximum client connections from one IPv4 address or one IPv6 /64 network; further ones are closed. Loopback
        /// addresses and `auth.trusted_peers` have no such limit, because the connections of many clients come from
        /// them.
        pub connections_per_peer_max: usize =
            Integer("listen.connections_per_peer_max", "connections", 256, 1..=1_000_000),
        /// How long a client may take to send the head of a request before the connection is closed: for the first
        /// request from when the connection is accepted, for a later one up to twice as long from its first byte.
        pub header_timeout: Duration = Integer("listen.header_timeout_ms", "milliseconds", 10_000, 100..=600_000),
        /// How long a client connection is kept without an open request. A load balancer in front should close its idle
        /// connections sooner, so that it never sends a request into one that is being closed.
        pub idle_timeout: Duration = Integer("listen.idle_timeout_ms", "milliseconds", 120_000, 100..=86_400_000),
        /// Maximum concurrent requests in one HTTP/2 connection. HTTP/2 is used over TLS with clients that offer it
        /// (ALPN), and without TLS with clients that start with it (h2c with prior knowledge); 0 turns HTTP/2 off.
        pub http2_streams_max: Option<u32> = Integer("listen.http2_streams_max", "requests", 64, 0..=1000),
    }
}

settings! {
    /// The rows of TLS.
    pub(crate) const TLS_ROWS {
        /// The certificates of the listener. If set, clients must use TLS. A client gets the first certificate that is
        /// valid for the name it asks for, otherwise the first one. Changed files are reloaded within seconds; if they
        /// cannot be used, the previous ones stay in use.
        TLS = Tables("listen.tls", 16, &[CERTIFICATE_ROWS]).unset("no TLS"),
        /// Client certificate authorities, in PEM. If set, every client must present a certificate of one of them, even
        /// for `/healthz`.
        CLIENT_CA_FILE = Text("listen.tls_client_ca_file", PATH_BYTES_MAX, ABSOLUTE_FILE, None)
            .unset("clients need no certificate"),
        /// The revocation lists of these authorities, in PEM (RFC 5280, section 5). Certificates of an authority
        /// without a list here are never revoked. A list stays in use after its next-update time.
        CLIENT_CRL_FILE = Text("listen.tls_client_crl_file", PATH_BYTES_MAX, ABSOLUTE_FILE, None)
            .unset("no certificate is revoked"),
    }
}

settings! {
    /// The fields of one certificate.
    const CERTIFICATE_ROWS {
        /// The certificate and those that lead to its authority, in PEM.
        CERTIFICATE_FILE = Text("certificate.cert_file", PATH_BYTES_MAX, ABSOLUTE_FILE, None).unset("refused"),
        /// Its private key, in PEM. Only the gateway's user may be able to read it.
        KEY_FILE = Text("certificate.key_file", PATH_BYTES_MAX, ABSOLUTE_FILE, None).unset("refused"),
    }
}

/// TLS of the listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerTlsSettings {
    /// At least one.
    pub certificates: Vec<CertificateFiles>,
    /// Authorities of clients; none where clients need no certificate.
    pub client_ca_file: Option<PathBuf>,
    /// What they have revoked.
    pub client_crl_file: Option<PathBuf>,
}

/// A certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate with its chain.
    pub certificate_file: PathBuf,
    /// The private key.
    pub key_file: PathBuf,
}

words! {
    /// Who sees the detail of health probes, and metrics.
    pub enum ProbeDetail {
        /// loopback addresses and `auth.trusted_peers`
        Trusted = "trusted",
        /// every client, for instance a scraper that is not a trusted peer
        Everyone = "everyone",
    }
}

const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4444);

fn parse_tls(reader: &mut Reader<'_>) -> Option<ListenerTlsSettings> {
    let read = reader.tables(&TLS, |reader| {
        let mut file = |row: &'static Text| {
            if !reader.is_written(row) {
                reader.refuse(row, "", "it is missing", row.shape);
            }
            reader.text(row, absolute_file)
        };
        let (certificate, key) = (file(&CERTIFICATE_FILE), file(&KEY_FILE));
        Some(CertificateFiles {
            certificate_file: certificate?,
            key_file: key?,
        })
    });
    let certificates: Vec<CertificateFiles> = read.into_iter().flatten().flatten().collect();
    let client_ca_file = reader.text(&CLIENT_CA_FILE, absolute_file);
    let client_crl_file = reader.text(&CLIENT_CRL_FILE, absolute_file);
    if client_crl_file.is_some() && client_ca_file.is_none() && !reader.was_refused(&CLIENT_CA_FILE)
    {
        let reason = "clients need no certificate that could be revoked";
        let allowed = "nothing, or listen.tls_client_ca_file with their authorities";
        reader.refuse(&CLIENT_CRL_FILE, "", reason, allowed);
    }
    if certificates.is_empty() {
        if client_ca_file.is_some() && !reader.is_written(&TLS) {
            let reason = "clients prove who they are in TLS, and there is no listen.tls";
            reader.refuse(
                &CLIENT_CA_FILE,
                "",
                reason,
                "nothing, or listen.tls with a certificate",
            );
        }
        return None;
    }
    Some(ListenerTlsSettings {
        certificates,
        client_ca_file,
        client_crl_file,
    })
}

fn parse_address(text: &str) -> Result<SocketAddr, Reason> {
    text.parse().map_err(|_| {
        let name = text.rsplit_once(':').map_or(text, |(host, _)| host);
        if name.parse::<IpAddr>().is_ok() {
            "it has no valid port".to_owned()
        } else {
            format!("{name:?} is not an IP address; names are not looked up here")
        }
    })
}

fn parse_hosts(reader: &mut Reader<'_>, row: &'static List, address: IpAddr) -> AllowedHosts {
    let written = reader.list(row, |item| match item {
        "*" => Ok(None),
        name => HostRule::parse(name).map(Some),
    });
    let Some(items) = written else {
        return AllowedHosts::defaults_for(address);
    };
    let any = items.iter().any(Option::is_none);
    let rules: Vec<HostRule> = items.into_iter().flatten().collect();
    if any && !rules.is_empty() {
        reader.refuse(
            row,
            "\"*\" beside other hosts",
            "\"*\" allows every host, so the others would mean nothing",
            row.allowed(),
        );
    }
    match any {
        true => AllowedHosts::Any,
        false => AllowedHosts::Listed(rules),
    }
}

fn parse_public_url(text: &str) -> Result<String, Reason> {
    let url = Url::parse(text).map_err(|error| format!("it is no URL: {error}"))?;
    let is_plain = matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    match is_plain {
        true => Ok(url.as_str().trim_end_matches('/').to_owned()),
        false => Err(Reason::new()),
    }
}
