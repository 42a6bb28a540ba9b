//! Which addresses are public: a list of what is not, after the registries of special-purpose addresses.
//!
//! An address that holds another one (mapped, translated or tunnelled) is as public as the one that it holds.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use super::refusal::RefusalReason;

/// Ports that a proxy connects to.
const PORTS: &[u16] = &[80, 443];

/// A range: its first address, and how many bits all of it have in common. One of IPv4 is a range of mapped addresses.
type Range = (Ipv6Addr, u32);

const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u32) -> Range {
    (Ipv4Addr::new(a, b, c, d).to_ipv6_mapped(), 96 + bits)
}

const fn v6(a: u16, b: u16, c: u16, bits: u32) -> Range {
    (Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), bits)
}

/// All of IPv4, and IPv6 that is unicast over the whole internet. Nothing outside of them is public.
const PUBLIC: [Range; 2] = [v4(0, 0, 0, 0, 0), v6(0x2000, 0, 0, 3)];

/// The ranges of them that are not public.
const NOT_PUBLIC: &[Range] = &[
    // This network.
    v4(0, 0, 0, 0, 8),
    // Private.
    v4(10, 0, 0, 0, 8),
    v4(172, 16, 0, 0, 12),
    v4(192, 168, 0, 0, 16),
    // Shared, behind a carrier's translation.
    v4(100, 64, 0, 0, 10),
    // Loopback.
    v4(127, 0, 0, 0, 8),
    // Link-local: metadata of clouds.
    v4(169, 254, 0, 0, 16),
    // Assignments of protocols.
    v4(192, 0, 0, 0, 24),
    // Documentation.
    v4(192, 0, 2, 0, 24),
    v4(198, 51, 100, 0, 24),
    v4(203, 0, 113, 0, 24),
    // Relays of 6to4.
    v4(192, 88, 99, 0, 24),
    // Benchmarks.
    v4(198, 18, 0, 0, 15),
    // Multicast, reserved, broadcast.
    v4(224, 0, 0, 0, 4),
    v4(240, 0, 0, 0, 4),
    // A cloud's own services, reached from its machines alone.
    v4(168, 63, 129, 16, 32),
    // Assignments of protocols, Teredo and benchmarks among them.
    v6(0x2001, 0, 0, 23),
    // Documentation.
    v6(0x2001, 0x0db8, 0, 32),
    v6(0x3fff, 0, 0, 20),
];

/// Where a proxy may connect to.
#[derive(Clone, Debug, Default)]
pub struct AddressPolicy {
    own: Vec<IpAddr>,
    #[cfg(any(test, feature = "test-support"))]
    allowed: Vec<SocketAddr>,
}

impl AddressPolicy {
    /// Public addresses, but for these: those of the store and of the gateway itself that may be public. Addresses of
    /// this machine's own interfaces are found by themselves.
    pub fn public(own: impl IntoIterator<Item = IpAddr>) -> Self {
        Self {
            own: own.into_iter().map(|own| own.to_canonical()).collect(),
            #[cfg(any(test, feature = "test-support"))]
            allowed: Vec::new(),
        }
    }

    /// Likewise, and these, whatever they are.
    #[cfg(any(test, feature = "test-support"))]
    pub fn allowing(allowed: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self {
            allowed: allowed.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Whether a port may be connected to, before anything is looked up.
    pub(super) fn check_port(&self, port: u16) -> Result<(), RefusalReason> {
        #[cfg(any(test, feature = "test-support"))]
        if self.allowed.iter().any(|allowed| allowed.port() == port) {
            return Ok(());
        }
        if PORTS.contains(&port) {
            Ok(())
        } else {
            Err(RefusalReason::Port(port))
        }
    }

    /// Whether an address may be connected to.
    pub(super) fn check(&self, address: SocketAddr) -> Result<(), RefusalReason> {
        #[cfg(any(test, feature = "test-support"))]
        if self.allowed.contains(&address) {
            return Ok(());
        }
        let ip = address.ip();
        if !is_public(ip) {
            return Err(RefusalReason::NotPublic(ip));
        }
        if self.own.contains(&ip.to_canonical()) || is_of_this_machine(address) {
            return Err(RefusalReason::Own(ip));
        }
        Ok(())
    }
}

/// Whether it is a public address, or holds one.
fn is_public(address: IpAddr) -> bool {
    let address = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => {
            embedded_ipv4(address).map_or(address, |embedded| embedded.to_ipv6_mapped())
        }
    };
    let is_in = |ranges: &[Range]| ranges.iter().any(|range| is_within(address, *range));
    is_in(&PUBLIC) && !is_in(NOT_PUBLIC)
}

/// The IPv4 address embedded in an IPv6 address.
fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let ipv4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Some(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        // Mapped; and translated by NAT64, with the well-known prefix.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x0064, 0xff9b, 0, 0, 0, 0, high, low] => {
            ipv4(high, low)
        }
        // Tunnelled by 6to4.
        [0x2002, high, low, ..] => ipv4(high, low),
        _ => None,
    }
}

fn is_within(address: Ipv6Addr, (first, bits): Range) -> bool {
    let shift = u128::BITS - bits;
    address.to_bits() >> shift == first.to_bits() >> shift
}

/// Whether one of this machine's interfaces has it: the kernel would connect from the address to itself. A datagram
/// socket is connected to it, which sends nothing.
fn is_of_this_machine(address: SocketAddr) -> bool {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    UdpSocket::bind((any, 0))
        .and_then(|socket| {
            socket.connect(address)?;
            socket.local_addr()
        })
        // Who cannot even be sent to is not this machine.
        .is_ok_and(|from| from.ip() == address.ip())
}
