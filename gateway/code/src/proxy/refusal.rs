//! Refused requests of the egress proxy, and why.

use std::net::IpAddr;

/// One request that was refused. Its text is for the event, which the user of the code may read as well.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{destination}: {why}")]
pub struct RefusedRequest {
    /// Where it was to go, as the program wrote it, cut off at 256 bytes.
    pub destination: String,
    /// Why it did not.
    pub why: RefusalReason,
}

impl RefusedRequest {
    pub(super) fn new(destination: &str, why: RefusalReason) -> Self {
        let end = destination.floor_char_boundary(256);
        let destination = destination.get(..end).unwrap_or_default().to_owned();
        Self { destination, why }
    }
}

/// Why a request is refused. The text is for the program, which must not learn what a name resolves to in the gateway's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusalReason {
    /// It says no host, or in a way that may be read as two.
    #[error("the request names no destination: ask for http://host/path, or CONNECT host:port")]
    Destination,
    /// Something else than `http` without a tunnel.
    #[error("only http addresses are asked for without a tunnel; use CONNECT for https")]
    Scheme,
    /// A port that is none of the allowed ones.
    #[error("port {0} is not allowed: the ports are 80 and 443")]
    Port(u16),
    /// An address that is not public.
    #[error("the destination is not a public address")]
    NotPublic(IpAddr),
    /// An address of the gateway or of its machine.
    #[error("the destination is an address of the gateway's own")]
    Own(IpAddr),
}

impl RefusalReason {
    /// The address that was not connected to, for the log alone.
    pub(super) const fn address(self) -> Option<IpAddr> {
        match self {
            Self::NotPublic(address) | Self::Own(address) => Some(address),
            Self::Destination | Self::Scheme | Self::Port(_) => None,
        }
    }

    /// The word for it in the log.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Destination => "no_destination",
            Self::Scheme => "scheme_not_allowed",
            Self::Port(_) => "port_not_allowed",
            Self::NotPublic(_) => "address_not_public",
            Self::Own(_) => "address_of_gateway",
        }
    }
}
