//! `[auth]`: how callers are authenticated.

use std::path::PathBuf;

use http::HeaderName;
use ipnet::IpNet;

use super::hosts::AllowedHosts;
use super::listen::{CLIENT_CA_FILE, ListenSettings};
use super::paths::{ABSOLUTE_FILE, PATH_BYTES_MAX, absolute_file};
use super::reader::{Reader, Reason, list};
use super::rows::{settings, words};
use super::setting::{Text, words};
use super::token::TokenSettings;

settings! {
    /// The row that chooses between the others.
    pub(crate) const MODE_ROWS {
        /// How the principal of a request is found.
        MODE = Choice("auth.mode", words::<Mode>),
    }
}

settings! {
    /// The rows of API keys.
    pub(crate) const API_KEY_ROWS {
        /// The file of API keys, which `mooring keys` writes, with the digests of the keys. It is reloaded within two
        /// seconds of a change; gateways may share it. Required if `auth.mode` is `api-key`.
        API_KEYS_FILE = Text("auth.api_keys_file", PATH_BYTES_MAX, ABSOLUTE_FILE, None).unset("there are no API keys"),
    }
}

settings! {
    /// The row of client certificates.
    pub(crate) const CERTIFICATE_ROWS {
        /// Which name in a client's certificate is the user, where `auth.mode` is `mtls`. A certificate that has none or
        /// several of this kind is refused. The teams are its organizations (O), the roles its organizational units (OU).
        CERTIFICATE_USER = Choice("auth.certificate_user", words::<CertificateName>),
    }
}

settings! {
    /// The identity headers, and the peers from which they are trusted.
    pub struct TrustedHeaderSettings {
        /// The header that names the principal. The proxy must overwrite it on every request.
        pub user_header: HeaderName =
            Text("auth.user_header", HEADER_BYTES_MAX, HEADER_SHAPE, Some("x-mooring-user")) => parse_header,
        /// The header that lists the principal's teams, separated by commas. The proxy must overwrite it.
        pub teams_header: HeaderName =
            Text("auth.teams_header", HEADER_BYTES_MAX, HEADER_SHAPE, Some("x-mooring-teams")) => parse_header,
        /// The header that lists the principal's roles, separated by commas. The proxy must overwrite it.
        pub roles_header: HeaderName =
            Text("auth.roles_header", HEADER_BYTES_MAX, HEADER_SHAPE, Some("x-mooring-roles")) => parse_header,
        /// The proxies whose headers are trusted; a request from any other peer gets 403. Required if `auth.mode` is
        /// `trusted-header`, refused if it is `none`. In the other modes no header is trusted, and this lists the load
        /// balancers, for `listen.connections_per_peer_max` and `listen.probe_detail`.
        pub trusted_peers: Vec<IpNet> = List(
            "auth.trusted_peers", 256, 64, "IP addresses or networks, such as 10.0.0.7, 10.0.0.0/8 or fd00::/8")
            .unset("no proxy is trusted") => list(parse_peer),
    }
}

const HEADER_BYTES_MAX: usize = 64;
const HEADER_SHAPE: &str = "the name of an HTTP header";

/// Headers that no proxy can use to name a user: HTTP, browsers or MCP clients set them, or they belong to one connection.
const STANDARD_HEADERS: &str = "\
    accept accept-encoding accept-language authorization cache-control connection content-encoding \
    content-length content-type cookie date expect forwarded host keep-alive last-event-id \
    mcp-method mcp-name mcp-protocol-version mcp-session-id origin proxy-authenticate \
    proxy-authorization proxy-connection referer te trailer transfer-encoding upgrade user-agent via \
    x-forwarded-for x-forwarded-host x-forwarded-proto x-mcp-session-id x-real-ip";

words! {
    /// The words of `auth.mode`, before the rest of the section is read.
    enum Mode {
        /// everybody is the principal `local`; only on a loopback address
        None = "none",
        /// a proxy that has checked the user names it in a header
        TrustedHeader = "trusted-header",
        /// clients send access tokens, signed by one issuer
        Jwt = "jwt",
        /// clients send API keys, which `mooring keys create` makes
        ApiKey = "api-key",
        /// clients connect with certificates of `listen.tls_client_ca_file`
        Mtls = "mtls",
    }
}

words! {
    /// A kind of name in a certificate (RFC 5280, sections 4.1.2.6 and 4.2.1.6).
    pub enum CertificateName {
        /// the common name (CN) of the subject
        CommonName = "common-name",
        /// the URI among the alternative names, such as a SPIFFE ID
        Uri = "uri",
        /// the e-mail address among the alternative names
        Email = "email",
        /// the DNS name among the alternative names
        Dns = "dns",
    }
}

/// How callers are authenticated.
#[derive(Debug, Clone, PartialEq)]
pub enum AuthSettings {
    /// Everybody is `local`.
    None,
    /// A trusted proxy names the user.
    TrustedHeader(TrustedHeaderSettings),
    /// Access tokens name the user.
    Jwt {
        /// Which tokens are accepted.
        tokens: TokenSettings,
        /// The load balancers.
        trusted_peers: Vec<IpNet>,
    },
    /// API keys name the user.
    ApiKey {
        /// The file with their digests.
        keys_file: PathBuf,
        /// The load balancers.
        trusted_peers: Vec<IpNet>,
    },
    /// Client certificates name the user.
    Mtls {
        /// Which of their names is the user.
        user: CertificateName,
        /// The load balancers.
        trusted_peers: Vec<IpNet>,
    },
}

impl AuthSettings {
    /// Refuses a mode that needs what the listener does not have.
    pub(super) fn check_listener(&self, reader: &mut Reader<'_>, listen: &ListenSettings) {
        match self {
            Self::Mtls { .. } => check_client_authorities(reader, listen),
            Self::Jwt { tokens, .. } if tokens.dpop_required => check_own_url(reader, listen),
            _ => {}
        }
    }

    /// Refuses a mode in which callers have no token to exchange for one of this server.
    pub(super) fn check_tokens(&self, reader: &mut Reader<'_>, server: &str) {
        if matches!(self, Self::Jwt { .. }) || reader.was_refused(&MODE) {
            return;
        }
        let reason = format!(
            "server {server:?} gets tokens in exchange for those of its callers (servers.oauth.grant), who have none"
        );
        reader.refuse(&MODE, "", reason, "\"jwt\"");
    }
}

/// Client certificates that the listener does not ask for are refused.
fn check_client_authorities(reader: &mut Reader<'_>, listen: &ListenSettings) {
    let tls = listen.tls.as_ref();
    let asks = tls.is_some_and(|tls| tls.client_ca_file.is_some());
    if !asks && !reader.was_refused(&CLIENT_CA_FILE) {
        let reason =
            "it is missing: auth.mode is \"mtls\", and without it no client shows a certificate";
        let allowed = format!("{ABSOLUTE_FILE} with the authorities of clients, and listen.tls");
        reader.refuse(&CLIENT_CA_FILE, "", reason, allowed);
    }
}

/// Proofs for a URL that their sender could choose are refused.
fn check_own_url(reader: &mut Reader<'_>, listen: &ListenSettings) {
    let row = &ListenSettings::public_url;
    let is_any_host = matches!(listen.allowed_hosts, AllowedHosts::Any);
    if is_any_host && listen.public_url.is_none() && !reader.was_refused(row) {
        let reason = "it is missing: proofs are for the gateway's URL (auth.dpop_required), which the Host header would \
                      decide, and listen.allowed_hosts allows any";
        reader.refuse(row, "", reason, row.shape);
    }
}

/// The mode, and the rows of tokens, which the page uses in every mode.
pub(super) fn parse(reader: &mut Reader<'_>) -> (AuthSettings, TokenSettings) {
    let mode = reader.read(&MODE);
    let headers = TrustedHeaderSettings::read(reader);
    let tokens = TokenSettings::read(reader);
    let keys_file = reader.text(&API_KEYS_FILE, absolute_file);
    let certificate_user = reader.read(&CERTIFICATE_USER);
    headers.refuse_equal(reader);
    if !reader.was_refused(&MODE) && !reader.was_refused(&TrustedHeaderSettings::trusted_peers) {
        headers.refuse_against(reader, mode);
    }
    match mode {
        Mode::Jwt => tokens.refuse_incomplete(reader),
        _ if !tokens.issuer.is_empty() && !reader.was_refused(&MODE) => {
            let reason = "no token is checked: auth.mode is not \"jwt\"";
            reader.refuse(
                &TokenSettings::issuer,
                &*tokens.issuer,
                reason,
                "leave it out, or auth.mode = \"jwt\"",
            );
        }
        Mode::None | Mode::TrustedHeader | Mode::ApiKey | Mode::Mtls => {}
    }
    if mode == Mode::ApiKey && keys_file.is_none() && !reader.was_refused(&API_KEYS_FILE) {
        let reason = "auth.mode is \"api-key\", and without a file there are no keys";
        reader.refuse(&API_KEYS_FILE, "", reason, ABSOLUTE_FILE);
    }
    let settings = match mode {
        Mode::None => AuthSettings::None,
        Mode::TrustedHeader => AuthSettings::TrustedHeader(headers),
        Mode::Jwt => AuthSettings::Jwt {
            tokens: tokens.clone(),
            trusted_peers: headers.trusted_peers,
        },
        // The stand-in is never used: a missing file means that a problem was noted.
        Mode::ApiKey => AuthSettings::ApiKey {
            keys_file: keys_file.unwrap_or_default(),
            trusted_peers: headers.trusted_peers,
        },
        Mode::Mtls => AuthSettings::Mtls {
            user: certificate_user,
            trusted_peers: headers.trusted_peers,
        },
    };
    (settings, tokens)
}

fn parse_header(reader: &mut Reader<'_>, row: &'static Text) -> HeaderName {
    let parsed = reader.text(row, |text| {
        let name = HeaderName::try_from(text)
            .map_err(|_| "it cannot be the name of an HTTP header".to_owned())?;
        let is_standard = |standard| standard == name.as_str();
        match STANDARD_HEADERS.split(' ').any(is_standard) {
            true => Err(format!(
                "{name:?} has a meaning of its own in HTTP or MCP, and clients set it"
            )),
            false => Ok(name),
        }
    });
    // The stand-in is never used: a missing name means that a problem was noted.
    parsed.unwrap_or(http::header::WARNING)
}

fn parse_peer(text: &str) -> Result<IpNet, Reason> {
    let address = text.parse::<std::net::IpAddr>().map(IpNet::from);
    let network = address
        .or_else(|_| text.parse::<IpNet>())
        .map_err(|_| format!("{text:?} is no IP address and no network"))?;
    if network.prefix_len() == 0 {
        return Err(format!(
            "{text:?} is every address: any client could claim any user; list the addresses of the proxies"
        ));
    }
    Ok(network)
}

impl TrustedHeaderSettings {
    fn refuse_equal(&self, reader: &mut Reader<'_>) {
        let headers = [
            (&Self::user_header, &self.user_header),
            (&Self::teams_header, &self.teams_header),
            (&Self::roles_header, &self.roles_header),
        ];
        if headers.iter().any(|(row, _)| reader.was_refused(*row)) {
            return;
        }
        for (index, (row, name)) in headers.iter().enumerate() {
            if headers.iter().take(index).any(|(_, other)| other == name) {
                reader.refuse(
                    *row,
                    format!("{:?}", name.as_str()),
                    "one header cannot mean two things",
                    "a header of its own for each of user, teams and roles",
                );
            }
        }
    }

    fn refuse_against(&self, reader: &mut Reader<'_>, mode: Mode) {
        let row = &Self::trusted_peers;
        match (mode, self.trusted_peers.is_empty()) {
            (Mode::TrustedHeader, true) => {
                let reason = "auth.mode is \"trusted-header\", and without a trusted peer every request is refused";
                reader.refuse(
                    row,
                    "[]",
                    reason,
                    format!("at least one, in {}", row.allowed()),
                );
            }
            (Mode::None, false) => {
                let reason = "auth.mode is \"none\", which believes no header from anybody; set it to \
                              \"trusted-header\" or leave the peers out";
                reader.refuse(row, "[...]", reason, "");
            }
            (Mode::TrustedHeader, false)
            | (Mode::None, true)
            | (Mode::Jwt | Mode::ApiKey | Mode::Mtls, _) => {}
        }
    }
}
