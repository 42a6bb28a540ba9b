//! The part of `[worker]` about the other gateways of the fleet: where this one listens for them, how they reach it,
//! and the keys with which they authenticate each other. If a server's sessions live in one gateway, startup fails
//! unless all of this is set and usable.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use mooring_session::limits::ADDRESS_BYTES_MAX;

use super::hosts::parse_host;
use super::paths::{ABSOLUTE_FILE, PATH_BYTES_MAX, absolute_file};
use super::reader::{Reader, Reason, text};
use super::rows::settings;
use super::setting::Text;
use super::store::{StoreLocation, StoreSettings};

settings! {
    /// How the other gateways of the fleet reach and authenticate this one.
    pub struct PeerSettings(store: &StoreSettings) {
        /// Where this process listens for the other gateways. They forward to it the requests of connections that it
        /// owns: those of servers of kind `stdio` or `sse`, and of clients of HTTP+SSE. Keep it off public networks: no
        /// client uses it. Port 0 lets the system choose a free port, as `mooring stdio` always does.
        pub listen: SocketAddr = Text("worker.peer_listen", 64,
            "an IP address and a port, such as 127.0.0.1:0, 10.0.0.7:4445 or 0.0.0.0:4445", Some("127.0.0.1:0"))
            => |reader, row| reader.text(row, parse_listen).unwrap_or(DEFAULT_LISTEN),
        /// The host and port under which the other gateways reach `worker.peer_listen`. Required where that is a
        /// wildcard address such as 0.0.0.0 and a server is of kind `stdio` or `sse`.
        pub advertise: Option<PeerAddress> = Text(
            "worker.peer_advertise",
            // From processes on a free port, the store takes it with that port.
            ADDRESS_BYTES_MAX - PORT_BYTES_MORE,
            "a host name or IP address and a port, such as gateway-1.internal:4445, 10.0.0.7:4445 or [fd00::7]:4445", None)
            .unset("the address and port that were bound") => text(parse_advertise),
        /// The file with the keys with which the gateways of a fleet authenticate each other, the same at each: one key
        /// of 64 to 128 hexadecimal digits a line, at most 8. The first is used; the others are accepted too. Only the
        /// gateway's user may be able to read the file. Required if `store.url` names a Redis and a server is of kind
        /// `stdio` or `sse` or has `forward_identity`, and if clients use HTTP+SSE with several gateways.
        pub fleet_keys_file: Option<FleetKeysFile> =
            Text("worker.fleet_keys_file", PATH_BYTES_MAX, ABSOLUTE_FILE, None)
            .unset("with the embedded store a key is made beside its file, `<store.path>.keys`")
            => |reader, row| parse_keys_file(reader, row, store),
    }
}

/// What makes a key file; said where one is missing.
const KEY_COMMAND: &str = "head -c 32 /dev/urandom | xxd -p -c 64 > fleet.keys";

/// How many bytes a signed address is longer than the address: the separator, and 16 bytes in base64.
pub const ADDRESS_TAG_BYTES: usize = 1 + 22;
/// How many bytes longer the longest port is than the shortest.
const PORT_BYTES_MORE: usize = 4;

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The host and port under which other gateways reach this one: at most 128 visible ASCII characters, with an IPv6
/// address in brackets as in a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerAddress(String);

impl PeerAddress {
    /// `host:port`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same host with another port.
    pub fn with_port(&self, port: u16) -> String {
        let host = self.0.rsplit_once(':').map_or("", |(host, _)| host);
        format!("{host}:{port}")
    }
}

/// Where the fleet's keys are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FleetKeysFile {
    /// A file that the operator provides; a missing file is an error.
    Given(PathBuf),
    /// A file beside the embedded store's file, shared by its processes and created by the first that needs it.
    BesideStore(PathBuf),
}

fn parse_listen(text: &str) -> Result<SocketAddr, Reason> {
    text.parse()
        .map_err(|_| "it is not an IP address and a port; names are not looked up here".to_owned())
}

fn parse_advertise(text: &str) -> Result<PeerAddress, Reason> {
    let (host, port) = parse_host(text)?;
    let is_wildcard = match &host {
        url::Host::Domain(_) => false,
        url::Host::Ipv4(address) => address.is_unspecified(),
        url::Host::Ipv6(address) => address.is_unspecified(),
    };
    match port {
        _ if is_wildcard => Err("no gateway can be reached at a wildcard address".to_owned()),
        None => Err("it has no port".to_owned()),
        Some(0) => Err("no gateway can be reached at port 0".to_owned()),
        Some(port) => Ok(PeerAddress(format!("{host}:{port}"))),
    }
}

fn parse_keys_file(
    reader: &mut Reader<'_>,
    row: &'static Text,
    store: &StoreSettings,
) -> Option<FleetKeysFile> {
    match (reader.text(row, absolute_file), &store.location) {
        (Some(path), _) => Some(FleetKeysFile::Given(path)),
        (None, StoreLocation::Embedded { path }) => {
            let mut beside = path.as_os_str().to_owned();
            beside.push(".keys");
            Some(FleetKeysFile::BesideStore(beside.into()))
        }
        (None, StoreLocation::Redis(_)) => None,
    }
}

impl PeerSettings {
    /// Reads this part of the section; what cannot work at any server is refused.
    pub(super) fn parse(reader: &mut Reader<'_>, store: &StoreSettings) -> Self {
        let peers = Self::read(reader, store);
        let has_free_port = peers.listen.port() == 0 && !reader.was_refused(&Self::listen);
        if peers.advertise.is_some() && has_free_port {
            let shown = format!("{:?}", peers.listen.to_string());
            let reason = "worker.peer_advertise names a port, and port 0 leaves it to the system which one is bound";
            let allowed = "an address with the port that is reached under the advertised one";
            reader.refuse(&Self::listen, shown, reason, allowed);
        }
        peers
    }

    /// Refuses missing keys where the reason `need` needs them; `used` says what a common key does.
    pub(super) fn check_keys(&self, reader: &mut Reader<'_>, need: &str, used: &str) {
        if self.fleet_keys_file.is_none() && !reader.was_refused(&Self::fleet_keys_file) {
            reader.refuse(
                &Self::fleet_keys_file,
                "",
                format!("it is missing: {need}, and {used} a common key"),
                format!("{ABSOLUTE_FILE}, the same at every worker; this makes one: {KEY_COMMAND}"),
            );
        }
    }

    /// Refuses settings with which gateways cannot reach or authenticate each other where the reason `need` requires
    /// it; returns a remark on settings that may have this effect.
    pub(super) fn check(
        &self,
        reader: &mut Reader<'_>,
        store: &StoreSettings,
        need: &str,
    ) -> Option<String> {
        let (listen, listen_key) = (self.listen, Self::listen.about.key);
        let was_refused = reader.was_refused(&Self::listen) || reader.was_refused(&Self::advertise);
        self.check_keys(reader, need, "they know each other by");
        if listen.ip().is_unspecified() && self.advertise.is_none() && !was_refused {
            let reason = format!(
                "it is missing: {need}, and {listen_key} is {listen}, which is no address to reach this worker at"
            );
            reader.refuse(&Self::advertise, "", reason, Self::advertise.shape);
        }
        let StoreLocation::Redis(url) = &store.location else {
            return None;
        };
        let is_hidden = listen.ip().is_loopback() && self.advertise.is_none();
        (is_hidden && !url.is_on_this_machine()).then(|| {
            format!(
                "{need}; workers on other machines cannot reach {listen_key}, which is {listen}: set it and \
                 worker.peer_advertise if there are any"
            )
        })
    }
}
