//! A table of addresses, and whether each is public.

use std::net::IpAddr;

use super::super::refusal::RefusalReason;
use super::AddressPolicy;

#[test]
fn only_public_addresses_are_public() {
    let not_public = [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.1",
        "100.100.100.200",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.255",
        "169.254.0.1",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.1",
        "192.168.255.255",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "168.63.129.16",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:0:127.0.0.1",
        "::127.0.0.1",
        "::8.8.8.8",
        "64:ff9b::127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::8.8.8.8",
        "100::1",
        "2001::1",
        "2001:2::1",
        "2001:20::1",
        "2001:db8::1",
        "2002:7f00:1::1",
        "2002:a00:1::",
        "2002:c0a8:101::1",
        "3fff::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "4000::1",
        "::ffff:169.254.169.254",
    ];
    let public = [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "93.184.215.14",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.1",
        "169.253.255.255",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.1",
        "192.167.255.255",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "168.63.129.17",
        "2001:4860:4860::8888",
        "2606:4700:4700::1111",
        "2a00:1450::1",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
        "2002:808:808::1",
        "2003::1",
    ];
    let policy = AddressPolicy::public([]);
    let check = |text: &str| policy.check((text.parse::<IpAddr>().unwrap(), 443).into());
    for text in not_public {
        let refused = Err(RefusalReason::NotPublic(text.parse().unwrap()));
        assert_eq!(check(text), refused, "{text}");
    }
    for text in public {
        assert_eq!(check(text), Ok(()), "{text}");
    }
}

#[test]
fn an_address_of_the_gateways_own_is_refused_in_every_form() {
    let policy = AddressPolicy::public(["8.8.4.4", "2606::1"].map(|own| own.parse().unwrap()));
    for text in ["8.8.4.4", "::ffff:8.8.4.4", "2606::1"] {
        let address: IpAddr = text.parse().unwrap();
        let refused = Err(RefusalReason::Own(address));
        assert_eq!(policy.check((address, 80).into()), refused, "{text}");
    }
    assert_eq!(policy.check("8.8.8.8:80".parse().unwrap()), Ok(()));
}

#[test]
fn two_ports_are_allowed() {
    let policy = AddressPolicy::public([]);
    for port in [80, 443] {
        assert_eq!(policy.check_port(port), Ok(()));
    }
    for port in [0, 22, 25, 53, 81, 442, 6379, 8080, 8443, u16::MAX] {
        assert_eq!(policy.check_port(port), Err(RefusalReason::Port(port)));
    }
}
