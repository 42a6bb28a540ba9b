//! The gateway to query, the code server, and the caller's identity.

use std::env::VarError;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use rustls::sign::CertifiedKey;
use url::Url;

use super::output::ClientError;
use crate::cli::ClientArguments;
use mooring_secrets::certificates::certified_key;
use mooring_settings::{
    AuthSettings, Environment, Flags, ServerKind, Settings, TOKEN_VARIABLE, is_fetched_safely,
};

/// The code server of a gateway without settings.
const STANDARD_SERVER: &str = "sandbox";
/// The identity headers where no settings name others.
const STANDARD_HEADERS: [HeaderName; 3] = [
    HeaderName::from_static("x-mooring-user"),
    HeaderName::from_static("x-mooring-teams"),
    HeaderName::from_static("x-mooring-roles"),
];

/// The gateway to query, the code server, and the caller's identity.
#[derive(Debug)]
pub(super) struct GatewayTarget {
    /// URL without a trailing slash.
    pub(super) gateway: String,
    /// The id of a code server; empty if none is needed.
    pub(super) server: String,
    /// The identity headers.
    pub(super) headers: HeaderMap,
    /// The caller's certificate.
    pub(super) certificate: Option<Arc<CertifiedKey>>,
}

impl GatewayTarget {
    /// Takes the gateway from the flags, and from the settings where a flag is missing.
    pub(super) fn find(arguments: &ClientArguments) -> Result<Self, ClientError> {
        let settings = settings(arguments)?;
        Self::of(arguments, settings.as_ref())?.with_token(arguments)
    }

    /// The same with a code server.
    pub(super) fn find_code_server(arguments: &ClientArguments) -> Result<Self, ClientError> {
        let settings = settings(arguments)?;
        let target = Self::of_code_server(arguments, settings.as_ref())?;
        target.with_token(arguments)
    }

    /// The gateway and the code server in the flags and the settings.
    pub(super) fn of_code_server(
        arguments: &ClientArguments,
        settings: Option<&Settings>,
    ) -> Result<Self, ClientError> {
        Ok(Self {
            server: server(arguments, settings)?,
            ..Self::of(arguments, settings)?
        })
    }

    fn with_token(mut self, arguments: &ClientArguments) -> Result<Self, ClientError> {
        if let Some(token) = token(arguments.caller.token_file.as_deref())? {
            let url = Url::parse(&self.gateway).ok();
            if !url.is_some_and(|url| is_fetched_safely(&url)) {
                return Err(ClientError::Flag(format!(
                    "the token would be sent to {} without encryption: name the gateway with https://, or by a \
                     loopback address",
                    self.gateway
                )));
            }
            self.headers.insert(AUTHORIZATION, token);
        }
        Ok(self)
    }

    fn of(arguments: &ClientArguments, settings: Option<&Settings>) -> Result<Self, ClientError> {
        let names = match settings.map(|settings| &settings.auth) {
            Some(AuthSettings::TrustedHeader(auth)) => {
                [&auth.user_header, &auth.teams_header, &auth.roles_header].map(Clone::clone)
            }
            Some(
                AuthSettings::None
                | AuthSettings::Jwt { .. }
                | AuthSettings::ApiKey { .. }
                | AuthSettings::Mtls { .. },
            )
            | None => STANDARD_HEADERS,
        };
        let given = [
            &arguments.caller.user,
            &arguments.caller.teams,
            &arguments.caller.roles,
        ];
        let mut headers = HeaderMap::new();
        for ((name, value), flag) in names.into_iter().zip(given).zip(["user", "teams", "roles"]) {
            if let Some(value) = value {
                let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| {
                    ClientError::Flag(format!("--{flag} contains control characters"))
                })?;
                headers.insert(name, value);
            }
        }
        Ok(Self {
            gateway: gateway(arguments, settings),
            server: String::new(),
            headers,
            certificate: certificate(arguments)?,
        })
    }
}

/// The settings, where they are needed.
fn settings(arguments: &ClientArguments) -> Result<Option<Settings>, ClientError> {
    if arguments.caller.gateway.is_some() && arguments.config.is_none() {
        return Ok(None);
    }
    let flags = Flags {
        config: arguments.config.clone(),
        ..Flags::default()
    };
    Ok(Some(
        Settings::load(&Environment::of_process(), &flags)?.settings,
    ))
}

/// The caller's certificate.
fn certificate(arguments: &ClientArguments) -> Result<Option<Arc<CertifiedKey>>, ClientError> {
    let (Some(certificate), Some(key)) = (&arguments.caller.cert_file, &arguments.caller.key_file)
    else {
        return Ok(None);
    };
    let provider = rustls::crypto::ring::default_provider();
    Ok(Some(Arc::new(certified_key(certificate, key, &provider)?)))
}

/// The access token, as a header.
fn token(file: Option<&Path>) -> Result<Option<HeaderValue>, ClientError> {
    let refuse = |what: &str| {
        let message = format!("the token of --token-file or {TOKEN_VARIABLE} {what}");
        ClientError::Flag(message)
    };
    let token = match file {
        Some(path) => std::fs::read_to_string(path).map_err(|source| ClientError::File {
            path: path.display().to_string(),
            source,
        })?,
        None => match std::env::var(TOKEN_VARIABLE) {
            Ok(token) => token,
            Err(VarError::NotPresent) => return Ok(None),
            Err(VarError::NotUnicode(_)) => return Err(refuse("is not text")),
        },
    };
    let token = token.trim();
    if token.is_empty() {
        return Err(refuse("is empty"));
    }
    let value = HeaderValue::try_from(format!("Bearer {token}"));
    let mut value = value.map_err(|_| refuse("has control characters"))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

fn gateway(arguments: &ClientArguments, settings: Option<&Settings>) -> String {
    match (&arguments.caller.gateway, settings) {
        (Some(url), _) if url.contains("://") => url.trim_end_matches('/').to_owned(),
        (Some(address), _) => format!("http://{}", address.trim_end_matches('/')),
        (None, Some(settings)) => {
            let scheme = if settings.listen.tls.is_some() {
                "https"
            } else {
                "http"
            };
            format!("{scheme}://{}", reachable(settings.listen.address))
        }
        (None, None) => String::new(),
    }
}

/// The address at which a listener is reachable from its own machine.
fn reachable(mut listens: SocketAddr) -> SocketAddr {
    match listens.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => listens.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => listens.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    listens
}

fn server(arguments: &ClientArguments, settings: Option<&Settings>) -> Result<String, ClientError> {
    if let Some(server) = &arguments.server {
        return Ok(server.clone());
    }
    let Some(settings) = settings else {
        return Ok(STANDARD_SERVER.to_owned());
    };
    let of_code =
        |server: &&mooring_settings::ServerSettings| matches!(server.kind, ServerKind::Code(_));
    let ids: Vec<&str> = settings
        .servers
        .iter()
        .filter(of_code)
        .map(|server| server.id.as_str())
        .collect();
    match &*ids {
        [id] => Ok((*id).to_owned()),
        [] => Err(ClientError::Flag(
            "the settings have no server of kind code; select one with --server".to_owned(),
        )),
        several => Err(ClientError::Flag(format!(
            "select one of the code servers with --server: {}",
            several.join(", ")
        ))),
    }
}
