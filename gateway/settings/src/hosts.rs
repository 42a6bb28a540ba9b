//! Which Host and Origin headers are heard: the typed rules and the one place that compares. Names are
//! compared without regard to case, addresses by value, and a header that does not parse matches nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

use super::reader::Reason;

/// A host, with a port where only that port is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
    host: Host<String>,
    port: Option<u16>,
}

impl HostRule {
    /// Parses `name`, `name:port`, `address`, `[v6]` or `[v6]:port`.
    pub(super) fn parse(text: &str) -> Result<Self, Reason> {
        let (host, port) = parse_host(text)?;
        Ok(Self { host, port })
    }

    fn allows(&self, asked: &Self) -> bool {
        self.host == asked.host && self.allows_port(asked.port)
    }

    fn allows_port(&self, asked: Option<u16>) -> bool {
        self.port.is_none() || self.port == asked
    }

    /// Whether it allows this host as it is written, which is how nearly every client names it. Parsing a name of any
    /// other form costs more than the other checks of a request.
    fn allows_as_written(&self, name: &str, port: Option<u16>) -> bool {
        let is_same = match &self.host {
            Host::Domain(domain) => domain.eq_ignore_ascii_case(name),
            Host::Ipv4(address) => name.parse() == Ok(*address),
            Host::Ipv6(_) => false,
        };
        is_same && self.allows_port(port)
    }
}

/// Parses `name`, `name:port`, `address`, `[v6]` or `[v6]:port`.
pub(super) fn parse_host(text: &str) -> Result<(Host<String>, Option<u16>), Reason> {
    let (name, port) = split_port(text)?;
    let host = Host::parse(name)
        .map_err(|error| format!("{text:?} is not a host name or address: {error}"))?;
    Ok((host, port))
}

/// `host[:port]` into its parts; the brackets of an IPv6 address stay on the host.
fn split_port(text: &str) -> Result<(&str, Option<u16>), Reason> {
    let Some((name, digits)) = text.rsplit_once(':') else {
        return Ok((text, None));
    };
    if name.starts_with('[') && !name.ends_with(']') {
        return Ok((text, None));
    }
    if name.contains(':') && !name.starts_with('[') {
        return Err(format!("{text:?}: an IPv6 address stands in brackets"));
    }
    match digits.parse() {
        Ok(port) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Ok((name, Some(port))),
        _ => Err(format!("{text:?}: {digits:?} is not a port")),
    }
}

/// The Host headers that are answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedHosts {
    /// The check is off.
    Any,
    /// These only.
    Listed(Vec<HostRule>),
}

impl AllowedHosts {
    /// The names of this machine's loopback, and the address listened on.
    pub(super) fn defaults_for(address: IpAddr) -> Self {
        let is_own = !address.is_loopback() && !address.is_unspecified();
        let own = match address {
            IpAddr::V4(address) => Host::Ipv4(address),
            IpAddr::V6(address) => Host::Ipv6(address),
        };
        let loopback = [
            Host::Domain("localhost".to_owned()),
            Host::Ipv4(Ipv4Addr::LOCALHOST),
            Host::Ipv6(Ipv6Addr::LOCALHOST),
        ];
        let hosts = loopback.into_iter().chain(is_own.then_some(own));
        let rules = hosts.map(|host| HostRule { host, port: None }).collect();
        Self::Listed(rules)
    }

    /// Whether a request with this Host header (or HTTP/2 authority) is answered.
    pub fn allows(&self, host_header: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(rules) => {
                split_port(host_header).is_ok_and(|(name, port)| {
                    rules.iter().any(|rule| rule.allows_as_written(name, port))
                }) || HostRule::parse(host_header)
                    .is_ok_and(|asked| rules.iter().any(|rule| rule.allows(&asked)))
            }
        }
    }
}

/// A web origin: scheme, host and port (RFC 6454).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(url::Origin);

impl Origin {
    /// Parses an Origin header; `None` for `null` and for everything that is no http or https origin.
    fn parse(text: &str) -> Option<Self> {
        let url = Url::parse(text).ok()?;
        let is_origin = matches!(url.scheme(), "http" | "https")
            && url.username().is_empty()
            && url.password().is_none()
            && url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none();
        is_origin.then(|| Self(url.origin()))
    }

    pub(super) fn parse_exact(text: &str) -> Result<Self, Reason> {
        if text == "*" {
            return Err(
                "\"*\" would let every web page that a user opens call the gateway; \
                        list the origins that need it"
                    .to_owned(),
            );
        }
        Self::parse(text).ok_or_else(|| format!("{text:?} is not an http or https origin"))
    }

    fn is_loopback(&self) -> bool {
        match &self.0 {
            url::Origin::Tuple(_, Host::Domain(name), _) => name == "localhost",
            url::Origin::Tuple(_, Host::Ipv4(address), _) => address.is_loopback(),
            url::Origin::Tuple(_, Host::Ipv6(address), _) => address.is_loopback(),
            url::Origin::Opaque(_) => false,
        }
    }
}

/// The Origin headers that are answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedOrigins {
    /// Pages that this machine serves to itself.
    Loopback,
    /// These only.
    Listed(Vec<Origin>),
}

impl AllowedOrigins {
    /// Whether a request with this Origin header is answered. A request without the header is not asked.
    pub fn allows(&self, origin_header: &str) -> bool {
        let Some(asked) = Origin::parse(origin_header) else {
            return false;
        };
        match self {
            Self::Loopback => asked.is_loopback(),
            Self::Listed(origins) => origins.contains(&asked),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn rules(items: &[&str]) -> AllowedHosts {
        AllowedHosts::Listed(
            items
                .iter()
                .map(|item| HostRule::parse(item).unwrap())
                .collect(),
        )
    }

    #[test]
    fn hosts() {
        #[track_caller]
        fn check(allowed: &AllowedHosts, header: &str, expected: bool) {
            assert_eq!(allowed.allows(header), expected, "{header:?}");
        }
        let standard = AllowedHosts::defaults_for("10.0.0.7".parse().unwrap());
        check(&standard, "localhost", true);
        check(&standard, "LOCALHOST:4444", true);
        check(&standard, "127.0.0.1:1", true);
        check(&standard, "[::1]:4444", true);
        check(&standard, "[0:0:0:0:0:0:0:1]", true);
        check(&standard, "10.0.0.7:4444", true);
        check(&standard, "10.0.0.8:4444", false);
        check(&standard, "evil.example", false);
        check(&standard, "localhost.evil.example", false);
        check(&standard, "localhost:99999", false);
        check(&standard, "localhost:+80", false);
        check(&standard, "localhost:", false);
        check(&standard, "evil@localhost", false);
        check(&standard, "", false);
        check(&rules(&["gateway.example:443"]), "gateway.example", false);
        check(
            &rules(&["gateway.example:443"]),
            "Gateway.example:443",
            true,
        );
        check(&rules(&["gateway.example"]), "gateway.example:443", true);
        check(&AllowedHosts::Any, "evil.example", true);
    }

    #[test]
    fn origins() {
        #[track_caller]
        fn check(allowed: &AllowedOrigins, header: &str, expected: bool) {
            assert_eq!(allowed.allows(header), expected, "{header:?}");
        }
        let loopback = AllowedOrigins::Loopback;
        check(&loopback, "http://localhost:6274", true);
        check(&loopback, "https://127.0.0.1", true);
        check(&loopback, "http://[::1]:80", true);
        check(&loopback, "http://localhost.evil.example", false);
        check(&loopback, "http://user@localhost", false);
        check(&loopback, "null", false);
        check(&loopback, "file:///", false);
        check(&loopback, "", false);
        let listed = AllowedOrigins::Listed(vec![Origin::parse("https://app.example").unwrap()]);
        check(&listed, "https://app.example", true);
        check(&listed, "https://APP.example:443", true);
        check(&listed, "http://app.example", false);
        check(&listed, "https://app.example:8443", false);
        check(&listed, "http://localhost", false);
    }
}
