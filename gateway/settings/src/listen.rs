//! `[listen]`: where clients connect, which of their requests are heard at all, and what they may use up.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use super::hosts::{AllowedHosts, AllowedOrigins, HostRule, Origin};
use super::paths::{ABSOLUTE_FILE, PATH_BYTES_MAX, absolute_file};
use super::reader::{Reader, Reason, text};
use super::rows::{settings, words};
use super::setting::{Integer, List, Text};

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
        /// The Host headers that are answered; any other gets 421. This keeps a web page that points its own name at
        /// this machine (DNS rebinding) away. A name without a port allows every port; `*` alone turns the check off.
        pub allowed_hosts: AllowedHosts = List("listen.allowed_hosts", 64, 260,
            "host names or addresses with or without a port, such as gateway.example, 10.0.0.7:4444 or [::1], or \"*\" alone")
            .unset("localhost, 127.0.0.1, [::1] and the address of `listen.address`, on every port")
            => |reader, row| parse_hosts(reader, row, address.ip()),
        /// The web origins whose pages may call the gateway: their browsers are answered as CORS asks, without cookies.
        /// A request with any other Origin header gets 403. Requests without an Origin header do not come from a web
        /// page and are not concerned.
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
        /// The largest request body that is read; a larger one gets 413.
        pub body_bytes_max: usize =
            Integer("listen.body_bytes_max", "bytes", 4 * 1024 * 1024, 1024..=64 * 1024 * 1024),
        /// The most bytes of all request bodies together that are held at a time, from the first byte that is read to
        /// the moment at which the request needs its body no more, with the copies that are made of long ones. One user
        /// gets a quarter of it at most, and an eighth is for bodies up to 64 KiB alone; where `auth.mode` is `none`, all
        /// clients are one user, who gets all of it. A request whose body no longer fits gets 503 with Retry-After. At
        /// least `listen.body_bytes_max`.
        pub body_budget_bytes: usize =
            Integer("listen.body_budget_bytes", "bytes", 256 * 1024 * 1024, 1024..=64 * 1024 * 1024 * 1024)
            => |reader, row| parse_body_budget(reader, row, body_bytes_max),
        /// Most requests of one user within a minute, to this process; 0 means no limit. So many may come at once; further
        /// ones get 429 with Retry-After. Each message of a batch counts. Where `auth.mode` is `none`, all clients are one
        /// user.
        pub requests_per_user_per_minute: Option<u32> =
            Integer("listen.requests_per_user_per_minute", "requests", 0, 0..=1_000_000),
        /// Most requests of one user that this process serves at a time; 0 means no limit. A request counts from the moment
        /// at which its body is read until its reply has ended, or its client has disconnected and nothing more is done
        /// for it. Further ones get 429 with Retry-After. A batch counts once, and so does a call of a group or of code with
        /// all that it calls. Streams that a client opens with GET do not count. Where `auth.mode` is `none`, all clients
        /// are one user.
        pub calls_per_user_at_once: Option<u32> =
            Integer("listen.calls_per_user_at_once", "requests", 256, 0..=1_000_000),
        /// Most refusals that are sent within a second to unknown senders at one IPv4 address or one IPv6 network of 64
        /// bits, by this process; 0 means no limit. A further one is delayed until the rate permits it, by 2 seconds at
        /// most. A sender is unknown until it is authenticated; where `auth.mode` is `none`, until it names a server
        /// that is there. Replies that are for everybody (health probes, metrics, metadata, CORS preflights) are delayed
        /// beyond ten times as many, by half a second at most.
        pub refusals_per_peer_per_second: Option<u32> =
            Integer("listen.refusals_per_peer_per_second", "refusals", 10, 0..=1_000_000),
        /// Who sees what is behind `/readyz`, such as the names of servers and their state, and `/metrics`. Others are
        /// told the status of `/readyz` alone, and get 403 for `/metrics`. `/healthz` is the same for everybody.
        pub probe_detail: ProbeDetail = Choice("listen.probe_detail"),
        /// Whether their connections are encrypted.
        pub tls: Option<ListenerTlsSettings> => parse_tls,
        /// What their connections may use up.
        pub connections: ConnectionSettings => ConnectionSettings::read,
    }
}

settings! {
    /// What client connections may use up.
    pub struct ConnectionSettings {
        /// Most client connections at a time, and never more than half of the files that the system lets the process
        /// open. In up to 64 connections beyond it, `/healthz`, `/readyz` and `/metrics` are answered, and everything
        /// else with status 503; further ones are closed.
        pub connections_max: usize = Integer("listen.connections_max", "connections", 10_000, 1..=1_000_000),
        /// Most client connections at a time from one IPv4 address or one IPv6 network of 64 bits; further ones are
        /// closed. Loopback addresses and `auth.trusted_peers`, from where the connections of many clients come, have
        /// no such limit.
        pub connections_per_peer_max: usize =
            Integer("listen.connections_per_peer_max", "connections", 256, 1..=1_000_000),
        /// How long the head of a request may take: of the first from the moment that the connection is accepted, of a
        /// later one up to twice as long from its first byte. The connection is closed then.
        pub header_timeout: Duration = Integer("listen.header_timeout_ms", "milliseconds", 10_000, 100..=600_000),
        /// How long a client connection is kept without an open request. A load balancer in front should let go of its
        /// connections sooner, so that it never sends a request into one that is being closed.
        pub idle_timeout: Duration = Integer("listen.idle_timeout_ms", "milliseconds", 120_000, 100..=86_400_000),
        /// Most requests at a time in one HTTP/2 connection. HTTP/2 is spoken over TLS to clients that offer it
        /// (ALPN), and without TLS to clients that begin with it (h2c with prior knowledge); 0 turns it off.
        pub http2_streams_max: Option<u32> = Integer("listen.http2_streams_max", "requests", 64, 0..=1000),
    }
}

settings! {
    /// The rows of TLS.
    pub(crate) const TLS_ROWS {
        /// Certificates with which the listener proves who it is: then clients speak TLS, and nothing else is heard. A client
        /// gets the first certificate that is for the name it asks for, else the first one. Changed files are read again
        /// within seconds; if they cannot be used, those before stay in use.
        TLS = Tables("listen.tls", 16, &[CERTIFICATE_ROWS]).unset("no TLS"),
        /// Authorities, in PEM: then every client has to prove by a certificate of one of them who it is, also one that
        /// only looks at `/healthz`.
        CLIENT_CA_FILE = Text("listen.tls_client_ca_file", PATH_BYTES_MAX, ABSOLUTE_FILE, None)
            .unset("clients need no certificate"),
        /// The revocation lists of these authorities, in PEM (RFC 5280, section 5). An authority without a list here has
        /// revoked nothing. A list is used also after the time for which its next update was announced.
        CLIENT_CRL_FILE = Text("listen.tls_client_crl_file", PATH_BYTES_MAX, ABSOLUTE_FILE, None)
            .unset("no certificate is revoked"),
    }
}

settings! {
    /// The fields of one certificate.
    const CERTIFICATE_ROWS {
        /// The certificate and those that lead to its authority, in PEM.
        CERTIFICATE_FILE = Text("certificate.cert_file", PATH_BYTES_MAX, ABSOLUTE_FILE, None).unset("refused"),
        /// Its private key, in PEM. Nobody but the gateway may read it.
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
        /// whoever can connect, for instance a scraper that is no proxy
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

fn parse_body_budget(
    reader: &mut Reader<'_>,
    row: &'static Integer,
    body_bytes_max: usize,
) -> usize {
    let budget: usize = reader.read(row);
    if budget < body_bytes_max {
        reader.refuse(
            row,
            budget.to_string(),
            format!("a body of listen.body_bytes_max ({body_bytes_max} bytes) would never fit"),
            format!("{body_bytes_max} or more, or a lower listen.body_bytes_max"),
        );
    }
    budget
}
