//! `[store]`: where session records live.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::listen::CertificateFiles;
use super::paths::{ABSOLUTE_FILE, PATH_BYTES_MAX, absolute_file, state_home};
use super::reader::{Reader, Reason};
use super::redis_url::{RedisTlsFiles, RedisTopology, RedisUrl};
use super::rows::{settings, words};
use super::setting::Disclosure;

settings! {
    /// The rows that choose the store, in the order of the page.
    pub(crate) const LOCATION_ROWS {
        /// Where session records live: `embedded` is a SQLite file that the processes of one machine share; a Redis URL
        /// names a server that any number of gateways share, with the mooring module loaded unless `store.module` is `none`.
        URL = Text("store.url", 2048,
            "embedded, redis://[user:password@]host[:port][/database], rediss://... with TLS, unix:///path/to/socket (also \
             redis+unix://), several of these with commas or spaces between, of which the first primary serves, \
             redis+sentinel://[user:password@]host[:port],host[:port].../service[/database] (rediss+sentinel://... with \
             TLS), whose primary the sentinels name, or redis+cluster://[user:password@]host[:port],host[:port]... \
             (rediss+cluster://... with TLS), whose nodes name all primaries", Some(EMBEDDED))
            .contextforge_name("REDIS_URL").flag("--store").disclosure(Disclosure::Credentials),
        /// The file of the embedded store; its directory is created if it does not exist. No effect if `store.url`
        /// names a Redis.
        PATH = Text("store.path", PATH_BYTES_MAX, ABSOLUTE_FILE, None)
            .unset("`$XDG_STATE_HOME/mooring/sessions.db`, or `~/.local/state/mooring/sessions.db`"),
        /// The authorities of the certificates of Redis and its sentinels, in PEM. This and the next two files are read at
        /// each connection, so new ones need no restart.
        TLS_CA_FILE = Text("store.tls_ca_file", PATH_BYTES_MAX, ABSOLUTE_FILE, None)
            .unset("the authorities that this system trusts, or those in the file that `SSL_CERT_FILE` names"),
        /// The gateway's certificate, in PEM, with those that lead to its authority. Redis asks for one unless its
        /// `tls-auth-clients` is `no`.
        TLS_CERT_FILE = Text("store.tls_cert_file", PATH_BYTES_MAX, ABSOLUTE_FILE, None).unset("no certificate"),
        /// The private key of this certificate, in PEM. Only the gateway's user may be able to read it.
        TLS_KEY_FILE = Text("store.tls_key_file", PATH_BYTES_MAX, ABSOLUTE_FILE, None).unset("no certificate"),
    }
}

settings! {
    /// Where session records live.
    pub struct StoreSettings {
        /// Which store.
        pub location: StoreLocation => parse_location,
        /// What happens to requests while the store cannot be reached.
        pub on_unavailable: OnUnavailable = Choice("store.on_unavailable"),
        /// Whether the mooring module of Redis is used. All gateways of a `store.key_prefix` need the same value. No effect on
        /// the embedded store.
        pub module: ModuleUse = Choice("store.module"),
        /// What every Redis key starts with. The module's own setting `mooring.prefixes` must list it.
        pub key_prefix: String = Text("store.key_prefix", 64,
            "1 to 64 characters out of letters, digits and . _ : -, the last one a colon", Some("mcpgw:"))
            => |reader, row| reader.text(row, parse_key_prefix).unwrap_or_default(),
        /// How long one command may take before the store counts as away for the request that sent it.
        pub command_timeout: Duration = Integer("store.command_timeout_ms", "milliseconds", 500, 10..=60_000),
    }
}

impl StoreSettings {
    /// Refuses a cluster without the module: the script needs all keys of a fleet on one server.
    pub(super) fn check(&self, reader: &mut Reader<'_>) {
        let StoreLocation::Redis(url) = &self.location else {
            return;
        };
        let is_cluster = matches!(url.topology(), RedisTopology::Cluster(_));
        if is_cluster && self.module == ModuleUse::Unused {
            let reason = "store.url names a cluster, which needs the module on every primary";
            reader.refuse(&Self::module, "none", reason, "\"required\"");
        }
    }
}

words! {
    /// What happens to requests while the store is away.
    pub enum OnUnavailable {
        /// serve from memory what can be served safely, and mark every reply (`Mooring-Degraded`)
        Fallback = "fallback",
        /// answer 503 with Retry-After until it is back
        Fail = "fail",
    }
}

words! {
    /// Whether the mooring module of Redis is used.
    pub enum ModuleUse {
        /// Redis has it: a call costs one command
        Required = "required",
        /// it is not used: a script does its work, as on managed servers that load no module
        Unused = "none",
    }
}

/// The URL that means the SQLite file.
const EMBEDDED: &str = "embedded";

/// Which store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreLocation {
    /// A SQLite file on this machine.
    Embedded {
        /// The file; its directory may not exist yet.
        path: PathBuf,
    },
    /// A Redis with the mooring module.
    Redis(RedisUrl),
}

impl fmt::Display for StoreLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded { path } => path.display().fmt(formatter),
            Self::Redis(url) => url.fmt(formatter),
        }
    }
}

fn parse_location(reader: &mut Reader<'_>) -> StoreLocation {
    let url = reader.text(&URL, parse_url).flatten();
    let path = reader.text(&PATH, absolute_file);
    let tls_files = parse_tls_files(reader, url.as_ref());
    if let Some(url) = url {
        return StoreLocation::Redis(url.with_tls_files(&tls_files));
    }
    let path = path.or_else(|| Some(state_home(reader.environment)?.join("mooring/sessions.db")));
    if path.is_none() && !reader.was_refused(&PATH) && !reader.was_refused(&URL) {
        let reason = "the embedded store needs a file, and neither XDG_STATE_HOME nor HOME is an absolute path";
        reader.refuse(&PATH, "", reason, PATH.shape);
    }
    StoreLocation::Embedded {
        path: path.unwrap_or_default(),
    }
}

/// Refuses files that no connection would use.
fn parse_tls_files(reader: &mut Reader<'_>, url: Option<&RedisUrl>) -> RedisTlsFiles {
    let rows = [&TLS_CA_FILE, &TLS_CERT_FILE, &TLS_KEY_FILE];
    let [ca_file, certificate_file, key_file] = rows.map(|row| reader.text(row, absolute_file));
    if url.and_then(RedisUrl::tls_files).is_none()
        && !reader.was_refused(&URL)
        && let Some(row) = rows.into_iter().find(|row| reader.is_written(*row))
    {
        let reason = "store.url names no server that speaks TLS";
        reader.refuse(
            row,
            "",
            reason,
            "nothing, or store.url with rediss://, rediss+sentinel:// or rediss+cluster://",
        );
    }
    for (row, other) in [
        (&TLS_CERT_FILE, &TLS_KEY_FILE),
        (&TLS_KEY_FILE, &TLS_CERT_FILE),
    ] {
        if reader.is_written(row) && !reader.is_written(other) {
            reader.refuse(other, "", "it is missing", other.shape);
        }
    }
    RedisTlsFiles {
        ca_file,
        client: certificate_file
            .zip(key_file)
            .map(|(certificate_file, key_file)| CertificateFiles {
                certificate_file,
                key_file,
            }),
    }
}

/// `None` for the embedded store.
fn parse_url(text: &str) -> Result<Option<RedisUrl>, Reason> {
    if text == EMBEDDED {
        return Ok(None);
    }
    if !text.contains("://") {
        return Err("it is not \"embedded\" and has no scheme".to_owned());
    }
    RedisUrl::parse(text).map(Some)
}

fn parse_key_prefix(text: &str) -> Result<String, Reason> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    if text.ends_with(':') && text.bytes().all(known) {
        Ok(text.to_owned())
    } else {
        Err(String::new())
    }
}
