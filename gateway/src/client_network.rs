//! The address or network by which clients are limited before they are authenticated.

use std::net::{IpAddr, Ipv6Addr};

/// The length of an IPv6 prefix that counts as one address, since a host usually has all its addresses.
const IPV6_NETWORK_BITS: u32 = 64;

/// The address or network that a client is counted by: an IPv4 address, or an IPv6 network.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let host_bits = u128::BITS - IPV6_NETWORK_BITS;
            Ipv6Addr::from_bits(address.to_bits() >> host_bits << host_bits).into()
        }
        ipv4 => ipv4,
    }
}
